//! `model.safetensors.index.json`: which shard holds which tensor.
//!
//! `{"metadata": {"total_size": …}, "weight_map": {tensor: file}}`; the metadata is not needed and
//! may be absent. A file entry must be a plain file name: an index is downloaded data and must not
//! point out of its directory. It is streamed, and what is kept of it is the tensors of interest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

use super::{
    error::{CheckpointError, quoted},
    header::{MOST_KEPT, Section, Source},
    json::{self, Complaint, Key, Names, keys_at},
    shard,
};

/// The file name of the index in a checkpoint directory.
pub(crate) const FILE_NAME: &str = "model.safetensors.index.json";

/// Far above any published index (72,317 tensors are 6 MB), far below what hurts.
pub(crate) const LARGEST: u64 = 100_000_000;

/// Far more shards than any checkpoint has.
const MOST_SHARDS: usize = 1 << 16;

/// The entry that matters.
const WEIGHT_MAP: &str = "weight_map";

/// What to do about most of what can be wrong.
const AGAIN: &str = "download it again";

/// A parsed index.
#[derive(Debug, Default)]
pub struct Index {
    /// Tensor of interest → shard file name.
    pub weight_map: BTreeMap<String, String>,
    /// Every shard.
    pub files: BTreeSet<String>,
    /// How many tensors it names, those of no interest included.
    pub total: usize,
}

impl Index {
    /// Reads and checks the index at `path`; of its tensors those are kept whose names `keep` is true of.
    pub(crate) fn read(path: &Path, keep: &dyn Fn(&str) -> bool) -> Result<Self, CheckpointError> {
        let length = shard::regular_file_length(path)?;
        let file = File::open(path).map_err(|error| CheckpointError::unreadable(path, &error))?;
        Self::read_from(path, Source::File(&file), length, keep)
    }

    /// Reads and checks an index in memory; `path` is for messages.
    ///
    /// # Errors
    ///
    /// Any defect of it.
    pub fn parse(
        path: &Path,
        json: &[u8],
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, CheckpointError> {
        Self::read_from(path, Source::Memory(json, 0), json.len() as u64, keep)
    }

    fn read_from(
        path: &Path,
        source: Source<'_>,
        length: u64,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, CheckpointError> {
        let broken = |found: String, advice| CheckpointError::Index {
            path: path.to_owned(),
            found,
            advice,
        };
        let unreadable = |error| CheckpointError::unreadable(path, &error);
        if length > LARGEST {
            return Err(broken(
                format!("it has {length} bytes, more than {LARGEST}"),
                "check that it is an index",
            ));
        }
        let section = || Section::new(source, 0, length);
        let mut start = Vec::new();
        section()
            .take(shard::START)
            .read_to_end(&mut start)
            .map_err(unreadable)?;
        if let Some(foreign) = shard::foreign_format(&start) {
            return Err(broken(format!("it is {}", foreign.name), foreign.advice));
        }

        let reader = || BufReader::with_capacity(1 << 16, section());
        let mut scan = Scan::new(keep);
        let mut document = serde_json::Deserializer::from_reader(reader());
        let scanned = (&mut document)
            .deserialize_any(Document(&mut scan))
            .and_then(|()| document.end());
        if let Err(error) = scanned {
            return Err(match scan.complaint.take() {
                Some(complaint) => broken(complaint, scan.advice),
                None if error.classify() == Category::Io => unreadable(error.into()),
                None => broken(scan.located(&error), AGAIN),
            });
        }
        if !scan.found {
            let found = format!("expected an object with a {WEIGHT_MAP}, which it has not");
            return Err(broken(found, AGAIN));
        }
        for pair in scan.names.repeated() {
            let [first, second] = keys_at(reader(), Some(WEIGHT_MAP), pair)
                .map_err(|error| unreadable(error.into()))?;
            if first == second {
                return Err(broken(format!("{} is named twice", quoted(&first)), AGAIN));
            }
        }
        if scan.index.total == 0 {
            return Err(broken(format!("its {WEIGHT_MAP} is empty"), AGAIN));
        }
        Ok(scan.index)
    }
}

/// A name that stays in its directory on any system.
fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && !name.contains("..")
        && !name.contains(['/', '\\', ':', '\0'])
}

/// What has been seen of an index.
struct Scan<'a> {
    keep: &'a dyn Fn(&str) -> bool,
    names: Names,
    index: Index,
    /// Whether there is a weight map.
    found: bool,
    /// The tensor whose file is being read.
    name: String,
    file: String,
    complaint: Complaint,
    /// What to do about the complaint.
    advice: &'static str,
}

impl<'a> Scan<'a> {
    fn new(keep: &'a dyn Fn(&str) -> bool) -> Self {
        Self {
            keep,
            names: Names::default(),
            index: Index::default(),
            found: false,
            name: String::new(),
            file: String::new(),
            complaint: Complaint::default(),
            advice: AGAIN,
        }
    }

    /// Takes an entry of the weight map.
    fn take(&mut self) -> Result<(), String> {
        self.names.add(&self.name)?;
        self.index.total += 1;
        if !is_plain_file_name(&self.file) {
            self.advice = "do not trust this checkpoint until its origin is clear";
            return Err(format!(
                "it puts {} into {}, which is not a plain file name",
                quoted(&self.name),
                quoted(&self.file)
            ));
        }
        if !self.index.files.contains(&self.file) {
            if self.index.files.len() == MOST_SHARDS {
                return Err(format!("it names more than {MOST_SHARDS} shards"));
            }
            self.index.files.insert(self.file.clone());
        }
        if (self.keep)(&self.name) {
            if self.index.weight_map.len() == MOST_KEPT {
                return Err(format!(
                    "it names more than {MOST_KEPT} tensors of interest, which no model has"
                ));
            }
            let (name, file) = (self.name.clone(), self.file.clone());
            self.index.weight_map.insert(name, file);
        }
        Ok(())
    }

    /// An error with the entry it is in.
    fn located(&self, error: &serde_json::Error) -> String {
        match self.name.is_empty() {
            true => error.to_string(),
            false => format!("the entry {}: {error}", quoted(&self.name)),
        }
    }
}

/// The whole of it.
struct Document<'a, 'k>(&'a mut Scan<'k>);

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an object with a {WEIGHT_MAP}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let scan = self.0;
        let mut key = String::new();
        while access
            .next_key_seed(Key(&mut key, &scan.complaint))?
            .is_some()
        {
            if key != WEIGHT_MAP {
                access.next_value::<IgnoredAny>()?;
            } else if scan.found {
                let twice = format!("it has {WEIGHT_MAP} twice");
                return Err(json::refuse(&scan.complaint, twice));
            } else {
                scan.found = true;
                access.next_value_seed(WeightMap(&mut *scan))?;
                scan.name.clear();
            }
        }
        Ok(())
    }
}

/// Its weight map.
struct WeightMap<'a, 'k>(&'a mut Scan<'k>);

impl<'de> DeserializeSeed<'de> for WeightMap<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMap<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of tensors and files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let scan = self.0;
        while access
            .next_key_seed(Key(&mut scan.name, &scan.complaint))?
            .is_some()
        {
            access.next_value_seed(Key(&mut scan.file, &scan.complaint))?;
            let taken = scan.take();
            taken.map_err(|complaint| json::refuse::<A::Error>(&scan.complaint, complaint))?;
        }
        Ok(())
    }
}
