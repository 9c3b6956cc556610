//! The environment variables that change speed and never a number.

use std::{env, thread};

use anyhow::{Context, ensure};
use ulpdrift_reference::simd::Level;

use crate::report::printable;

/// Forces a vector level.
const SIMD_VARIABLE: &str = "ULPDRIFT_SIMD";
/// How many worker threads there are.
pub const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// The vector level: the fastest there is, or the one the environment forces.
///
/// # Errors
/// One that is unknown, or that this processor does not run.
pub fn level() -> anyhow::Result<Level> {
    let Some(forced) = env::var_os(SIMD_VARIABLE) else {
        return Ok(Level::detect());
    };
    let level: Level = forced
        .to_string_lossy()
        .parse()
        .map_err(anyhow::Error::msg)
        .context(SIMD_VARIABLE)?;
    ensure!(
        level.is_available(),
        "{SIMD_VARIABLE}={level}: this processor does not run it; unset the variable"
    );
    Ok(level)
}

/// Starts the worker threads, so that too many of them are an error and not a panic later.
///
/// # Errors
/// A number that is none or too large, or threads that the system does not give.
pub fn start_threads() -> anyhow::Result<()> {
    let asked = env::var_os(THREADS_VARIABLE).filter(|asked| !asked.is_empty());
    if let Some(asked) = asked {
        let number = asked.to_str().and_then(|text| text.parse::<usize>().ok());
        // A thousand threads on two processors take twenty times as long as two. What it cannot read, rayon takes for
        // one per processor.
        let here = thread::available_parallelism().map_or(1, usize::from);
        let most = (4 * here).max(256);
        ensure!(
            number.is_some_and(|number| number <= most),
            "{THREADS_VARIABLE}='{}': expected 1 to {most}, or 0 for one per processor; unset the variable",
            printable(&asked.to_string_lossy())
        );
    }
    rayon::ThreadPoolBuilder::new()
        .build_global()
        .with_context(|| {
            format!("the worker threads cannot be started; set {THREADS_VARIABLE} to fewer")
        })
}
