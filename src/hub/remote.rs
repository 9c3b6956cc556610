//! A file on a hub: read whole if it is small, else by ranges, with patience and distrust.

use std::{
    io::Read,
    sync::{Mutex, PoisonError},
};

use ureq::http::header;

use super::{
    HubError,
    address::Address,
    client::{Answer, Ask, Trouble, text},
    identity::Identity,
    line::{Event, Line},
};

/// Bytes taken from a connection at a time.
const SIP: usize = 1 << 16;

/// A file of a repository at a commit.
pub(super) struct Remote<'a> {
    line: &'a Line<'a>,
    name: &'a str,
    address: Address,
    known: Mutex<Known>,
}

/// What is known of a file by now.
#[derive(Default)]
struct Known {
    /// What it is; every answer is compared with it.
    identity: Option<Identity>,
    /// Where the hub sends those who ask for it. The address may be signed, and stays in memory.
    storage: Option<Address>,
}

/// A small file.
pub(super) struct Whole {
    pub(super) bytes: Vec<u8>,
    pub(super) identity: Identity,
}

impl<'a> Remote<'a> {
    /// The file `name` at a commit; `identity` is what an earlier fetch found it to be.
    pub(super) fn new(
        line: &'a Line<'a>,
        commit: &str,
        name: &'a str,
        identity: Option<Identity>,
    ) -> Self {
        Self {
            line,
            name,
            address: line.client.endpoint().file(line.repository, commit, name),
            known: Mutex::new(Known {
                identity,
                storage: None,
            }),
        }
    }

    /// What the file was found to be.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.known().identity.clone()
    }

    /// Reads all of it, unless it has more than `most` bytes.
    pub(super) fn whole(&self, most: u64) -> Result<Whole, HubError> {
        self.line.patiently(self.name, |_| self.whole_once(most))
    }

    /// Reads its first bytes, at most `most`; fewer if it has no more.
    pub(super) fn start(&self, most: u64) -> Result<Vec<u8>, HubError> {
        self.line.patiently(self.name, |_| {
            let answer = self.ask(Some((0, most)))?;
            let part = self.part(&answer)?;
            if part.begin != 0 || part.end != most.min(part.size) {
                return Err(self.wrong_range(&answer, 0, most).into());
            }
            self.recognise(&answer, part.size)?;
            let mut bytes = Vec::new();
            self.drain(answer, part.end, &mut bytes)?;
            Ok(bytes)
        })
    }

    /// Reads the bytes from `begin` to before `end`. What an answer that breaks off has brought is not asked for
    /// again.
    pub(super) fn read(&self, begin: u64, end: u64) -> Result<Vec<u8>, HubError> {
        let mut bytes = Vec::with_capacity((end - begin) as usize);
        self.line.patiently(self.name, |advanced| {
            let before = bytes.len();
            let outcome = self.continue_to(begin, end, &mut bytes);
            *advanced = bytes.len() > before;
            outcome
        })?;
        Ok(bytes)
    }

    fn continue_to(&self, begin: u64, end: u64, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
        let begin = begin + bytes.len() as u64;
        if begin == end {
            return Ok(());
        }
        let answer = self.ask(Some((begin, end)))?;
        let part = self.part(&answer)?;
        if (part.begin, part.end) != (begin, end) {
            return Err(self.wrong_range(&answer, begin, end).into());
        }
        self.recognise(&answer, part.size)?;
        self.drain(answer, end - begin, bytes)
    }

    fn whole_once(&self, most: u64) -> Result<Whole, Trouble> {
        let answer = self.ask(None)?;
        let told = length(&answer);
        let too_long = |size: &str| {
            Trouble::from(self.wrong(
                &answer,
                format!("{size} bytes, where at most {most} make sense"),
            ))
        };
        if let Some(told) = told.filter(|&told| told > most) {
            return Err(too_long(&told.to_string()));
        }
        let mut identity = Identity::of(&answer, 0);
        let mut bytes = Vec::new();
        let host = answer.from.host().to_owned();
        let reader = answer.response.into_body().into_reader();
        let outcome = reader.take(most + 1).read_to_end(&mut bytes);
        let received = bytes.len() as u64;
        if received > most {
            return Err(HubError::Answer {
                host,
                file: self.name.to_owned(),
                found: format!("more than {most} bytes"),
            }
            .into());
        }
        if outcome.is_err() || told.is_some_and(|told| told != received) {
            return Err(Trouble::passing(format!(
                "{host} breaks off after {received} bytes"
            )));
        }
        identity.size = received;
        Ok(Whole { bytes, identity })
    }

    /// Asks for the file where it was found last; whatever is wrong with that place, the hub may know a better one.
    fn ask(&self, range: Option<(u64, u64)>) -> Result<Answer, Trouble> {
        let ask = Ask {
            repository: self.line.repository,
            file: self.name,
            range,
        };
        let client = &self.line.client;
        let storage = self.known().storage.clone();
        if let Some(storage) = storage {
            match client.get(&ask, storage) {
                Err(Trouble::Lasting(_)) => self.known().storage = None,
                outcome => return outcome,
            }
        }
        let answer = client.get(&ask, self.address.clone())?;
        if !answer.from.same_origin(client.endpoint()) {
            self.known().storage = Some(answer.from.clone());
        }
        Ok(answer)
    }

    /// Which part of the file an answer says it is.
    fn part(&self, answer: &Answer) -> Result<Part, HubError> {
        let headers = answer.response.headers();
        if answer.response.status().as_u16() == 200 {
            return Err(HubError::RangesIgnored {
                host: answer.from.host().to_owned(),
                file: self.name.to_owned(),
            });
        }
        let said = text(headers, header::CONTENT_RANGE.as_str());
        let part = said.as_deref().and_then(Part::parse).ok_or_else(|| {
            self.wrong(
                answer,
                "a part, but does not say which (Content-Range)".to_owned(),
            )
        })?;
        match length(answer) {
            Some(length) if length != part.end - part.begin => Err(self.wrong(
                answer,
                format!(
                    "{length} bytes (Content-Length) that it calls bytes {} to {} (Content-Range)",
                    part.begin,
                    part.end - 1
                ),
            )),
            _ => Ok(part),
        }
    }

    /// Notes what the file is, or compares it with what it was.
    fn recognise(&self, answer: &Answer, size: u64) -> Result<(), HubError> {
        let now = Identity::of(answer, size);
        let mut known = self.known();
        match &known.identity {
            None => known.identity = Some(now),
            Some(before) => {
                if let Some(found) = before.difference(&now) {
                    return Err(HubError::Changed {
                        file: self.name.to_owned(),
                        found,
                        part: self.line.part.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads the body of an answer, `expected` bytes, behind what is in `bytes`.
    fn drain(&self, answer: Answer, expected: u64, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
        let host = answer.from.host().to_owned();
        let mut reader = answer.response.into_body().into_reader();
        let mut sip = vec![0; SIP];
        let mut left = expected;
        while left > 0 {
            self.line.go_on()?;
            let most = sip.len().min(left as usize);
            match reader.read(&mut sip[..most]) {
                Ok(count) if count > 0 => {
                    bytes.extend_from_slice(&sip[..count]);
                    left -= count as u64;
                    (self.line.tell)(Event::Received(count as u64));
                }
                // The end, before it is due, or an error: the same to us.
                _ => {
                    let received = expected - left;
                    return Err(Trouble::passing(format!(
                        "{host} breaks off after {received} of {expected} bytes"
                    )));
                }
            }
        }
        match reader.read(&mut sip[..1]) {
            Ok(1) => Err(HubError::Answer {
                host,
                file: self.name.to_owned(),
                found: format!("more than the {expected} bytes asked for"),
            }
            .into()),
            _ => Ok(()),
        }
    }

    fn wrong_range(&self, answer: &Answer, begin: u64, end: u64) -> HubError {
        let said = text(answer.response.headers(), header::CONTENT_RANGE.as_str());
        let said = said.unwrap_or_default();
        self.wrong(
            answer,
            format!(
                "{said:?} (Content-Range) where bytes {begin} to {} were asked for",
                end - 1
            ),
        )
    }

    fn wrong(&self, answer: &Answer, found: String) -> HubError {
        HubError::Answer {
            host: answer.from.host().to_owned(),
            file: self.name.to_owned(),
            found,
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which bytes of how many.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    begin: u64,
    end: u64,
    size: u64,
}

impl Part {
    /// Parses a Content-Range such as `bytes 0-63/1000`.
    fn parse(text: &str) -> Option<Self> {
        let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let (begin, end, size) = (number(first)?, number(last)?.checked_add(1)?, number(size)?);
        (begin < end && end <= size).then_some(Self { begin, end, size })
    }
}

/// The length that an answer says it has.
fn length(answer: &Answer) -> Option<u64> {
    text(answer.response.headers(), header::CONTENT_LENGTH.as_str())?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn content_ranges() {
        let parsed = Part::parse("bytes 8-63/1000");
        assert_eq!(
            parsed,
            Some(Part {
                begin: 8,
                end: 64,
                size: 1000
            })
        );
        for wrong in [
            "",
            "bytes",
            "bytes 0-63",
            "bytes 0-63/*",
            "bytes */1000",
            "bytes 63-0/1000",
            "items 0-63/1000",
            "bytes 0-1000/1000",
            "bytes 0-18446744073709551615/18446744073709551615",
            "bytes -5/10",
        ] {
            assert_eq!(Part::parse(wrong), None, "{wrong:?}");
        }
    }
}
