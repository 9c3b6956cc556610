//! Writing to the terminal: stdout for results, stderr for everything else.

use std::io::{self, Write};

use anyhow::Context;

/// Writes a result to stdout. A closed pipe keeps its own kind of error, which ends the program
/// quietly.
pub fn result(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes())
}

/// Writes a result that may not be text.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .context("standard output cannot be written; redirect it elsewhere")
}

/// Writes one line to stderr. Where even that is closed there is nobody left to tell.
pub fn error(sentence: &str) {
    let _ = writeln!(io::stderr().lock(), "error: {sentence}");
}

/// Writes one remark to stderr, unless quiet.
pub fn note(quiet: bool, sentence: &str) {
    if !quiet {
        let _ = writeln!(io::stderr().lock(), "{sentence}");
    }
}

/// Columns of the terminal, or 80 where there is none.
pub fn width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}
