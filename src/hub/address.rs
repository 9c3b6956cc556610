//! Where things are: repositories, and addresses that are shown without what may be secret in them.

use std::{fmt, str::FromStr};

use ureq::http::{Uri, uri::Scheme};

use super::HubError;

/// Where checkpoints are published unless `HF_ENDPOINT` or the user names another place.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The revision of a repository that nobody names.
const DEFAULT_REVISION: &str = "main";

/// A model repository at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// `ORG/MODEL`.
    pub name: String,
    /// A branch, a tag, or a commit.
    pub revision: String,
}

impl FromStr for Repository {
    type Err = HubError;

    /// Parses `ORG/MODEL` or `ORG/MODEL@REVISION`.
    fn from_str(text: &str) -> Result<Self, HubError> {
        let (name, revision) = text.split_once('@').unwrap_or((text, DEFAULT_REVISION));
        let parts: Vec<&str> = name.split('/').collect();
        let sane = |part: &str| {
            let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && part.chars().all(letters) && !part.chars().all(|c| c == '.')
        };
        let revision_is_sane = revision.split('/').all(sane);
        if parts.len() == 2 && parts.iter().all(|part| sane(part)) && revision_is_sane {
            let (name, revision) = (name.to_owned(), revision.to_owned());
            return Ok(Self { name, revision });
        }
        Err(HubError::Repository(text.to_owned()))
    }
}

/// Whether a revision is a commit and not a name that can move.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.chars().all(|c| c.is_ascii_hexdigit())
}

/// An address of http or https. It shows itself without its query, where storage hosts sign their requests.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    secure: bool,
    host: String,
    port: u16,
    /// With the query.
    path: String,
}

impl Address {
    /// Parses an absolute address; says why it is none.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "it is not an address")?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("it does not begin with https:// or http://"),
        };
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("it holds a user or a password");
        }
        // What is no port number is not to be taken for none.
        let port = authority.as_str().rsplit_once(':').map(|(_, port)| port);
        let has_port = port.is_some_and(|port| !port.is_empty() && !port.ends_with(']'));
        if has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err("its port is not a number from 1 to 65535");
        }
        Ok(Self {
            secure,
            host: authority.host().to_ascii_lowercase(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }

    /// The address of a file of a repository at a revision, below this endpoint.
    pub(super) fn file(&self, repository: &str, revision: &str, file: &str) -> Self {
        let base = self.path.trim_end_matches('/');
        // A branch may have slashes in its name, which are none of the path.
        let revision = revision.replace('/', "%2F");
        let file = escaped(file);
        Self {
            path: format!("{base}/{repository}/resolve/{revision}/{file}"),
            ..self.clone()
        }
    }

    /// Where a redirect from here leads; says why it must not be followed.
    pub(super) fn follow(&self, location: &str) -> Result<Self, &'static str> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Ok(Self {
                path: location.to_owned(),
                ..self.clone()
            });
        }
        let scheme = if self.secure { "https" } else { "http" };
        let next = match location.strip_prefix("//") {
            Some(host) => Self::parse(&format!("{scheme}://{host}"))?,
            None => Self::parse(location)?,
        };
        if self.secure && !next.secure {
            return Err("it leads from https to http");
        }
        Ok(next)
    }

    /// Whether both are the same scheme, host and port: what may see the same token.
    pub(super) fn same_origin(&self, other: &Self) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }

    /// The host, without the port.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Whether there is more than a path behind the host.
    pub(super) fn has_query(&self) -> bool {
        self.path.contains('?')
    }

    /// Whether nobody but this machine and the other end can read what is sent there.
    pub(super) fn is_private(&self) -> bool {
        self.secure || matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "[::1]")
    }

    /// All of it, for the client alone.
    pub(super) fn whole(&self) -> String {
        format!("{}{}", self.origin(), self.path)
    }

    /// Scheme, host and port.
    fn origin(&self) -> String {
        let (scheme, usual) = if self.secure {
            ("https", 443)
        } else {
            ("http", 80)
        };
        match self.port == usual {
            true => format!("{scheme}://{}", self.host),
            false => format!("{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{}{path}", self.origin())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A file name as a part of a path: what has a meaning in addresses is escaped.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'-' | b'_' | b'.' => escaped.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories() {
        let parsed: Repository = "deepseek-ai/DeepSeek-V4-Flash"
            .parse()
            .expect("a repository");
        assert_eq!(parsed.name, "deepseek-ai/DeepSeek-V4-Flash");
        assert_eq!(parsed.revision, "main");
        let parsed: Repository = "a/b@refs/pr/1".parse().expect("a repository");
        assert_eq!(parsed.revision, "refs/pr/1");
        for wrong in [
            "",
            "a",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/b@",
            "a/b@..",
            "a/b@x y",
            "a/b@../c",
            "a/b?x",
            "a b/c",
            "https://x/a/b",
        ] {
            assert!(wrong.parse::<Repository>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_shows_no_query() {
        let address =
            Address::parse("https://Storage.example:8443/a/b?Signature=secret").expect("one");
        assert_eq!(address.to_string(), "https://storage.example:8443/a/b");
        assert_eq!(format!("{address:?}"), "https://storage.example:8443/a/b");
        assert!(address.whole().ends_with("?Signature=secret"));
        let of_port = |text| Address::parse(text).expect("one").port;
        assert_eq!(of_port("http://[::1]/"), 80);
        assert_eq!(of_port("http://[::1]:8080/"), 8080);
        assert_eq!(of_port("http://x:/"), 80);
        for wrong in [
            "ftp://x/y",
            "x",
            "/y",
            "https://user:word@x/y",
            "https://",
            "http://a b/",
            "http://a:99999/",
            "http://a:0/",
            "http://a:b/",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn files_of_a_repository() {
        let endpoint = Address::parse("https://hub.example/mirror/").expect("an address");
        let file = endpoint.file("a/b", "refs/pr/1", "model 1%.safetensors");
        assert_eq!(
            file.whole(),
            "https://hub.example/mirror/a/b/resolve/refs%2Fpr%2F1/model%201%25.safetensors"
        );
    }

    #[test]
    fn redirects() {
        let address = Address::parse("https://hub.example/a").expect("an address");
        let next = address.follow("/b?c").expect("within the host");
        assert!(next.same_origin(&address));
        assert_eq!(next.whole(), "https://hub.example/b?c");
        let next = address
            .follow("https://cdn.example/b")
            .expect("another host");
        assert!(!next.same_origin(&address));
        let next = address
            .follow("https://hub.example:444/b")
            .expect("another port");
        assert!(!next.same_origin(&address));
        let next = address
            .follow("//cdn.example/b")
            .expect("another host, by the same scheme");
        assert_eq!(next.whole(), "https://cdn.example/b");
        for refused in [
            "http://hub.example/b",
            "https://hub.example:99999/b",
            "//",
            "//user@cdn.example/b",
            "b",
            "file:///etc/passwd",
            "",
        ] {
            assert!(address.follow(refused).is_err(), "{refused:?}");
        }
    }
}
