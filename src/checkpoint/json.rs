//! JSON that was downloaded: read to a limit, and objects too large to keep whose keys must not come twice.
//!
//! `serde_json` keeps the last of two equal keys without a word; in a safetensors header or an index that would silently
//! pick one of two tensors. [`Names`] keeps a hash of every key; where two are equal, the keys are read again.

use std::{
    cell::Cell,
    fmt, fs,
    hash::{BuildHasher, RandomState},
    io::Read,
    path::Path,
};

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor,
};

use super::{error::CheckpointError, shard};

/// The bytes of a JSON file of at most `largest`; `broken` makes an error of what was found and what to do about it,
/// `check` what to do about one that is larger.
pub(super) fn read(
    path: &Path,
    largest: u64,
    check: &'static str,
    broken: impl Fn(String, &'static str) -> CheckpointError,
) -> Result<Vec<u8>, CheckpointError> {
    let length = shard::regular_file_length(path)?;
    if length > largest {
        return Err(broken(
            format!("it has {length} bytes, more than {largest}"),
            check,
        ));
    }
    fs::read(path).map_err(|error| CheckpointError::unreadable(path, &error))
}

/// What a JSON file says; `broken` as in [`read`].
pub(super) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
    broken: impl Fn(String, &'static str) -> CheckpointError,
) -> Result<T, CheckpointError> {
    if let Some(foreign) = shard::foreign_format(bytes) {
        return Err(broken(format!("it is {}", foreign.name), foreign.advice));
    }
    serde_json::from_slice(bytes).map_err(|error| broken(format!("{error}"), "download it again"))
}

/// What is wrong with a document that is JSON, where a deserializer's own words would not say it.
pub(super) type Complaint = Cell<Option<String>>;

/// Makes a complaint, and the error that ends the reading.
pub(super) fn refuse<E: serde::de::Error>(place: &Complaint, complaint: String) -> E {
    place.set(Some(complaint));
    E::custom("")
}

/// Longer than any tensor's name.
const LONGEST_KEY: usize = 1 << 12;

/// Reads a key into a buffer.
pub(super) struct Key<'a>(pub(super) &'a mut String, pub(super) &'a Complaint);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.len() > LONGEST_KEY {
            let length = text.len();
            let complaint = format!("it has a name of {length} bytes, more than {LONGEST_KEY}");
            return Err(refuse(self.1, complaint));
        }
        self.0.clear();
        self.0.push_str(text);
        Ok(())
    }
}

/// The keys of an object, each as a hash that no writer can foresee.
#[derive(Debug, Default)]
pub(super) struct Names {
    hasher: RandomState,
    /// With the key's place in the object.
    hashes: Vec<(u64, u32)>,
}

impl Names {
    /// Notes a key; returns its place.
    pub(super) fn add(&mut self, name: &str) -> Result<u32, String> {
        let place = u32::try_from(self.hashes.len())
            .map_err(|_| format!("it has more than {} names", u32::MAX))?;
        self.hashes.push((self.hasher.hash_one(name), place));
        Ok(place)
    }

    /// The places of keys that are equal, unless two others have one hash, which costs a look: the first few.
    pub(super) fn repeated(mut self) -> Vec<[u32; 2]> {
        const FEW: usize = 8;
        self.hashes.sort_unstable();
        let equal = self.hashes.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        equal.map(|pair| [pair[0].1, pair[1].1]).take(FEW).collect()
    }
}

/// The keys at these places of the document, or of the object that is its entry `within`.
pub(super) fn keys_at<const N: usize>(
    reader: impl Read,
    within: Option<&str>,
    places: [u32; N],
) -> serde_json::Result<[String; N]> {
    let mut keys = [const { String::new() }; N];
    let search = Search {
        within,
        places,
        keys: &mut keys,
    };
    let mut document = serde_json::Deserializer::from_reader(reader);
    search.deserialize(&mut document)?;
    Ok(keys)
}

struct Search<'a, const N: usize> {
    within: Option<&'a str>,
    places: [u32; N],
    keys: &'a mut [String; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Search<'_, N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Search<'_, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let (mut name, mut place) = (String::new(), 0);
        while access
            .next_key_seed(Key(&mut name, &Cell::default()))?
            .is_some()
        {
            if self.within == Some(&name) {
                access.next_value_seed(Search {
                    within: None,
                    places: self.places,
                    keys: &mut *self.keys,
                })?;
                continue;
            }
            if self.within.is_none() {
                let wanted = self.places.iter().zip(self.keys.iter_mut());
                for (_, key) in wanted.filter(|(wanted, _)| **wanted == place) {
                    key.clone_from(&name);
                }
            }
            place = place.checked_add(1).ok_or_else(|| A::Error::custom(""))?;
            access.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
