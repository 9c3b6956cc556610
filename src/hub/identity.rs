//! Whether a file is still the file it was, and whether it is the one that the hub means.
//!
//! | what the hub names | what can be checked |
//! |---|---|
//! | 40 hexadecimal digits: git's hash of a small file | the file, which is fetched whole |
//! | 64 of them: the SHA-256 of a large file | the file, if it is fetched whole; of a part of it nothing |
//! | anything else | that it stays the same while parts of it are fetched |

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::client::{Answer, text};

/// What tells one version of a file from another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its length.
    pub size: u64,
    /// The ETag of whoever sent it.
    pub etag: Option<String>,
    /// Whose ETag that is: two storages of one file have two.
    pub host: String,
    /// The ETag that the hub itself gives a file in a storage.
    pub linked_etag: Option<String>,
}

/// How the content of a file was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checked {
    /// By git's hash of it.
    GitHash,
    /// By its SHA-256.
    Sha256,
    /// The hub names no checksum of what was fetched.
    No,
}

impl Checked {
    /// What it is called in a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::GitHash => "git hash",
            Self::Sha256 => "SHA-256",
            Self::No => "nothing",
        }
    }
}

impl Identity {
    /// That of the file of `size` bytes that an answer is about.
    pub(super) fn of(answer: &Answer, size: u64) -> Self {
        let etag = text(answer.response.headers(), "etag");
        Self {
            size,
            etag: etag.as_deref().map(bare),
            host: answer.from.host().to_owned(),
            linked_etag: answer.said.linked_etag.as_deref().map(bare),
        }
    }

    /// What shows that `now` is another file; `None` where nothing does.
    pub(super) fn difference(&self, now: &Self) -> Option<String> {
        if self.size != now.size {
            return Some(format!("it has {} bytes, and had {}", now.size, self.size));
        }
        let differ = |before: &Option<String>, now: &Option<String>| match (before, now) {
            (Some(before), Some(now)) => before != now,
            _ => false,
        };
        let comparable = self.host == now.host || self.linked_etag.is_none();
        let changed = differ(&self.linked_etag, &now.linked_etag)
            || comparable && differ(&self.etag, &now.etag);
        changed.then(|| "its ETag is another one".to_owned())
    }

    /// Checks a whole file by what the hub names for it; on failure, the checksum that differs.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<Checked, Checked> {
        let Some(named) = self.linked_etag.as_ref().or(self.etag.as_ref()) else {
            return Ok(Checked::No);
        };
        let is_hex = named.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (kind, found) = match named.len() {
            40 if is_hex => {
                let git = format!("blob {}\0", bytes.len());
                let hash = Sha1::new_with_prefix(git).chain_update(bytes);
                (Checked::GitHash, hex::encode(hash.finalize()))
            }
            64 if is_hex => (Checked::Sha256, sha256(bytes)),
            _ => return Ok(Checked::No),
        };
        match found == named.to_ascii_lowercase() {
            true => Ok(kind),
            false => Err(kind),
        }
    }
}

/// The SHA-256 of bytes, in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// An ETag without its quotes and without the mark of a weak one, which a proxy may add.
fn bare(etag: &str) -> String {
    etag.trim()
        .trim_start_matches("W/")
        .trim_matches('"')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(host: &str, etag: &str, linked: Option<&str>) -> Identity {
        Identity {
            size: 6,
            etag: Some(etag.to_owned()),
            host: host.to_owned(),
            linked_etag: linked.map(str::to_owned),
        }
    }

    #[test]
    fn checksums() {
        // `printf 'hello\n' | git hash-object --stdin`, and its SHA-256.
        let git = "ce013625030ba8dba906f756967f9e9ca394464a";
        let sha = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let check = |etag, linked| identity("a", etag, linked).check(b"hello\n");
        assert_eq!(check(git, None), Ok(Checked::GitHash));
        assert_eq!(check("of the storage", Some(sha)), Ok(Checked::Sha256));
        assert_eq!(check("of the storage", None), Ok(Checked::No));
        let other = identity("a", git, None).check(b"hallo\n");
        assert_eq!(other, Err(Checked::GitHash));
        let other = identity("a", git, Some(sha)).check(b"hallo\n");
        assert_eq!(other, Err(Checked::Sha256));
    }

    #[test]
    fn a_file_that_changed() {
        let before = identity("cdn", "1", Some("x"));
        let differs = |now: &Identity| before.difference(now).is_some();
        assert!(!differs(&before));
        // Another storage, the same file.
        assert!(!differs(&identity("cdn2", "2", Some("x"))));
        // The storage was asked directly: the hub said nothing.
        assert!(!differs(&identity("cdn", "1", None)));
        assert!(differs(&identity("cdn", "2", None)));
        assert!(differs(&identity("cdn", "2", Some("x"))));
        assert!(differs(&identity("cdn", "1", Some("y"))));
        assert!(differs(&Identity {
            size: 7,
            ..before.clone()
        }));
        // Without the hub's word there is only that of whoever sends it.
        let before = identity("cdn", "1", None);
        assert!(before.difference(&identity("cdn2", "2", None)).is_some());
    }

    #[test]
    fn etags() {
        assert_eq!(bare("\"abc\""), "abc");
        assert_eq!(bare("W/\"abc\""), "abc");
    }
}
