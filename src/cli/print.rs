//! Writing to the terminal: stdout for results, stderr for everything else.

use std::io::{self, Write};

use anyhow::anyhow;

use crate::report::printable;

/// Writes a result to stdout. A reader that has seen enough and closed the pipe is no error, and
/// does not change the exit code.
pub fn result(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes())
}

/// Writes a result that may not be text.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| {
            anyhow!("standard output cannot be written: {error}; redirect it elsewhere")
        }),
    }
}

/// Writes one line to stderr, whatever the names in it hold. Where even that is closed there is
/// nobody left to tell.
pub fn error(sentence: &str) {
    let _ = writeln!(io::stderr().lock(), "error: {}", printable(sentence));
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
