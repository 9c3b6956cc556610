//! Hubs: fetching the few tensors the tool needs of a repository that may have hundreds of gigabytes.
//!
//! What lives here: HTTP, which bytes to ask for, and keeping them until all are there. What may not: terminals, and
//! what a tensor is for, which `checkpoint` knows, as it knows what a header and an index may say.
//!
//! A revision is resolved to a commit once, and everything is asked for at that commit. A file that changes
//! nevertheless ends the fetch: parts of two versions make no checkpoint.
//!
//! | file | what it says |
//! |---|---|
//! | `fetch` | the order of things |
//! | `address`, `token`, `selection` | what is asked for, where, and by whom |
//! | `client` | one request: redirects, the token, what an answer means |
//! | `line` | how long to try |
//! | `remote`, `identity` | one file: ranges of it, and whether it stays the same |
//! | `sources`, `shards` | small files; headers and tensors |
//! | `plan` | which ranges, and where they go in a small shard |
//! | `journal` | what is there, after an interruption |
//! | `parallel` | a few things at a time |
//! | `publish`, `provenance` | the checkpoint, and where it is from |

mod address;
mod client;
mod error;
mod fetch;
mod identity;
mod journal;
mod line;
mod parallel;
mod plan;
mod provenance;
mod publish;
mod remote;
mod selection;
mod shards;
mod sources;
mod token;

pub use address::{DEFAULT_ENDPOINT, Repository};
pub use error::HubError;
pub use fetch::{Fetched, Request, fetch};
pub use line::{BackOff, Event, Listener};
pub use selection::Selection;
pub use token::Token;
