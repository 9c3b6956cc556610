//! Exit codes: what a script can rely on. Never 101, which would be a panic.

/// All good, or whoever read the output stopped reading.
pub const GOOD: u8 = 0;
/// A gate, bound, certificate or verify check failed, or a variant is broken: NaN and infinities
/// never pass.
pub const CHECK_FAILED: u8 = 1;
/// Bad usage or bad input; no report was written.
pub const BAD_INPUT: u8 = 2;
/// A CUDA device was asked for, and it, its driver or its compiler is missing or does not work.
pub const NO_DEVICE: u8 = 3;
/// Interrupted (Ctrl-C, or asked to terminate); the finished cases are kept.
pub const INTERRUPTED: u8 = 130;
