//! Parse, dispatch, exit code: nothing else.

use std::process::ExitCode;

use clap::Parser;
use ulpdrift::cli::{Cli, run};

fn main() -> ExitCode {
    run(&Cli::parse())
}
