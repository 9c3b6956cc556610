//! A table of broken and odd checkpoints, made here: what `run` and `inspect` exit with, and what `run` says.
//!
//! `run` refuses what it cannot trust; `inspect` shows what is left of it. Neither panics, hangs, nor prints a control
//! character.

mod config;
mod files;
mod header;
mod index;
mod tensors;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use assert_cmd::Command;

use crate::support::Directory;

/// One checkpoint.
pub struct Case {
    name: &'static str,
    /// Makes it in an empty directory; returns how it is named on the command line.
    make: Box<dyn Fn(&Directory) -> String>,
    run: Expected,
    /// The exit code of `inspect`, which reads headers and what it lists.
    inspect: i32,
}

/// What `run` does.
pub enum Expected {
    /// Exit code 0.
    Good,
    /// Exit code 0, and this in what it prints.
    Noted(&'static str),
    /// Exit code 2, and a sentence with these phrases.
    Refused(Vec<String>),
}

/// A case that `run` refuses and of which nothing is left to inspect.
pub fn refused(
    name: &'static str,
    phrases: &[&str],
    make: impl Fn(&Directory) -> String + 'static,
) -> Case {
    let phrases = phrases.iter().map(|phrase| (*phrase).to_owned());
    Case {
        name,
        make: Box::new(make),
        run: Expected::Refused(phrases.collect()),
        inspect: 2,
    }
}

/// A case that is odd and harms nobody.
pub fn good(name: &'static str, make: impl Fn(&Directory) -> String + 'static) -> Case {
    Case {
        name,
        make: Box::new(make),
        run: Expected::Good,
        inspect: 0,
    }
}

impl Case {
    /// `inspect` shows what is left.
    pub fn but_shown(mut self) -> Self {
        self.inspect = 0;
        self
    }

    /// `run` remarks on it.
    pub fn noting(mut self, note: &'static str) -> Self {
        self.run = Expected::Noted(note);
        self
    }

    fn check(&self) {
        let directory = Directory::new();
        let spec = (self.make)(&directory);
        let run = [
            "run",
            &spec,
            "--suite",
            "mix",
            "--tokens",
            "1",
            "--variants",
            "fp32",
        ];
        let (code, stdout, stderr) = execute(&directory, &run);
        let what = format!(
            "{}: code {code:?}, stdout:\n{stdout}\nstderr:\n{stderr}",
            self.name
        );
        match &self.run {
            Expected::Good => assert_eq!(code, Some(0), "{what}"),
            Expected::Noted(note) => {
                assert_eq!(code, Some(0), "{what}");
                let said = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(said.contains(note), "no {note:?}: {what}");
            }
            Expected::Refused(phrases) => {
                assert_eq!(code, Some(2), "{what}");
                assert!(stdout.is_empty(), "{what}");
                assert_one_sentence(&stderr, phrases, &what);
            }
        }
        let (code, stdout, stderr) = execute(&directory, &["inspect", &spec]);
        let what = format!("inspect {}: {stdout}\n{stderr}", self.name);
        assert_eq!(code, Some(self.inspect), "{what}");
        if self.inspect == 2 {
            assert!(stdout.is_empty(), "{what}");
            assert_one_sentence(&stderr, &[], &what);
        }
    }
}

#[track_caller]
fn assert_one_sentence(stderr: &str, phrases: &[String], what: &str) {
    let sentence = stderr.strip_suffix('\n').unwrap_or(stderr);
    assert!(sentence.starts_with("error: "), "{what}");
    assert!(!sentence.chars().any(char::is_control), "{what}");
    for phrase in phrases {
        assert!(sentence.contains(phrase), "no {phrase:?}: {what}");
    }
}

/// Exit code and what was printed; a command that takes a minute hangs.
fn execute(directory: &Directory, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ulpdrift"))
        .args(arguments)
        .current_dir(directory.path(""))
        .env("HOME", directory.path("home"))
        .env_remove("HF_HOME")
        .env_remove("HF_HUB_CACHE")
        .env_remove("HUGGINGFACE_HUB_CACHE")
        .env_remove("XDG_CACHE_HOME")
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Every case of one file of the table.
#[track_caller]
pub fn check(cases: Vec<Case>, least: usize) {
    assert!(cases.len() >= least, "{} cases", cases.len());
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "a name comes twice");
    // All of them, so that one run shows everything that is wrong.
    let fails = |case: &&Case| catch_unwind(AssertUnwindSafe(|| case.check())).is_err();
    let failed: Vec<&str> = cases.iter().filter(fails).map(|case| case.name).collect();
    assert!(failed.is_empty(), "failed: {failed:?}");
}
