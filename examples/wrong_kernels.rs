//! Runs every wrong kernel of `fixtures/kernels/wrong.toml` on a device: exit code 1 if one is not noticed, or if
//! ours in its place is not accepted. `scripts/device-check` runs it.
//!
//! usage: wrong_kernels ULPDRIFT [NVRTC]

#[path = "common/wrong_kernels.rs"]
mod wrong_kernels;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};

use wrong_kernels::Tool;

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let binary = arguments
        .next()
        .context("usage: wrong_kernels ULPDRIFT [NVRTC]")?;
    let nvrtc = arguments.next();
    let tool = Tool { binary, nvrtc };
    let mut missed = 0;
    for wrong in wrong_kernels::all()? {
        match wrong.check(&tool) {
            Ok(seen) => println!("noticed {seen}"),
            Err(reason) => {
                missed += 1;
                println!("FAILED {reason:#}");
            }
        }
    }
    println!("{missed} wrong kernels not noticed");
    Ok(ExitCode::from(u8::from(missed > 0)))
}
