//! A folder in which the binary runs, and what may be said about the outcome.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use assert_cmd::Command;
use serde_json::Value;

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_ulpdrift");

/// Variables that change what the binary says or how fast it is.
const CLEARED: [&str; 9] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "CUDA_VISIBLE_DEVICES",
    "NO_COLOR",
    "NVIDIA_TF32_OVERRIDE",
    "RAYON_NUM_THREADS",
    "RUST_BACKTRACE",
    "ULPDRIFT_CACHE",
    "ULPDRIFT_SIMD",
];

/// A fresh folder that is the working directory of every command.
pub struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file there.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.put(name, content);
        self
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Puts an empty folder there.
    pub fn folder(self, name: &str) -> Self {
        fs::create_dir_all(self.path(name)).unwrap();
        self
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// Runs a command line, its words quoted as in a shell.
    pub fn ulpdrift(&self, line: &str) -> Outcome<'_> {
        self.ulpdrift_with(line, &[])
    }

    /// Runs a command line with environment variables.
    pub fn ulpdrift_with(&self, line: &str, env: &[(&str, &str)]) -> Outcome<'_> {
        let mut command = Command::new(BINARY);
        command.args(shlex::split(line).unwrap());
        self.finish(line, command, env)
    }

    /// Runs a line of shell with the binary on the PATH.
    pub fn shell(&self, line: &str) -> Outcome<'_> {
        let mut command = Command::new("bash");
        command.args(["-c", line]);
        let folder = Path::new(BINARY).parent().unwrap().display();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{folder}:{path}"));
        self.finish(line, command, &[])
    }

    fn finish(&self, line: &str, mut command: Command, env: &[(&str, &str)]) -> Outcome<'_> {
        let before = self.files();
        command.current_dir(self.dir.path());
        for name in CLEARED {
            command.env_remove(name);
        }
        command.envs(env.iter().copied());
        let output = command.timeout(Duration::from_secs(300)).output().unwrap();
        let outcome = Outcome {
            scene: self,
            line: line.to_owned(),
            before,
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        outcome.never_panics();
        outcome
    }

    /// Every file and folder by its path within the scene, with its content.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(self.dir.path(), "", &mut files);
        files
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{name}/"), files);
            files.insert(name + "/", Vec::new());
        } else {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

/// What a command did.
pub struct Outcome<'a> {
    scene: &'a Scene,
    line: String,
    before: BTreeMap<String, Vec<u8>>,
    code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome<'_> {
    fn never_panics(&self) {
        assert_ne!(self.code, Some(101), "{self}");
        assert!(!self.stderr.contains("panicked"), "{self}");
        let left = self.scene.files().into_keys();
        let left: Vec<String> = left.filter(|name| name.contains(".ulpdrift-")).collect();
        assert!(left.is_empty(), "left behind: {left:?} by {self}");
    }

    #[track_caller]
    pub fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    #[track_caller]
    pub fn prints(self, part: &str) -> Self {
        assert!(self.stdout.contains(part), "no {part:?} in {self}");
        self
    }

    #[track_caller]
    pub fn prints_nothing(self) -> Self {
        assert_eq!(self.stdout, "", "{self}");
        self
    }

    #[track_caller]
    pub fn remarks(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "no {part:?} in {self}");
        self
    }

    #[track_caller]
    pub fn remarks_nothing(self) -> Self {
        assert_eq!(self.stderr, "", "{self}");
        self
    }

    /// No line is wider than a terminal of 80 columns, but for the last one where it holds a command to be copied.
    #[track_caller]
    pub fn fits_80_columns(self) -> Self {
        for line in self.stdout.lines() {
            if line.starts_with("Next: look at ") {
                continue;
            }
            assert!(line.chars().count() <= 80, "{line:?} in {self}");
        }
        self
    }

    /// Exit code 2, nothing on stdout, one sentence on stderr that holds every part, and the folder
    /// is as it was.
    #[track_caller]
    pub fn must_be_refused_saying(self, parts: &[&str]) {
        let outcome = self.refused_saying(parts);
        assert!(
            outcome.scene.files() == outcome.before,
            "the files changed: {outcome}"
        );
    }

    /// The same, but that finished cases are kept in a folder of the scene.
    #[track_caller]
    pub fn must_leave_only_its_journal(self, folder: &str, parts: &[&str]) {
        let outcome = self.refused_saying(parts);
        let (journal, mut files) = (format!("{folder}/report.journal"), outcome.scene.files());
        assert!(files.remove(&journal).is_some(), "no journal: {outcome}");
        assert!(
            outcome.stderr.contains(&format!("kept in {journal}")),
            "{outcome}"
        );
        files.retain(|name, _| !name.ends_with('/'));
        let mut before = outcome.before.clone();
        before.remove(&journal);
        before.retain(|name, _| !name.ends_with('/'));
        assert!(files == before, "the files changed: {outcome}");
    }

    #[track_caller]
    fn refused_saying(self, parts: &[&str]) -> Self {
        let outcome = self.exits_with(2).prints_nothing();
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let [sentence] = lines[..] else {
            panic!("not one line on stderr: {outcome}");
        };
        let message = sentence.strip_prefix("error: ");
        let message = message.unwrap_or_else(|| panic!("no error: {outcome}"));
        assert!(!message.chars().any(char::is_control), "{outcome}");
        assert!(!message.ends_with('.'), "{outcome}");
        for part in parts {
            assert!(message.contains(part), "no {part:?} in {message:?}");
        }
        outcome
    }
}

impl std::fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}`: code {:?}, stdout:\n{}\nstderr:\n{}",
            self.line, self.code, self.stdout, self.stderr
        )
    }
}
