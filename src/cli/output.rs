//! Results go to stdout; a reader that has seen enough and closed the pipe is not an error.

use std::io::{self, Write};

/// Writes `text` to stdout.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
