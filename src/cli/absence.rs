//! What is said where a device is missing: what else would do, and which flags then name nothing.

use std::path::Path;

use super::{cuda_error, print, sentence};

/// The flags that name a device and its compiler.
pub struct DeviceFlags<'a> {
    /// `--device`.
    pub device: Option<usize>,
    /// `--nvrtc`.
    pub nvrtc: Option<&'a Path>,
}

impl DeviceFlags<'_> {
    /// Says, of those that are given, why they name nothing.
    pub fn are_not_used(&self, quiet: bool, why: &str) {
        let given = [
            self.device.map(|_| "--device"),
            self.nvrtc.map(|_| "--nvrtc"),
        ];
        let given: Vec<&str> = given.into_iter().flatten().collect();
        if !given.is_empty() {
            let given = given.join(", ");
            print::note(
                quiet,
                &format!("{given} not used: {why}; the emulator runs"),
            );
        }
    }
}

/// The error of a command that can emulate instead, which says so where it helps.
pub fn or_emulate(error: anyhow::Error) -> anyhow::Error {
    let cause = error.chain().find_map(cuda_error);
    if !cause.is_some_and(|cause| cause.emulator_would_do()) {
        return error;
    }
    let said = sentence(&error);
    error.context(format!("{said}, or use --backend emulate"))
}
