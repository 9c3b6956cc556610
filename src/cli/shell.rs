//! `ulpdrift completions` and `ulpdrift man`: what the shell knows of the commands, made of the same definitions.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, exit, print};
use crate::files::write::{Content, OutputDir};

/// Print a shell's completions.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift completions bash > ~/.local/share/bash-completion/completions/ulpdrift
  ulpdrift completions zsh > ~/.zfunc/_ulpdrift
  ulpdrift completions fish > ~/.config/fish/completions/ulpdrift.fish")]
pub struct CompletionsArgs {
    /// Which shell.
    pub shell: Shell,
}

/// Print the manual page, or write a page per command.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift man | man -l -
  ulpdrift man --out ~/.local/share/man/man1")]
pub struct ManArgs {
    /// A folder for ulpdrift.1 and a page per command.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints the completions.
///
/// # Errors
/// The terminal cannot be written.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ulpdrift", &mut text);
    print::bytes(&text)?;
    Ok(ExitCode::from(exit::GOOD))
}

/// A page, as a file.
struct Page {
    name: String,
    text: Vec<u8>,
}

impl Page {
    fn of(command: &Command) -> std::io::Result<Self> {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let name = format!("{name}.1");
        let mut text = Vec::new();
        Man::new(command.clone()).render(&mut text)?;
        Ok(Self { name, text })
    }
}

impl Content for Page {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        out.write_all(&self.text)
    }
}

/// Prints or writes the pages.
///
/// # Errors
/// The folder or the terminal cannot be written.
pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut whole = Cli::command();
    whole.build();
    let own = |command: &&Command| command.get_name() != "help";
    let commands = [&whole]
        .into_iter()
        .chain(whole.get_subcommands().filter(own));
    let pages = commands.map(Page::of).collect::<Result<Vec<_>, _>>()?;
    match &args.out {
        None => print::bytes(&pages[0].text)?,
        Some(dir) => {
            let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
            let mut dir = OutputDir::prepare(dir, &names).context("--out")?;
            for path in dir.write_all(&pages).context("--out")? {
                print::note(false, &format!("wrote {}", path.display()));
            }
        }
    }
    Ok(ExitCode::from(exit::GOOD))
}
