//! What can go wrong between here and a hub: one sentence each. No token and no signed address is in any of them.

use std::path::{Path, PathBuf};

use crate::checkpoint::CheckpointError;

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The argument is not a repository.
    #[error(
        "{0:?} is not a repository of a hub; give ORG/MODEL, or ORG/MODEL@REVISION with a branch, tag or commit"
    )]
    Repository(String),
    /// The endpoint is not an address to ask.
    #[error(
        "the endpoint {text:?} cannot be asked: {found}; give an address such as https://hub.example"
    )]
    Endpoint {
        /// As given; kept out of here where it may hold a password.
        text: String,
        /// What is wrong with it.
        found: &'static str,
    },
    /// A token that cannot stand in a header.
    #[error(
        "the token of {origin} has spaces or characters that no token has; set it again, or unset it"
    )]
    Token {
        /// The variable or file.
        origin: String,
    },
    /// A token would be sent for anybody to read.
    #[error(
        "the token of {origin} would be sent to {endpoint} for anybody on the way to read; use an https:// \
         endpoint, or unset the token"
    )]
    TokenInTheClear {
        /// The variable or file.
        origin: String,
        /// Where it would go.
        endpoint: String,
    },
    /// Nothing of that name can be fetched.
    #[error(
        "--with {0:?}: there is no such part; choose among norms, shared-experts and embed-rows=IDS, with commas between"
    )]
    Selection(String),
    /// A list of rows of the embedding that is none.
    #[error(
        "--with embed-rows={text}: {found}; give token ids and ranges such as embed-rows=0-15,1024"
    )]
    Rows {
        /// As given.
        text: String,
        /// What is wrong with it.
        found: &'static str,
    },
    /// The embedding has no such rows.
    #[error("--with embed-rows: {tensor} in {file} {found}; choose other rows, or leave them out")]
    NoRows {
        /// The stored name.
        tensor: String,
        /// The shard.
        file: String,
        /// What it has instead.
        found: String,
    },
    /// The hub wants to know who asks, or does not let them.
    #[error(
        "{host} does not show {repository} {to_whom} (HTTP {status}): it is private, or its terms have to be \
         accepted on its page, or there is no such repository; {advice}"
    )]
    Denied {
        /// The hub's host.
        host: String,
        /// The repository.
        repository: String,
        /// With or without a token.
        to_whom: String,
        /// 401 or 403.
        status: u16,
        /// What to do.
        advice: &'static str,
    },
    /// There is nothing of that name.
    #[error("{host} has no {what}; {advice}")]
    NotThere {
        /// The hub's host.
        host: String,
        /// The repository, revision or file.
        what: String,
        /// Whether it is a file, in a repository that is there.
        is_file: bool,
        /// What to do.
        advice: &'static str,
    },
    /// An answer that no waiting changes.
    #[error("{host} answers HTTP {status} to a request for {file}; {advice}")]
    Status {
        /// Who answers.
        host: String,
        /// The status.
        status: u16,
        /// The file asked for.
        file: String,
        /// What to do.
        advice: &'static str,
    },
    /// A redirect that leads astray.
    #[error(
        "{host} redirects the request for {file} to where it must not go: {found}; use another --endpoint"
    )]
    Redirect {
        /// Who redirects.
        host: String,
        /// The file asked for.
        file: String,
        /// What is wrong.
        found: String,
    },
    /// The server cannot send a part of a file.
    #[error(
        "{host} answers a request for a part of {file} with the whole of it; without range requests a fetch \
         would be a download: use another --endpoint"
    )]
    RangesIgnored {
        /// Who answers.
        host: String,
        /// The file asked for.
        file: String,
    },
    /// An answer that breaks the rules of the protocol.
    #[error(
        "{host} answers a request for {file} with {found}; use another --endpoint, or try again later"
    )]
    Answer {
        /// Who answers.
        host: String,
        /// The file asked for.
        file: String,
        /// What is wrong.
        found: String,
    },
    /// A file is not what it was.
    #[error(
        "{file} is not the file it was when this fetch began: {found}; what was fetched of it is of no use \
         beside the rest: remove {} and fetch again",
        .part.display()
    )]
    Changed {
        /// The file.
        file: String,
        /// What differs.
        found: String,
        /// Where the parts are kept.
        part: PathBuf,
    },
    /// The hub does not say which commit a revision is.
    #[error(
        "{host} does not say which commit {revision:?} is (no X-Repo-Commit); name the commit: {repository}@COMMIT"
    )]
    NoCommit {
        /// The hub's host.
        host: String,
        /// The revision asked for.
        revision: String,
        /// The repository.
        repository: String,
    },
    /// A whole file whose checksum is another one.
    #[error(
        "{file} came from {host} with another {kind} than the hub names for it; fetch again, or use another --endpoint"
    )]
    Checksum {
        /// The file.
        file: String,
        /// Who sent it.
        host: String,
        /// Which checksum.
        kind: &'static str,
    },
    /// Patience has an end.
    #[error(
        "{file} cannot be had: {why}, and the same again for {seconds} s; what is complete is kept in {}: \
         run the same command later to continue",
        .part.display()
    )]
    GaveUp {
        /// The file.
        file: String,
        /// What happened last.
        why: String,
        /// For how long.
        seconds: u64,
        /// Where the parts are kept.
        part: PathBuf,
    },
    /// Another part of the fetch failed first.
    #[error("the fetch was stopped")]
    Stopped,
    /// What was fetched before belongs to something else.
    #[error(
        "{} holds the beginning of another fetch ({found}); finish that one, or remove it and fetch again",
        .part.display()
    )]
    OtherFetch {
        /// Where the parts are kept.
        part: PathBuf,
        /// What differs.
        found: String,
    },
    /// Where the parts would be kept is something that is none of ours to remove.
    #[error(
        "{} is {found}, and the parts of this fetch would be kept there; move it away, or name another --out",
        .part.display()
    )]
    PartTaken {
        /// Where the parts would be kept.
        part: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// Two fetches at once.
    #[error("{} is in use by another fetch; let it end first", .part.display())]
    InUse {
        /// Where the parts are kept.
        part: PathBuf,
    },
    /// The disk does not take it.
    #[error("cannot write {}: {reason}; put that right and run the same command again, which goes on with what is complete", .path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A defect of what is on the hub.
    #[error("{repository}: {error}")]
    Checkpoint {
        /// The repository.
        repository: String,
        /// What is wrong with it.
        error: Box<CheckpointError>,
    },
    /// A shard that is named like something else.
    #[error(
        "the index puts {tensor:?} into {file:?}, which is not a .safetensors file; convert the checkpoint first"
    )]
    NotAShard {
        /// A tensor in it.
        tensor: String,
        /// Its name.
        file: String,
    },
    /// The target cannot be used.
    #[error("--out: {0}")]
    Out(Box<CheckpointError>),
    /// No hyper-connections, or no embedding.
    #[error("{repository} has no {what}; {advice}")]
    Lacking {
        /// The repository.
        repository: String,
        /// What it lacks.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
}

impl HubError {
    /// An I/O error on `path`.
    pub(super) fn disk(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::Disk {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}
