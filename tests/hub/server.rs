//! A hub on this machine: one address that knows the repository and redirects to the other, which has the files. What it
//! was asked is written down, and a script can make it misbehave.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sha1::{Digest, Sha1};

pub const REPOSITORY: &str = "org/model";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// What the redirects to the storage are signed with.
pub const SIGNATURE: &str = "signed-and-secret";

/// Which of the two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Hub,
    Storage,
}

/// A request, as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub role: Role,
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Seen {
    /// The file's name.
    pub fn file(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// The first byte asked for, and the last.
    pub fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self
            .headers
            .get("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }

    /// Whether it is for the data of a shard, not for its header.
    pub fn is_data(&self) -> bool {
        self.role == Role::Storage && self.range().is_some_and(|(first, _)| first > 8)
    }
}

/// How to misbehave in one answer.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    /// This status and no content.
    pub status: Option<u16>,
    /// Headers to add or to replace; an empty value leaves one out.
    pub headers: Vec<(&'static str, String)>,
    /// The whole file, with 200, whatever part is asked for.
    pub ignores_range: bool,
    /// The connection ends after so many bytes of content.
    pub cut: Option<u64>,
    /// The connection ends before an answer.
    pub reset: bool,
    /// The server is gone for so long afterwards.
    pub dead_for: Option<Duration>,
    /// A pause before each 64 KiB.
    pub slow: Option<Duration>,
}

impl Fault {
    pub fn status(status: u16) -> Self {
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    pub fn header(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            headers: vec![(name, value.into())],
            ..Self::default()
        }
    }

    pub fn and_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn cut(bytes: u64) -> Self {
        Self {
            cut: Some(bytes),
            ..Self::default()
        }
    }
}

type Script = Box<dyn FnMut(&Seen) -> Option<Fault> + Send>;

struct State {
    directory: PathBuf,
    seen: Mutex<Vec<Seen>>,
    script: Mutex<Script>,
    /// Content that was sent.
    sent: AtomicU64,
    dead_until: Mutex<Option<Instant>>,
    deaths: AtomicU64,
    ended: AtomicBool,
    /// The token without which nothing is shown.
    token: Mutex<Option<String>>,
    /// The address of the storage, by its other name.
    storage: Mutex<String>,
}

/// Serves the files of a directory until it is dropped.
pub struct Hub {
    state: Arc<State>,
    hub: SocketAddr,
}

impl Hub {
    pub fn new(directory: &Path) -> Self {
        let state = Arc::new(State {
            directory: directory.to_owned(),
            seen: Mutex::default(),
            script: Mutex::new(Box::new(|_| None)),
            sent: AtomicU64::new(0),
            dead_until: Mutex::default(),
            deaths: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            token: Mutex::default(),
            storage: Mutex::default(),
        });
        let hub = listen(Role::Hub, &state);
        let storage = listen(Role::Storage, &state);
        // The same machine under another name is another host.
        *state.storage.lock().unwrap() = format!("http://localhost:{}", storage.port());
        Self { state, hub }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.hub)
    }

    /// The address of the storage.
    pub fn storage(&self) -> String {
        self.state.storage.lock().unwrap().clone()
    }

    /// What to do instead of answering properly.
    pub fn script(&self, script: impl FnMut(&Seen) -> Option<Fault> + Send + 'static) {
        *self.state.script.lock().unwrap() = Box::new(script);
    }

    /// The same fault for whatever it applies to, the first `times` times.
    pub fn fault(
        &self,
        times: usize,
        applies: impl Fn(&Seen) -> bool + Send + 'static,
        fault: Fault,
    ) {
        let mut left = times;
        self.script(move |seen| {
            let now = left > 0 && applies(seen);
            left -= usize::from(now);
            now.then(|| fault.clone())
        });
    }

    /// Shows the repository only to who has this token.
    pub fn require(&self, token: &str) {
        *self.state.token.lock().unwrap() = Some(token.to_owned());
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    pub fn forget(&self) {
        self.state.seen.lock().unwrap().clear();
        self.state.sent.store(0, Ordering::SeqCst);
    }

    /// Bytes of content sent, by both addresses.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }

    pub fn deaths(&self) -> u64 {
        self.state.deaths.load(Ordering::SeqCst)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
    }
}

/// Listens on a port, and again on the same one after each death.
fn listen(role: Role, state: &Arc<State>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::clone(state);
    thread::spawn(move || {
        let mut listener = Some(listener);
        while !state.ended.load(Ordering::SeqCst) {
            if state.is_dead() {
                listener = None;
            } else if listener.is_none() {
                listener = TcpListener::bind(address).ok();
            }
            if let Some(listener) = &listener {
                listener.set_nonblocking(true).unwrap();
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(false).unwrap();
                    stream.set_nodelay(true).unwrap();
                    let state = Arc::clone(&state);
                    thread::spawn(move || state.serve(role, &stream));
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
    });
    address
}

impl State {
    fn is_dead(&self) -> bool {
        self.dead_until
            .lock()
            .unwrap()
            .is_some_and(|until| Instant::now() < until)
    }

    /// Answers the requests of a connection until one of both sides ends it.
    fn serve(&self, role: Role, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let deaths = self.deaths.load(Ordering::SeqCst);
        while let Some(seen) = self.read(role, &mut reader) {
            let gone =
                self.ended.load(Ordering::SeqCst) || self.deaths.load(Ordering::SeqCst) != deaths;
            if gone || self.answer(stream, &seen).is_err() {
                return;
            }
        }
    }

    fn read(&self, role: Role, reader: &mut BufReader<&TcpStream>) -> Option<Seen> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut words = lines.first()?.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let headers = lines[1..].iter().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        let headers = headers.collect();
        let seen = Seen {
            role,
            method,
            path,
            headers,
        };
        self.seen.lock().unwrap().push(seen.clone());
        Some(seen)
    }

    /// Answers one request; an error ends the connection.
    fn answer(&self, stream: &TcpStream, seen: &Seen) -> io::Result<()> {
        let fault = self.script.lock().unwrap()(seen).unwrap_or_default();
        if fault.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut answer = self.proper(seen, fault.ignores_range);
        if let Some(status) = fault.status {
            answer = Answer::bare(status);
        }
        for (name, value) in &fault.headers {
            answer
                .headers
                .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            if !value.is_empty() {
                answer.headers.push((name, value.clone()));
            }
        }
        let outcome = self.send(stream, seen, &answer, &fault);
        if let Some(pause) = fault.dead_for {
            *self.dead_until.lock().unwrap() = Some(Instant::now() + pause);
            self.deaths.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        outcome
    }

    fn send(
        &self,
        mut stream: &TcpStream,
        seen: &Seen,
        answer: &Answer,
        fault: &Fault,
    ) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} Said\r\n", answer.status);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        if seen.method == "HEAD" {
            return Ok(());
        }
        let length = answer.content.length();
        let end = fault.cut.map_or(length, |cut| cut.min(length));
        let mut buffer = vec![0; 1 << 16];
        let mut position = 0;
        while position < end {
            if let Some(pause) = fault.slow {
                thread::sleep(pause);
            }
            let most = buffer.len().min((end - position) as usize);
            answer.content.read(position, &mut buffer[..most])?;
            stream.write_all(&buffer[..most])?;
            position += most as u64;
            self.sent.fetch_add(most as u64, Ordering::SeqCst);
        }
        match end < length {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// What a hub or a storage in order would say.
    fn proper(&self, seen: &Seen, ignores_range: bool) -> Answer {
        let name = seen.file();
        if seen.role == Role::Hub {
            if let Some(token) = &*self.token.lock().unwrap()
                && seen.headers.get("authorization") != Some(&format!("Bearer {token}"))
            {
                return Answer::error(401, "GatedRepo");
            }
            let path = seen.path.split('?').next().unwrap_or_default();
            if let Some(rest) = path.strip_prefix("/org/old-name/") {
                return Answer::bare(307).with("Location", format!("/{REPOSITORY}/{rest}"));
            }
            let Some(rest) = path.strip_prefix(&format!("/{REPOSITORY}/resolve/")) else {
                return Answer::error(404, "RepoNotFound");
            };
            let revision = rest.split('/').next().unwrap_or_default();
            if ![COMMIT, "main", "refs%2Fpr%2F1"].contains(&revision) {
                return Answer::error(404, "RevisionNotFound");
            }
        }
        let path = self.directory.join(name);
        if !path.is_file() {
            return Answer::error(404, "EntryNotFound").with("X-Repo-Commit", COMMIT);
        }
        if seen.role == Role::Hub && name.ends_with(".safetensors") {
            let location = format!(
                "{}/{name}?Signature={SIGNATURE}",
                self.storage.lock().unwrap()
            );
            return Answer::bare(302)
                .with("Location", location)
                .with("X-Repo-Commit", COMMIT)
                .with("X-Linked-Etag", format!("\"{}\"", "ab".repeat(32)));
        }
        Answer::file(&path, seen, ignores_range)
    }
}

/// An answer before it is spoiled.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    Part { file: File, begin: u64, length: u64 },
}

impl Content {
    fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Part { length, .. } => *length,
        }
    }

    fn read(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => {
                buffer.copy_from_slice(&bytes[position as usize..][..buffer.len()]);
                Ok(())
            }
            Self::Part { file, begin, .. } => file.read_exact_at(buffer, begin + position),
        }
    }
}

impl Answer {
    fn bare(status: u16) -> Self {
        Self {
            status,
            headers: vec![("Content-Length", "0".to_owned())],
            content: Content::Bytes(Vec::new()),
        }
    }

    fn error(status: u16, code: &str) -> Self {
        Self::bare(status).with("X-Error-Code", code)
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn file(path: &Path, seen: &Seen, ignores_range: bool) -> Self {
        let size = fs::metadata(path).unwrap().len();
        let file = File::open(path).unwrap();
        let range = seen.range().filter(|_| !ignores_range);
        let answer = match range {
            Some((first, _)) if first >= size => Self::bare(416),
            Some((first, last)) => {
                let end = size.min(last + 1);
                let content = Content::Part {
                    file,
                    begin: first,
                    length: end - first,
                };
                let said = format!("bytes {first}-{}/{size}", end - 1);
                Self::of(206, content).with("Content-Range", said)
            }
            None => Self::of(
                200,
                Content::Part {
                    file,
                    begin: 0,
                    length: size,
                },
            ),
        };
        match seen.role {
            Role::Hub => answer
                .with("X-Repo-Commit", COMMIT)
                .with("ETag", format!("\"{}\"", git_hash(path))),
            Role::Storage => answer.with("ETag", "\"of-the-storage\""),
        }
    }

    fn of(status: u16, content: Content) -> Self {
        let headers = vec![("Content-Length", content.length().to_string())];
        Self {
            status,
            headers,
            content,
        }
    }
}

/// What git, and so the hub, calls the content of a small file.
fn git_hash(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    let hash = Sha1::new_with_prefix(format!("blob {}\0", bytes.len()))
        .chain_update(bytes)
        .finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
