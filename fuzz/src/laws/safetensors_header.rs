//! The header of a safetensors file, beside what the `safetensors` crate makes of it.
//!
//! Ours and theirs differ on purpose, and only so:
//!
//! | | ours | theirs |
//! |---|---|---|
//! | holes between tensors, bytes behind the last | pass: harm nobody | refuse |
//! | a dtype that nobody knows | passes, is not decoded | refuse |
//! | packed FP4 and FP6 whose shape counts bytes | pass: some writers do | refuse |
//! | metadata that are not texts by texts | pass: nobody reads them | refuse |
//! | what JSON does not allow, in what nobody reads | passes unread | refuse |
//! | blanks before the object | refuse: the format does | pass |
//! | a name that comes twice | refuse: which of the two? | take the last |
//! | an entry that is an array, a dtype that is an object | refuse | pass |
//! | more than 64 dimensions, names over 4096 bytes | refuse | pass |

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::Path,
};

use safetensors::{Dtype, SafeTensors, tensor::Metadata};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;
use ulpdrift::checkpoint::formats::{Entry, Header, START, SYNTHETIC_KEY, header_length};

use super::{Outcome, refusal::refused, sometimes};

const PATH: &str = "model.safetensors";
const METADATA: &str = "__metadata__";
/// Data that are worth making up, so that the whole file can be compared.
const SMALL: u64 = 1 << 12;

/// The bytes as a whole file, then as the JSON text of a header whose data are there as far as it says.
pub fn safetensors_header(bytes: &[u8]) -> Outcome {
    as_file(bytes);
    let header = match parse(bytes, u64::MAX) {
        Ok(header) => header,
        Err(error) => {
            if let Ok(theirs) = serde_json::from_slice::<Metadata>(bytes) {
                assert!(
                    is_stricter(bytes, &theirs),
                    "refused, and the crate takes it: {error}"
                );
            }
            return refused(error);
        }
    };
    let begin = 8 + bytes.len() as u64;
    let end = header.entries.values().map(|entry| entry.end).max();
    let end = end.unwrap_or(0);
    hold(&header, bytes, end);
    if let Some(length) = begin.checked_add(end) {
        parse(bytes, length).expect("its data end where the file does");
        if end > 0 {
            let error = parse(bytes, length - 1).expect_err("a byte is missing");
            assert!(error.to_string().contains("truncated"), "{error}");
        }
    }
    if end <= SMALL {
        let mut file = (bytes.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(bytes);
        file.resize(file.len() + end as usize, 0);
        as_file(&file);
    }
    Outcome::Accepted
}

fn parse(json: &[u8], length: u64) -> Result<Header, ulpdrift::checkpoint::CheckpointError> {
    Header::parse(Path::new(PATH), json, length, &|_| true)
}

/// A file as it is opened: the length of its header is judged first.
fn as_file(file: &[u8]) {
    let length = file.len() as u64;
    let start = &file[..file.len().min(START as usize)];
    let theirs = SafeTensors::deserialize(file);
    let json = match header_length(Path::new(PATH), start, length) {
        Ok(header) => &file[8..][..header as usize],
        Err(error) => {
            let begins_with_blanks = file.get(8).is_some_and(|&first| first != b'{');
            assert!(
                theirs.is_err() || begins_with_blanks,
                "refused, and the crate takes it: {error}"
            );
            refused(error);
            return;
        }
    };
    let available = length - 8 - json.len() as u64;
    match (parse(json, length), theirs) {
        (Ok(header), Ok(theirs)) => {
            hold(&header, json, available);
            let theirs: BTreeMap<String, _> = theirs.tensors().into_iter().collect();
            assert!(theirs.keys().eq(header.entries.keys()), "other names");
            for (name, entry) in &header.entries {
                let view = &theirs[name];
                assert_eq!(view.shape(), entry.shape, "shape of {name:?}");
                assert_eq!(Some(view.dtype()), known(&entry.dtype), "dtype of {name:?}");
                assert_eq!(view.data().len() as u64, entry.end - entry.begin);
            }
        }
        (Ok(header), Err(error)) => {
            hold(&header, json, available);
            assert!(
                is_laxer(&header, json, available),
                "accepted, and the crate refuses it: {error}"
            );
        }
        (Err(error), Ok(_)) => {
            let theirs = serde_json::from_slice(json).expect("the crate has read it");
            assert!(
                is_stricter(json, &theirs),
                "refused, and the crate takes it: {error}"
            );
            refused(error);
        }
        (Err(error), Err(_)) => drop(refused(error)),
    }
}

/// What holds of an accepted header with so many bytes of data.
fn hold(header: &Header, json: &[u8], available: u64) {
    assert_eq!(header.entries.len(), header.total, "a tensor is lost");
    let mut spans = Vec::new();
    for (name, entry) in &header.entries {
        assert!(name.len() <= 4096 && name != METADATA);
        assert!(
            entry.begin <= entry.end && entry.end <= available,
            "{name:?} leaves the file"
        );
        fits(name, entry);
        spans.push((entry.begin, entry.end));
    }
    spans.sort_unstable();
    assert!(
        spans.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "tensors share bytes"
    );
    if !sometimes(json, 4) {
        return;
    }
    // What is kept is what was asked for, and nothing else depends on that.
    let length = (8 + json.len() as u64).saturating_add(available);
    let keep = |name: &str| name.len().is_multiple_of(2);
    let some = Header::parse(Path::new(PATH), json, length, &keep).expect("it is the same header");
    assert_eq!(
        (some.total, some.synthetic),
        (header.total, header.synthetic)
    );
    let kept = header.entries.iter().filter(|(name, _)| keep(name));
    assert!(some.entries.iter().eq(kept));
    let Ok(Value::Object(object)) = serde_json::from_slice(json) else {
        return;
    };
    let names = object.keys().filter(|name| *name != METADATA).count();
    assert_eq!(names, header.total, "a name is lost");
    let metadata = object.get(METADATA).and_then(Value::as_object);
    let is_marked = metadata.is_some_and(|metadata| metadata.contains_key(SYNTHETIC_KEY));
    assert_eq!(header.synthetic, is_marked);
}

fn known(dtype: &str) -> Option<Dtype> {
    Dtype::deserialize(&Value::from(dtype)).ok()
}

/// A tensor's shape and dtype are as many bytes as it spans.
fn fits(name: &str, entry: &Entry) {
    let Some(dtype) = known(&entry.dtype) else {
        return;
    };
    let elements: u128 = match entry.shape.contains(&0) {
        true => 0,
        false => entry.shape.iter().map(|&dim| dim as u128).product(),
    };
    let span = u128::from(entry.end - entry.begin);
    let bits = dtype.bitsize() as u128;
    assert!(
        span == (elements * bits).div_ceil(8) || (bits < 8 && span == elements),
        "{name:?}: {elements} values of {bits} bits in {span} bytes"
    );
}

/// A header whose metadata are texts, those too that a later one of the same name replaces.
#[derive(Deserialize)]
struct Texts {
    #[serde(rename = "__metadata__")]
    _metadata: HashMap<String, String>,
}

/// Whether the text has something that only we let pass.
fn is_laxer(header: &Header, json: &[u8], available: u64) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_slice(json) else {
        return true;
    };
    let texts = object
        .get(METADATA)
        .is_none_or(|metadata| metadata.is_null() || serde_json::from_slice::<Texts>(json).is_ok());
    let mut spans: Vec<(u64, u64)> = header
        .entries
        .values()
        .map(|entry| (entry.begin, entry.end))
        .collect();
    spans.sort_unstable();
    let mut end = 0;
    let is_dense = spans.iter().all(|&(begin, stop)| {
        let follows = begin == end;
        end = stop;
        follows
    });
    let is_whole = |entry: &Entry| {
        known(&entry.dtype).is_some_and(|dtype| {
            let bits = entry.shape.iter().product::<usize>() * dtype.bitsize();
            bits as u64 == 8 * (entry.end - entry.begin)
        })
    };
    let all_whole = header.entries.values().all(is_whole);
    !texts || !is_dense || end != available || !all_whole
}

/// Whether the text has something that only the crate lets pass.
fn is_stricter(json: &[u8], theirs: &Metadata) -> bool {
    let Ok(Entries(entries)) = serde_json::from_slice(json) else {
        return true;
    };
    let tensors = theirs.tensors();
    let is_large = tensors
        .iter()
        .any(|(name, info)| name.len() > 4096 || info.shape.len() > 64);
    let is_odd = |(name, value): &(String, Value)| {
        name != METADATA && (value.is_array() || value["dtype"].is_object())
    };
    let tensor_entries = entries.iter().filter(|(name, _)| name != METADATA).count();
    is_large || tensor_entries > tensors.len() || entries.iter().any(is_odd)
}

/// An object's entries, none of them lost.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}
