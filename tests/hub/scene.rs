//! A repository on a hub of our own, and those who fetch from it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
    time::Duration,
};

use ulpdrift::{
    checkpoint::SyntheticModel,
    hub::{self, BackOff, Fetched, HubError, Request},
};

use crate::{
    server::{Hub, REPOSITORY},
    source,
};

/// Shards of the tiny repository.
pub const SHARDS: usize = 5;

/// The tiny checkpoint, plain and as it lies on the hub; written once.
pub fn tiny() -> &'static Path {
    static WRITTEN: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = WRITTEN.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (plain, hub) = (directory.path().join("plain"), directory.path().join("hub"));
        source::write(&plain, &hub, SyntheticModel::Tiny, SHARDS);
        directory
    });
    directory.path()
}

/// A hub, and a folder to fetch to.
pub struct Scene {
    pub hub: Hub,
    pub directory: tempfile::TempDir,
}

impl Scene {
    /// A hub that has the tiny checkpoint.
    pub fn tiny() -> Self {
        Self::of(&tiny().join("hub"))
    }

    /// A hub that has the files of a folder.
    pub fn of(files: &Path) -> Self {
        Self {
            hub: Hub::new(files),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// A hub that has the tiny checkpoint with some files changed.
    pub fn changed(change: impl Fn(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("files");
        fs::create_dir(&files).unwrap();
        for entry in fs::read_dir(tiny().join("hub")).unwrap() {
            let from = entry.unwrap().path();
            let to = files.join(from.file_name().unwrap());
            // Shards are sparse, and links keep them so.
            fs::hard_link(&from, &to).unwrap();
        }
        change(&files);
        Self {
            hub: Hub::new(&files),
            directory,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn request(&self) -> Request {
        Request {
            repository: REPOSITORY.parse().unwrap(),
            selection: hub::Selection::default(),
            endpoint: self.hub.endpoint(),
            token: None,
            out: self.path("out"),
            jobs: 3,
            back_off: BackOff {
                first: Duration::from_millis(5),
                longest: Duration::from_millis(50),
                patience: Duration::from_millis(1500),
            },
        }
    }

    /// Fetches the usual tensors.
    pub fn fetch(&self) -> Result<Fetched, HubError> {
        self.fetch_with(&self.request())
    }

    pub fn fetch_with(&self, request: &Request) -> Result<Fetched, HubError> {
        hub::fetch(request, &|_| ())
    }

    /// Why it cannot be fetched; nothing may be left in its place.
    pub fn refused(&self) -> String {
        let error = self.fetch().expect_err("refused").to_string();
        assert!(!self.path("out").exists(), "nothing is published: {error}");
        assert!(!error.contains('\n'), "one sentence: {error}");
        error
    }

    /// The command, without what the environment would add.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ulpdrift"));
        let cleared = [
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "HF_TOKEN_PATH",
            "HF_ENDPOINT",
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "XDG_CACHE_HOME",
        ];
        for name in cleared {
            command.env_remove(name);
        }
        command
            .env("HF_HOME", self.path("nowhere"))
            .current_dir(self.directory.path());
        command
    }

    /// `fetch org/model --out out` with more arguments, from this hub.
    pub fn run_fetch(&self, more: &[&str]) -> Output {
        let mut command = self.command();
        command.args([
            "fetch",
            REPOSITORY,
            "--out",
            "out",
            "--endpoint",
            &self.hub.endpoint(),
        ]);
        command.args(more).output().unwrap()
    }

    /// The records of a run on a checkpoint.
    pub fn records(&self, checkpoint: &Path, more: &[&str]) -> serde_json::Value {
        let out = tempfile::tempdir().unwrap();
        let report = out.path().join("report");
        let output = self
            .command()
            .arg("run")
            .arg(checkpoint)
            .args(["--tokens", "4", "--variants", "fp32,bf16", "-q", "--out"])
            .arg(&report)
            .args(more)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let records = source::read_json(&report.join("report.json"))["records"].clone();
        assert!(
            records
                .as_array()
                .is_some_and(|records| !records.is_empty())
        );
        records
    }
}
