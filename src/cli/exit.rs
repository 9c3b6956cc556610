//! Exit codes: what a script can rely on. Never 101, which would be a panic.

use std::io;

/// All good, or whoever read the output stopped reading.
pub const GOOD: u8 = 0;
/// A gate, bound, certificate or verify check failed.
pub const CHECK_FAILED: u8 = 1;
/// Bad usage or bad input; nothing was written.
pub const BAD_INPUT: u8 = 2;
/// The requested backend or device is not here.
pub const NO_DEVICE: u8 = 3;
/// Interrupted; finished cases are kept.
pub const INTERRUPTED: u8 = 130;

/// The code of an error that reached `main`: [`GOOD`] for a closed pipe, else [`BAD_INPUT`].
#[must_use]
pub fn of_error(error: &anyhow::Error) -> u8 {
    let is_closed_pipe = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_closed_pipe) {
        GOOD
    } else {
        BAD_INPUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_good_and_any_other_error_is_bad_input() {
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(of_error(&pipe.context("writing the table")), GOOD);
        let other = anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(of_error(&other), BAD_INPUT);
        assert_eq!(of_error(&anyhow::anyhow!("no such variant")), BAD_INPUT);
    }
}
