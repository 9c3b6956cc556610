//! One request to a hub: the token to its own host only, redirects followed by hand, and every answer taken for
//! what it is: good, worth asking again for, or an end.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use ureq::{
    Agent, Body, Error,
    http::{HeaderMap, Response, StatusCode, header},
};

use super::{HubError, Token, address::Address};

/// A hub redirects to its storage, or to a repository's new name and from there; more is a loop.
const MOST_REDIRECTS: usize = 5;

/// What a server may take to accept a connection, and then between two packets of an answer.
const CONNECT: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(30);

/// Whom to ask, and with what.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    endpoint: Address,
    token: Option<Token>,
    /// Whether anything has been answered yet.
    answered: AtomicBool,
}

/// What is asked for: a file, as it is called in messages, and which of its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    /// The repository.
    pub(super) repository: &'a str,
    /// The file.
    pub(super) file: &'a str,
    /// The first byte and the one behind the last; all of them where there is none.
    pub(super) range: Option<(u64, u64)>,
}

/// What came back, body unread, when all redirects were followed.
#[derive(Debug)]
pub(super) struct Answer {
    /// Who sent it.
    pub(super) from: Address,
    /// Its status, headers and body.
    pub(super) response: Response<Body>,
    /// What the endpoint itself said on the way.
    pub(super) said: Said,
}

/// What a hub says of a file, whoever sends it.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// The commit that the revision is.
    pub(super) commit: Option<String>,
    /// What identifies the content of a file that lies in a storage.
    pub(super) linked_etag: Option<String>,
    /// What the hub calls its refusal.
    error: Option<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may pass.
    Passing {
        /// What happened.
        why: String,
        /// How long the server asks to wait.
        wait: Option<Duration>,
    },
    /// It will not.
    Lasting(HubError),
}

impl Trouble {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Passing { why, wait: None }
    }
}

impl From<HubError> for Trouble {
    fn from(error: HubError) -> Self {
        Self::Lasting(error)
    }
}

impl Client {
    /// Asks nothing yet.
    pub(super) fn new(endpoint: &str, token: Option<Token>) -> Result<Self, HubError> {
        let wrong = |found| HubError::Endpoint {
            // It is not told back where it holds a password.
            text: if endpoint.contains('@') {
                "…@…"
            } else {
                endpoint
            }
            .to_owned(),
            found,
        };
        let endpoint = Address::parse(endpoint).map_err(wrong)?;
        if endpoint.has_query() {
            return Err(wrong("it has a query"));
        }
        if let Some(token) = &token
            && !endpoint.is_private()
        {
            return Err(HubError::TokenInTheClear {
                origin: token.origin().to_owned(),
                endpoint: endpoint.to_string(),
            });
        }
        let agent = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("ulpdrift/", env!("CARGO_PKG_VERSION")))
            // A part of a compressed file is no part of the file.
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            endpoint,
            token,
            answered: AtomicBool::new(false),
        })
    }

    /// The hub that is asked.
    pub(super) fn endpoint(&self) -> &Address {
        &self.endpoint
    }

    /// Whether anything has been answered yet: where nothing was, waiting longer helps little.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Asks the hub which commit a revision is, by a file that need not exist.
    pub(super) fn commit(
        &self,
        ask: &Ask<'_>,
        address: Address,
    ) -> Result<Option<String>, Trouble> {
        let answer = self.send(ask, address, Until::Commit)?;
        if answer.said.commit.is_some() {
            return Ok(answer.said.commit);
        }
        self.judge(ask, &answer)?;
        Ok(None)
    }

    /// Asks for a file, at the hub or where the hub sent us before.
    pub(super) fn get(&self, ask: &Ask<'_>, address: Address) -> Result<Answer, Trouble> {
        let answer = self.send(ask, address, Until::Answer)?;
        self.judge(ask, &answer)?;
        let encoding = text(answer.response.headers(), header::CONTENT_ENCODING.as_str());
        match encoding.filter(|encoding| encoding != "identity") {
            None => Ok(answer),
            Some(encoding) => Err(HubError::Answer {
                host: answer.from.host().to_owned(),
                file: ask.file.to_owned(),
                found: format!("content in the encoding {encoding:?}, which nobody asked for"),
            }
            .into()),
        }
    }

    /// Sends the request and follows redirects.
    fn send(&self, ask: &Ask<'_>, address: Address, until: Until) -> Result<Answer, Trouble> {
        let mut said = Said::default();
        let mut at = address;
        for _ in 0..=MOST_REDIRECTS {
            let response = self.request(ask, &at, until)?;
            self.answered.store(true, Ordering::Relaxed);
            if at.same_origin(&self.endpoint) {
                said.hear(response.headers());
            }
            let done = until == Until::Commit && said.commit.is_some();
            if done || !is_redirect(response.status()) {
                return Ok(Answer {
                    from: at,
                    response,
                    said,
                });
            }
            let astray = |found: &str| HubError::Redirect {
                host: at.host().to_owned(),
                file: ask.file.to_owned(),
                found: found.to_owned(),
            };
            let location = text(response.headers(), header::LOCATION.as_str())
                .ok_or_else(|| astray("it does not say where"))?;
            at = at.follow(&location).map_err(astray)?;
        }
        Err(HubError::Redirect {
            host: at.host().to_owned(),
            file: ask.file.to_owned(),
            found: format!("there is no end after {MOST_REDIRECTS} redirects"),
        }
        .into())
    }

    fn request(
        &self,
        ask: &Ask<'_>,
        at: &Address,
        until: Until,
    ) -> Result<Response<Body>, Trouble> {
        let mut request = match until {
            Until::Commit => self.agent.head(at.whole()),
            Until::Answer => self.agent.get(at.whole()),
        };
        if let Some((begin, end)) = ask.range {
            request = request.header(header::RANGE, format!("bytes={begin}-{}", end - 1));
        }
        if let Some(token) = &self.token
            && at.same_origin(&self.endpoint)
        {
            request = request.header(header::AUTHORIZATION, token.bearer());
        }
        request.call().map_err(|error| self.trouble(ask, at, error))
    }

    /// What it means that no answer came.
    fn trouble(&self, ask: &Ask<'_>, at: &Address, error: Error) -> Trouble {
        let host = at.host();
        match error {
            Error::Timeout(_) => Trouble::passing(format!("{host} does not answer")),
            Error::HostNotFound => Trouble::passing(format!("the host {host} is not found")),
            Error::ConnectionFailed => Trouble::passing(format!("{host} cannot be connected to")),
            Error::Io(error) => {
                Trouble::passing(format!("the connection to {host} fails ({error})"))
            }
            // Its text may hold the address with the signature in it.
            Error::BadUri(_) => HubError::Redirect {
                host: self.endpoint.host().to_owned(),
                file: ask.file.to_owned(),
                found: "it is not an address".to_owned(),
            }
            .into(),
            error => HubError::Answer {
                host: host.to_owned(),
                file: ask.file.to_owned(),
                found: format!("what is no answer ({error})"),
            }
            .into(),
        }
    }

    /// Whether an answer is one to read.
    fn judge(&self, ask: &Ask<'_>, answer: &Answer) -> Result<(), Trouble> {
        let status = answer.response.status();
        let host = answer.from.host().to_owned();
        let lasting = |advice| HubError::Status {
            host: host.clone(),
            status: status.as_u16(),
            file: ask.file.to_owned(),
            advice,
        };
        match status.as_u16() {
            200 | 206 => Ok(()),
            408 | 429 | 500 | 502 | 503 | 504 => Err(Trouble::Passing {
                why: format!("{host} answers HTTP {}", status.as_u16()),
                wait: text(answer.response.headers(), header::RETRY_AFTER.as_str())
                    .and_then(|seconds| seconds.trim().parse().ok())
                    .map(Duration::from_secs),
            }),
            401 | 403 if answer.from.same_origin(&self.endpoint) => {
                Err(self.denied(ask, status.as_u16()).into())
            }
            401 | 403 => Err(lasting(
                "its permission to read has run out: run the same command again",
            )
            .into()),
            404 => Err(self.not_there(ask, answer).into()),
            416 => Err(lasting("it is shorter than it was, or than its header says").into()),
            _ => Err(lasting("try again later, or use another --endpoint").into()),
        }
    }

    fn denied(&self, ask: &Ask<'_>, status: u16) -> HubError {
        let (to_whom, advice) = match &self.token {
            Some(token) => (
                format!("to the owner of the token of {}", token.origin()),
                "accept its terms there, or use a token of somebody who may read it",
            ),
            None => (
                "without a token".to_owned(),
                "check the name, and set HF_TOKEN to a token of somebody who may read it",
            ),
        };
        HubError::Denied {
            host: self.endpoint.host().to_owned(),
            repository: ask.repository.to_owned(),
            to_whom,
            status,
            advice,
        }
    }

    fn not_there(&self, ask: &Ask<'_>, answer: &Answer) -> HubError {
        let repository = ask.repository;
        let (what, is_file, advice) = match answer.said.error.as_deref() {
            Some("RepoNotFound") => (format!("repository {repository}"), false, "check the name"),
            Some("RevisionNotFound") => (
                format!("such revision of {repository}"),
                false,
                "name a branch, a tag or a commit behind the @",
            ),
            _ => (
                format!("{} in {repository}", ask.file),
                true,
                "check the name and the revision",
            ),
        };
        HubError::NotThere {
            host: answer.from.host().to_owned(),
            what,
            is_file,
            advice,
        }
    }
}

/// How far to follow redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Until the hub says which commit it is.
    Commit,
    /// To the end.
    Answer,
}

impl Said {
    /// Takes what is new; what the hub says last holds.
    fn hear(&mut self, headers: &HeaderMap) {
        let hear = |name: &str, before: &mut Option<String>| {
            if let Some(said) = text(headers, name) {
                *before = Some(said);
            }
        };
        hear("x-repo-commit", &mut self.commit);
        hear("x-linked-etag", &mut self.linked_etag);
        hear("x-error-code", &mut self.error);
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// A header's value, if it is there and text.
pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}
