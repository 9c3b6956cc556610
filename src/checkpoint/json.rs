//! JSON files that were downloaded, and maps that must not name a key twice.
//!
//! `serde_json` keeps the last of two equal keys without a word; in a safetensors header or an
//! index that would silently pick one of two tensors.

use std::{collections::BTreeMap, fmt, fs, marker::PhantomData, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, Visitor},
};

use super::{error::CheckpointError, shard};

/// Reads a JSON file of at most `largest` bytes; `broken` makes an error of what was found and what
/// to do about it, `check` what to do about one that is larger.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    largest: u64,
    check: &'static str,
    broken: impl Fn(String, &'static str) -> CheckpointError,
) -> Result<T, CheckpointError> {
    let length = shard::regular_file_length(path)?;
    if length > largest {
        return Err(broken(
            format!("it has {length} bytes, more than {largest}"),
            check,
        ));
    }
    let bytes = fs::read(path).map_err(|error| CheckpointError::unreadable(path, &error))?;
    if let Some(foreign) = shard::foreign_format(&bytes) {
        return Err(broken(format!("it is {}", foreign.name), foreign.advice));
    }
    serde_json::from_slice(&bytes).map_err(|error| broken(format!("{error}"), "download it again"))
}

/// A map in which a repeated key is an error that names it.
#[derive(Debug)]
pub(super) struct UniqueMap<V>(pub(super) BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unique<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some(key) = access.next_key::<String>()? {
                    let value = access.next_value().map_err(|error| {
                        A::Error::custom(format!(
                            "the entry {}: {error}",
                            super::error::quoted(&key)
                        ))
                    })?;
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format!(
                            "{} is named twice",
                            super::error::quoted(&key)
                        )));
                    }
                    map.insert(key, value);
                }
                Ok(UniqueMap(map))
            }
        }

        deserializer.deserialize_map(Unique(PhantomData))
    }
}
