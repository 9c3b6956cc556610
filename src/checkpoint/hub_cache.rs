//! A model by its name in the local Hugging Face cache. Nothing is downloaded.
//!
//! ```text
//! CACHE/models--ORG--MODEL/refs/REVISION       a commit
//! CACHE/models--ORG--MODEL/snapshots/COMMIT/   the files, links to ../../blobs/
//! ```
//!
//! CACHE is what the first of these says that is set: `HF_HUB_CACHE`, `HUGGINGFACE_HUB_CACHE`, `HF_HOME` (its `hub`),
//! `XDG_CACHE_HOME` (its `huggingface/hub`), `HOME` (its `.cache/huggingface/hub`).

use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::error::{CheckpointError, quoted, shown};

/// The revision of a model that is named without one.
const DEFAULT_REVISION: &str = "main";

/// Looks an environment variable up.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The process's own.
pub(super) fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// `ORG/MODEL` or `ORG/MODEL@REVISION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubName<'a> {
    /// As given.
    spec: &'a str,
    organisation: &'a str,
    model: &'a str,
    revision: &'a str,
}

/// A model's files at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) path: PathBuf,
    pub(super) commit: String,
}

impl<'a> HubName<'a> {
    /// What could be a model's name; a path to a file could not.
    pub(super) fn parse(spec: &'a str) -> Option<Self> {
        let (name, revision) = spec.split_once('@').unwrap_or((spec, DEFAULT_REVISION));
        let (organisation, model) = name.split_once('/')?;
        let is_name = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            part.chars().all(known) && is_plain(part)
        };
        let is_file = [".safetensors", ".gguf", ".json"]
            .iter()
            .any(|end| model.ends_with(end));
        let is_revision = revision.split('/').all(is_plain);
        (is_name(organisation) && is_name(model) && is_revision && !is_file).then_some(Self {
            spec,
            organisation,
            model,
            revision,
        })
    }

    /// Finds its snapshot.
    pub(super) fn resolve(
        &self,
        environment: Environment<'_>,
    ) -> Result<Snapshot, CheckpointError> {
        let cache = cache(environment)
            .ok_or_else(|| self.absent("neither HF_HOME nor HOME is set".to_owned()))?;
        let folder = format!("models--{}--{}", self.organisation, self.model);
        let repository = cache.path.join(&folder);
        if !is_directory(&repository)? {
            let there = match is_directory(&cache.path)? {
                true => format!("{} has no {folder}", shown(&cache.path)),
                false => format!("there is no {}", shown(&cache.path)),
            };
            return Err(self.absent(format!("{there} (from {})", cache.variable)));
        }
        let commit = self.commit(&repository)?;
        let path = repository.join("snapshots").join(&commit);
        if !is_directory(&path)? {
            let snapshots = listed(snapshots(&repository.join("snapshots")));
            return Err(self.absent(format!(
                "{} is commit {commit} there, whose snapshot is gone (snapshots in {}: {snapshots})",
                self.revision,
                shown(&repository)
            )));
        }
        Ok(Snapshot { path, commit })
    }

    /// The commit that the revision stands for.
    fn commit(&self, repository: &Path) -> Result<String, CheckpointError> {
        let reference = repository.join("refs").join(self.revision);
        if is_file(&reference)? {
            let text = fs::read_to_string(&reference)
                .map_err(|error| CheckpointError::unreadable(&reference, &error))?;
            let commit = text.trim();
            if is_plain(commit) && commit.chars().all(|c| c.is_ascii_alphanumeric()) {
                return Ok(commit.to_owned());
            }
            return Err(self.absent(format!(
                "{} holds {}, which is no commit",
                shown(&reference),
                quoted(commit)
            )));
        }
        let snapshots = repository.join("snapshots");
        if is_directory(&snapshots.join(self.revision))? {
            return Ok(self.revision.to_owned());
        }
        Err(self.absent(format!(
            "{} has no revision {} (refs: {}; snapshots: {})",
            shown(repository),
            quoted(self.revision),
            listed(references(&repository.join("refs"))),
            listed(self::snapshots(&snapshots))
        )))
    }

    fn absent(&self, found: String) -> CheckpointError {
        let name = format!("{}/{}", self.organisation, self.model);
        let revision = match self.revision {
            DEFAULT_REVISION => String::new(),
            revision => format!(" --revision {revision}"),
        };
        CheckpointError::NotCached {
            spec: self.spec.to_owned(),
            found,
            advice: format!(
                "check the path, name a revision that is there as {name}@REVISION, download it with `hf download \
                 {name}{revision}`, or only what a run needs with `ulpdrift fetch`"
            ),
        }
    }
}

/// A name that leads nowhere else: not empty, and no way up.
fn is_plain(part: &str) -> bool {
    !part.is_empty() && !part.chars().all(|c| c == '.') && !part.contains(['/', '\\', '\0'])
}

fn is_directory(path: &Path) -> Result<bool, CheckpointError> {
    Ok(looked_at(path)?.is_some_and(|there| there.is_dir()))
}

fn is_file(path: &Path) -> Result<bool, CheckpointError> {
    Ok(looked_at(path)?.is_some_and(|there| there.is_file()))
}

/// What is there, if anything is; that somebody may not look is an error.
fn looked_at(path: &Path) -> Result<Option<fs::Metadata>, CheckpointError> {
    match fs::metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            _ => Err(CheckpointError::unreadable(path, &error)),
        },
    }
}

/// The names of references below a directory: `main`, `refs/pr/1`.
fn references(directory: &Path) -> Vec<String> {
    /// More directories below each other than any hub makes.
    const DEEPEST: usize = 8;
    let mut names = Vec::new();
    let mut left = vec![(directory.to_owned(), String::new(), 0)];
    while let Some((directory, before, depth)) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = format!("{before}{}", entry.file_name().to_string_lossy());
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true if depth < DEEPEST => left.push((entry.path(), format!("{name}/"), depth + 1)),
                true => {}
                false => names.push(name),
            }
        }
    }
    names
}

/// The snapshots in a directory.
fn snapshots(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Names, for a message.
fn listed(names: Vec<String>) -> String {
    const FEW: usize = 5;
    let mut names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    names.sort();
    let more = names.len().saturating_sub(FEW);
    names.truncate(FEW);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// The cache, and the variable that says where it is.
struct Cache {
    path: PathBuf,
    variable: &'static str,
}

/// Where the cache is; an empty variable is none.
fn cache(environment: Environment<'_>) -> Option<Cache> {
    const PLACES: [(&str, &str); 5] = [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ];
    PLACES.into_iter().find_map(|(variable, below)| {
        let value = environment(variable).filter(|value| !value.is_empty())?;
        let path = in_home(PathBuf::from(value), environment);
        let path = match below.is_empty() {
            true => path,
            false => path.join(below),
        };
        Some(Cache { path, variable })
    })
}

/// A path with its `~/` replaced, which a shell leaves in quotes and configuration files.
fn in_home(path: PathBuf, environment: Environment<'_>) -> PathBuf {
    match (path.strip_prefix("~"), environment("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models() {
        for (spec, revision) in [
            ("deepseek-ai/DeepSeek-V4-Flash", "main"),
            ("a/b@v1.0", "v1.0"),
            ("a/b@refs/pr/3", "refs/pr/3"),
        ] {
            assert_eq!(HubName::parse(spec).unwrap().revision, revision, "{spec}");
        }
        for spec in [
            "",
            "a",
            "a/",
            "/a",
            "/a/b",
            "./a/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/b@",
            "a/b@../x",
            "a/b@x//y",
            "~/b",
            "a/b.safetensors",
            "a b/c",
            "a\\b/c",
        ] {
            assert_eq!(HubName::parse(spec), None, "{spec}");
        }
    }

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let set = [
            ("HF_HUB_CACHE", "/1"),
            ("HUGGINGFACE_HUB_CACHE", "/2"),
            ("HF_HOME", "~/3"),
            ("XDG_CACHE_HOME", "/4"),
            ("HOME", "/5"),
        ];
        let paths = [
            "/1",
            "/2",
            "/5/3/hub",
            "/4/huggingface/hub",
            "/5/.cache/huggingface/hub",
        ];
        for (first, path) in paths.into_iter().enumerate() {
            let environment = |name: &str| match set.iter().position(|(known, _)| *known == name) {
                Some(place) if place >= first => Some(set[place].1.into()),
                // Set to nothing is not set.
                Some(_) => Some(OsString::new()),
                None => None,
            };
            let found = cache(&environment).unwrap();
            assert_eq!(
                (found.path.as_path(), found.variable),
                (Path::new(path), set[first].0)
            );
        }
        assert!(cache(&|_| None).is_none());
    }
}
