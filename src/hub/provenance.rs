//! Where a fetched checkpoint is from, and how far that was checked.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{
    Selection,
    fetch::Fetch,
    identity::{Checked, Identity},
    journal::SmallFile,
    shards::Shard,
    sources::Sources,
};

/// Changes whenever a reader of an older one would misread it.
const FORMAT: u32 = 1;

/// What `provenance.json` says.
#[derive(Debug, Serialize)]
pub(super) struct Provenance<'a> {
    format: u32,
    tool: &'static str,
    version: &'static str,
    /// UTC.
    fetched: String,
    repository: &'a str,
    revision: &'a str,
    commit: &'a str,
    endpoint: String,
    with: &'a Selection,
    bytes: Bytes,
    files: Vec<FileFrom<'a>>,
    shards: Vec<ShardFrom<'a>>,
    remark: &'static str,
}

/// What was received, each byte once.
#[derive(Debug, Serialize)]
struct Bytes {
    /// Of the tensors.
    tensors: u64,
    /// Of what lies between them, and came along.
    between: u64,
    /// Of the shards' headers.
    headers: u64,
    /// Of the files that were fetched whole.
    files: u64,
}

#[derive(Debug, Serialize)]
struct FileFrom<'a> {
    name: &'a str,
    identity: &'a Identity,
    checked: Checked,
}

#[derive(Debug, Serialize)]
struct ShardFrom<'a> {
    name: &'a str,
    identity: &'a Identity,
    header_bytes: u64,
    /// The first byte of each range, and the one behind its last.
    ranges: Vec<(u64, u64)>,
    tensors: &'a [String],
}

impl<'a> Provenance<'a> {
    pub(super) fn new(fetch: &Fetch<'a>, sources: &'a Sources, shards: &'a [Shard<'a>]) -> Self {
        let files: Vec<FileFrom<'a>> = [&sources.index, &sources.config]
            .into_iter()
            .filter_map(FileFrom::new)
            .collect();
        let shards: Vec<(&Shard<'a>, Vec<(u64, u64)>)> = shards
            .iter()
            .map(|shard| (shard, shard.plan.pieces()))
            .collect();
        let received: u64 = shards
            .iter()
            .flat_map(|(_, ranges)| ranges)
            .map(|(begin, end)| end - begin)
            .sum();
        let tensors: u64 = shards.iter().map(|(shard, _)| shard.plan.wanted()).sum();
        Self {
            format: FORMAT,
            tool: "ulpdrift",
            version: env!("CARGO_PKG_VERSION"),
            fetched: utc(SystemTime::now()),
            repository: &fetch.request.repository.name,
            revision: &fetch.request.repository.revision,
            commit: fetch.commit,
            endpoint: fetch.line.client.endpoint().to_string(),
            with: &fetch.request.selection,
            bytes: Bytes {
                tensors,
                between: received - tensors,
                headers: shards.iter().map(|(shard, _)| shard.header_bytes).sum(),
                files: files.iter().map(|file| file.identity.size).sum(),
            },
            files,
            shards: shards
                .into_iter()
                .map(|(shard, ranges)| ShardFrom::new(shard, ranges))
                .collect(),
            remark: "A hub's checksum of a shard covers the whole file and says nothing of a part of it: the \
                     tensors are as the connection brought them, from a file whose size and ETag stayed the same.",
        }
    }
}

impl<'a> FileFrom<'a> {
    /// None if the repository has no such file.
    fn new(file: &'a SmallFile) -> Option<Self> {
        Some(Self {
            name: &file.name,
            identity: file.identity.as_ref()?,
            checked: file.checked,
        })
    }
}

impl<'a> ShardFrom<'a> {
    fn new(shard: &'a Shard<'a>, ranges: Vec<(u64, u64)>) -> Self {
        Self {
            name: shard.name,
            identity: &shard.identity,
            header_bytes: shard.header_bytes,
            ranges,
            tensors: &shard.plan.tensors,
        }
    }
}

/// A time as `2026-11-30T17:22:31Z`.
fn utc(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days in eras of 400 years that begin on the first of March, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let day = day - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times() {
        // As `date -u -d @…` has them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_796_059_351, "2026-11-30T17:22:31Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
