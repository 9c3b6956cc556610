//! `ulpdrift fetch ORG/MODEL --out DIR`: the few tensors that a run needs, from a hub.

use std::{
    env,
    io::IsTerminal,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{exit, print};
use crate::hub::{
    self, BackOff, DEFAULT_ENDPOINT, Event, Fetched, Repository, Request, Selection, Token,
};

/// A shorter wait is not worth a line.
const WORTH_TELLING: Duration = Duration::from_secs(2);

/// Fetch the few tensors that a run needs out of a checkpoint on a hub.
///
/// Asks for ranges of its shards: hyper-connections, head, norms and indexers, half a gigabyte of the 160 of V4-Flash. The
/// result is a checkpoint with the same names, and provenance.json, which says where each byte is from. What is
/// complete is kept in DIR.part until all is there: after an interruption the same command goes on from it.
///
/// The token of HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH or HF_HOME/token goes to the endpoint's host and no other.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    ulpdrift fetch deepseek-ai/DeepSeek-V4-Flash --out flash\n  \
    ulpdrift fetch ORG/MODEL@REVISION --out model --with shared-experts\n  \
    ulpdrift fetch ORG/MODEL --out model --with embed-rows=0-15,1024\n  \
    ulpdrift run flash")]
pub struct FetchArgs {
    /// The repository, and a branch, tag or commit of it: ORG/MODEL or ORG/MODEL@REVISION.
    #[arg(value_name = "ORG/MODEL[@REVISION]")]
    pub repository: Repository,
    /// A directory that does not exist yet, or is empty.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// More than the default suites read: shared-experts, embed-rows=IDS (such as 0-15,1024); norms always come.
    #[arg(long, value_name = "LIST")]
    pub with: Option<Selection>,
    /// The address of a mirror; else that of HF_ENDPOINT, if it is set.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Requests at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// No progress and no remarks.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Fetches, and says what was fetched.
///
/// # Errors
///
/// If the hub, the connection or the disk does not allow it; DIR does not exist then.
pub fn run(args: &FetchArgs) -> anyhow::Result<ExitCode> {
    let of_environment = || {
        env::var("HF_ENDPOINT")
            .ok()
            .filter(|endpoint| !endpoint.is_empty())
    };
    let endpoint = args.endpoint.clone().or_else(of_environment);
    let request = Request {
        repository: args.repository.clone(),
        selection: args.with.clone().unwrap_or_default(),
        endpoint: endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
        token: Token::find()?,
        out: args.out.clone(),
        jobs: args.jobs.into(),
        back_off: BackOff::default(),
    };
    let progress = Progress::new(args.quiet);
    let fetched = hub::fetch(&request, &|event| progress.hear(event))?;
    drop(progress);
    print::result(&said(args, &fetched))?;
    Ok(ExitCode::from(exit::GOOD))
}

fn said(args: &FetchArgs, fetched: &Fetched) -> String {
    let checked = match fetched.checked.join(" and ") {
        none if none.is_empty() => "nothing".to_owned(),
        files => files,
    };
    format!(
        "{} at commit {}: {} tensors, {:.1} MB of {:.1} MB in {} shards, in {}\nChecked by the hub's checksums: \
         {checked}. Those of shards cover whole files, and so none of the tensors.\n",
        args.repository.name,
        fetched.commit,
        fetched.tensors,
        fetched.bytes as f64 / 1e6,
        fetched.of as f64 / 1e6,
        fetched.shards,
        args.out.display(),
    )
}

/// A bar of bytes, only where somebody is looking, and a line for each longer wait.
struct Progress {
    bar: ProgressBar,
    quiet: bool,
    /// Headers are not counted: how much is to come is not known before them.
    planned: AtomicBool,
}

impl Progress {
    fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) =
            ProgressStyle::with_template("{msg:>9} {bar:30} {bytes}/{total_bytes} {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_message("headers");
        Self {
            bar,
            quiet,
            planned: AtomicBool::new(false),
        }
    }

    fn hear(&self, event: Event<'_>) {
        match event {
            Event::Planned { bytes, there } => {
                self.planned.store(true, Ordering::Relaxed);
                self.bar.set_message("tensors");
                self.bar.set_length(bytes);
                self.bar.set_position(there);
                self.bar.reset_eta();
            }
            Event::Received(bytes) if self.planned.load(Ordering::Relaxed) => self.bar.inc(bytes),
            Event::Waiting { file, why, pause } if pause >= WORTH_TELLING => {
                let sentence = format!("{file}: {why}; trying again in {} s", pause.as_secs());
                self.bar.suspend(|| print::note(self.quiet, &sentence));
            }
            Event::Received(_) | Event::Waiting { .. } => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
