//! Writing to the terminal: stdout for results, stderr for everything else. Colour is kept where `--color` and the
//! environment (`NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`, `TERM`) let it be seen, and taken out elsewhere.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use anyhow::anyhow;

use crate::report::style;

/// What `--color` asks for, from here on.
pub fn choose_colour(asked: clap::ColorChoice) {
    let choice = match asked {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    };
    choice.write_global();
}

/// The text as a stream shows it.
fn seen_on(stream: &impl RawStream, text: &str) -> String {
    match AutoStream::choice(stream) {
        ColorChoice::Never => style::plain(text),
        _ => text.to_owned(),
    }
}

/// Writes a result to stdout. A reader that has seen enough and closed the pipe is no error, and
/// does not change the exit code.
pub fn result(text: &str) -> anyhow::Result<()> {
    bytes(as_shown(text).as_bytes())
}

/// A result as stdout shows it.
pub fn as_shown(text: &str) -> String {
    seen_on(&io::stdout(), text)
}

/// Writes a result as it is, which may not be text.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| {
            anyhow!("standard output cannot be written: {error}; redirect it elsewhere")
        }),
    }
}

/// Writes one line to stderr. Where even that is closed there is nobody left to tell.
pub fn error(sentence: &str) {
    let mut stderr = io::stderr().lock();
    let word = seen_on(&stderr, &style::failure("error:"));
    let _ = writeln!(stderr, "{word} {sentence}");
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
