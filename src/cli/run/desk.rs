//! Where a run's finished cases are kept: in memory for the report, and beside it until there is one.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::mpsc::Receiver,
    time::Instant,
};

use anyhow::{Context, bail};

use super::{args::RunArgs, head, interrupt::Interrupt, progress, settings::Settings};
use crate::{
    backend::{Backend, hardware::Hardware},
    job::{
        assemble,
        dump::Written,
        journal::{Journal, Opened, Whose},
        split,
    },
    measure::value::Value,
    report::{
        Found, Report,
        part::{CaseName, Finished, Head, Share},
    },
    suite::{SuiteError, ledger::Ledger},
    verdict::VerdictLimits,
};

/// The ledger of a run.
pub struct Desk<'a> {
    bar: progress::Bar,
    interrupt: Interrupt,
    settings: &'a Settings,
    backend: &'a dyn Backend,
    head: Head,
    share: Share,
    /// The suite that runs.
    suite: &'static str,
    /// Cases that are to be run yet.
    left: BTreeSet<CaseName>,
    finished: Vec<Finished>,
    /// Whether it goes on with what another process has begun.
    is_resumed: bool,
    journal: Option<Journal>,
    /// Tensors that were written since the last case.
    dumped: Receiver<Written>,
    /// When the last case was finished.
    last: Instant,
}

impl<'a> Desk<'a> {
    /// Of a run that begins, or goes on with what `--out` has.
    ///
    /// # Errors
    /// If that is of another run, if its tensors are gone, or if cases cannot be kept there.
    pub fn open(
        args: &RunArgs,
        settings: &'a Settings,
        head: Head,
        backend: &'a dyn Backend,
        dumped: Receiver<Written>,
    ) -> anyhow::Result<Self> {
        // Before there is anything to keep.
        let interrupt = Interrupt::listen()?;
        let share = args.part.unwrap_or(Share::WHOLE);
        let whose = Whose {
            share,
            // The same folder, wherever the command is given.
            dump: args.dump.as_ref().map(|dir| {
                let whole = std::path::absolute(dir);
                whole.as_ref().unwrap_or(dir).display().to_string()
            }),
            head,
        };
        let open = |folder: &PathBuf| Journal::open(folder, &whose, args.resume);
        let opened = args
            .output
            .out
            .as_ref()
            .map(open)
            .transpose()
            .context("--out")?;
        if let (Some(opened), Some(dir)) = (&opened, &args.dump) {
            require_tensors(dir, opened)?;
        }
        let (journal, finished, is_resumed) = match opened {
            None => (None, Vec::new(), false),
            Some(opened) => (Some(opened.journal), opened.finished, opened.is_resumed),
        };
        let head = whose.head;
        let mut left: BTreeSet<CaseName> =
            split::share_of(&head.cases, share).into_iter().collect();
        for one in &finished {
            left.remove(&one.case);
        }
        Ok(Self {
            bar: progress::Bar::new(args.quiet),
            interrupt,
            settings,
            backend,
            head,
            share,
            suite: "",
            left,
            is_resumed,
            finished,
            journal,
            dumped,
            last: Instant::now(),
        })
    }

    /// A suite begins, whose cases are `units`.
    pub fn begin(&mut self, suite: &'static str, units: &'static str) {
        self.suite = suite;
        self.bar.begin(suite, units);
    }

    fn case(&self, place: &str) -> CaseName {
        CaseName {
            suite: self.suite.to_owned(),
            place: place.to_owned(),
        }
    }

    /// Whether the run goes on with what another process has begun.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Where finished cases stay, if there are any.
    pub fn kept(&self) -> Option<&Path> {
        self.journal.as_ref().and_then(Journal::kept)
    }

    /// Cases that are finished, and those that are to be run yet.
    pub fn counts(&self) -> [usize; 2] {
        [self.finished.len(), self.left.len()]
    }

    /// The report of what is finished: of the whole run if that is all of it.
    ///
    /// # Errors
    /// If two rows have one key.
    pub fn report(&self, limits: &VerdictLimits) -> anyhow::Result<Report> {
        let (run, mut finished) = (self.head.clone(), self.finished.clone());
        assemble::sort(&run, &mut finished);
        let seconds = finished.iter().map(|one| one.seconds.0).sum();
        let host = Some(head::host(self.settings, seconds));
        if self.share == Share::WHOLE && self.left.is_empty() {
            return Ok(assemble::whole(run, finished, limits, host)?);
        }
        let is_missing = |case: &CaseName| self.left.contains(case);
        let cases = run.cases.iter();
        let missing = cases.filter(|case| is_missing(case)).cloned().collect();
        Ok(assemble::part(run, self.share, finished, missing, host)?)
    }

    /// What is kept beside the report is of no more use: the report is written and has everything, or what went wrong
    /// would go wrong again.
    pub fn discard(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }
}

/// What finished cases have written is not written again, so it has to be there.
fn require_tensors(dir: &Path, opened: &Opened) -> anyhow::Result<()> {
    for (file, &bytes) in &opened.dumped {
        let found = match fs::metadata(dir.join(file)) {
            Ok(there) if there.is_file() && there.len() == bytes => continue,
            Ok(there) => format!("has {} bytes and had {bytes}", there.len()),
            Err(error) => format!("cannot be looked at ({error})"),
        };
        let journal = opened.journal.kept().unwrap_or(dir).display();
        bail!(
            "--dump {}: {file}, which a finished case has written, {found}; put it back, or remove {journal} to measure \
             all again",
            dir.display()
        );
    }
    Ok(())
}

impl Ledger for Desk<'_> {
    fn wants(&self, place: &str) -> bool {
        self.left.contains(&self.case(place))
    }

    fn step(&mut self, done: usize, total: usize, place: &str) -> Result<(), SuiteError> {
        self.bar.tell(done, total, place);
        match self.interrupt.is_asked() {
            true => Err(SuiteError::Interrupted),
            false => Ok(()),
        }
    }

    fn keep(&mut self, place: &str, mut found: Found) -> Result<(), SuiteError> {
        // It may be why a product does what it was found to do.
        if let Some(variable) = head::library_override() {
            for words in found.probed.values_mut() {
                words.push_str(&format!(", {variable}"));
            }
        }
        let macros = self.backend.hardware().map(Hardware::macros);
        let named = |(file, macros): (&str, _)| (file.to_owned(), macros);
        let finished = Finished {
            case: self.case(place),
            seconds: Value(self.last.elapsed().as_secs_f64()),
            rows: found.records.len() as u64,
            compiled: macros.unwrap_or_default().into_iter().map(named).collect(),
            found,
        };
        self.last = Instant::now();
        if !self.left.remove(&finished.case) {
            let case = &finished.case;
            return Err(SuiteError::Keep(format!("{case} is no case of this run")));
        }
        if let Some(journal) = &mut self.journal {
            let dumped = self.dumped.try_iter();
            let dumped = dumped.map(|one| (one.file, one.bytes)).collect();
            let kept = journal.add(&finished, &dumped);
            kept.map_err(|error| SuiteError::Keep(format!("--out: {error}")))?;
        }
        self.finished.push(finished);
        Ok(())
    }
}
