//! The parts of a run, joined.

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;

use super::{
    assemble::{self, AssembleError},
    identity::{self, Difference},
};
use crate::{
    checkpoint::Digests,
    report::{
        Host, Report,
        part::{CaseName, Finished, Head, Part, Share, some},
    },
    verdict::{self, VerdictLimits},
};

/// A report and where it came from.
pub struct Source {
    /// As the user named it.
    pub name: String,
    /// What it holds.
    pub report: Report,
}

/// Parts that an error names.
const MOST_NAMED: usize = 8;

/// Why reports cannot be joined.
#[derive(Debug, Error)]
pub enum JoinError {
    /// A report of a whole run.
    #[error("{name} is the report of a whole run; name the reports of `ulpdrift run --part i/n`")]
    NoPart {
        /// The report.
        name: String,
    },
    /// A part whose rows are not those of its cases.
    #[error("{name} has {found} rows, and its cases have {expected}; run that part again")]
    Rows {
        /// The report.
        name: String,
        /// Rows there.
        found: u64,
        /// Rows of its cases.
        expected: u64,
    },
    /// A part that there cannot be.
    #[error("{name} says that it is part {share}; run that part again")]
    NoShare {
        /// The report.
        name: String,
        /// What it says.
        share: Share,
    },
    /// Parts of different runs.
    #[error(
        "{name} is a part of another run than {first}: {difference} ({first} being here); name parts of one run"
    )]
    OtherRun {
        /// The report.
        name: String,
        /// The one that it is compared with.
        first: String,
        /// What is different.
        difference: Difference,
    },
    /// Parts of runs that were split otherwise.
    #[error("{name} is part {share}, and {first} is part {first_share}; name parts of one run")]
    OtherSplit {
        /// The report.
        name: String,
        /// Which part it is.
        share: Share,
        /// The one that it is compared with.
        first: String,
        /// Which part that is.
        first_share: Share,
    },
    /// A case that two reports have.
    #[error("{name} has {case}, which {other} has as well; name every part once")]
    Overlap {
        /// The report.
        name: String,
        /// The case.
        case: CaseName,
        /// The other report.
        other: String,
    },
    /// A case that is none of the run's.
    #[error("{name} has {case}, which is no case of its run; run that part again")]
    NoCase {
        /// The report.
        name: String,
        /// The case.
        case: CaseName,
    },
    /// A tensor that two parts have read differently.
    #[error(
        "{name} was measured on another checkpoint than the parts before it: {tensor} differs; run the parts on one"
    )]
    OtherWeights {
        /// The report.
        name: String,
        /// The tensor.
        tensor: String,
    },
    /// Not every case is there.
    #[error("{missing}")]
    Missing {
        /// What is missing, and what to do.
        missing: String,
    },
    /// What all parts found makes no report.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

/// The report of the whole run: the bytes that a run in one go would have had, but for the host.
///
/// # Errors
/// If the reports are not all the parts of one run, each once and finished.
pub fn join(mut sources: Vec<Source>, limits: &VerdictLimits) -> Result<Report, JoinError> {
    // Part 1 of 1 is all of it.
    if let [Source { report, .. }] = sources.as_slice()
        && report.part.is_none()
    {
        let report = sources.remove(0).report;
        // It has reached its verdicts, by the usual limits.
        return Ok(match *limits == VerdictLimits::default() {
            true => report,
            false => verdict::judged_again(report, limits),
        });
    }
    let hosts = sources.iter().map(|source| source.report.host.clone());
    let host = together(hosts.collect());
    let mut parts = Vec::new();
    for source in sources {
        parts.push(Opened::of(source)?);
    }
    // Whatever order they are named in, what is recorded is of the first part.
    parts.sort_by_key(|own: &Opened| own.part.share.number);
    let Some(first) = parts.first() else {
        return Err(JoinError::Missing {
            missing: "no report is named; name the reports of every part".to_owned(),
        });
    };
    let head = first.part.head.clone();
    check(&parts, first)?;
    require_all(&parts, &head, first.part.share)?;
    let mut finished: Vec<Finished> = Vec::new();
    for part in parts {
        finished.extend(part.part.finished);
    }
    assemble::sort(&head, &mut finished);
    Ok(assemble::whole(head, finished, limits, host)?)
}

/// A part whose cases have their rows.
struct Opened {
    name: String,
    part: Part,
    /// Of all the weights that it has read.
    digests: Digests,
}

impl Opened {
    fn of(source: Source) -> Result<Self, JoinError> {
        let Source { name, report } = source;
        let Some(mut part) = report.part else {
            return Err(JoinError::NoPart { name });
        };
        if !part.share.is_valid() {
            let share = part.share;
            return Err(JoinError::NoShare { name, share });
        }
        let rows = part.finished.iter().map(|one| one.rows);
        let expected = rows.fold(0, u64::saturating_add);
        let found = report.records.len() as u64;
        if found != expected {
            return Err(JoinError::Rows {
                name,
                found,
                expected,
            });
        }
        let mut rows = report.records.into_vec().into_iter();
        let mut digests = Digests::default();
        for one in &mut part.finished {
            digests.extend(&one.found.read.digests);
            // Their sum is the number of rows, so that it fits.
            one.found.records = rows.by_ref().take(one.rows as usize).collect();
        }
        Ok(Self {
            name,
            part,
            digests,
        })
    }
}

/// Every part has to be of the run of the first, with cases of its own and the same weights.
fn check(parts: &[Opened], first: &Opened) -> Result<(), JoinError> {
    for own in parts {
        if let Some(difference) = identity::difference(&first.part.head, &own.part.head) {
            return Err(JoinError::OtherRun {
                name: own.name.clone(),
                first: first.name.clone(),
                difference,
            });
        }
        if own.part.share.of != first.part.share.of {
            return Err(JoinError::OtherSplit {
                name: own.name.clone(),
                share: own.part.share,
                first: first.name.clone(),
                first_share: first.part.share,
            });
        }
        let known: BTreeSet<&CaseName> = own.part.head.cases.iter().collect();
        let stray = own
            .part
            .finished
            .iter()
            .find(|one| !known.contains(&one.case));
        if let Some(stray) = stray {
            return Err(JoinError::NoCase {
                name: own.name.clone(),
                case: stray.case.clone(),
            });
        }
    }
    check_together(parts)
}

/// No case of two reports, and no tensor that two of them have read differently.
fn check_together(parts: &[Opened]) -> Result<(), JoinError> {
    let mut cases: HashMap<&CaseName, &str> = HashMap::new();
    let mut digests = Digests::default();
    for own in parts {
        for one in &own.part.finished {
            if let Some(other) = cases.insert(&one.case, &own.name) {
                return Err(JoinError::Overlap {
                    name: own.name.clone(),
                    case: one.case.clone(),
                    other: other.to_owned(),
                });
            }
        }
        if let Some(tensor) = own.digests.conflict(&digests) {
            return Err(JoinError::OtherWeights {
                name: own.name.clone(),
                tensor: tensor.to_owned(),
            });
        }
        digests.extend(&own.digests);
    }
    Ok(())
}

/// Every case of the run has to be there.
fn require_all(parts: &[Opened], head: &Head, share: Share) -> Result<(), JoinError> {
    let finished = parts.iter().flat_map(|own| &own.part.finished);
    let there: BTreeSet<&CaseName> = finished.map(|one| &one.case).collect();
    let is_missing = |case: &&CaseName| !there.contains(case);
    let missing: Vec<CaseName> = head.cases.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let here: BTreeSet<u64> = parts.iter().map(|own| own.part.share.number).collect();
    // The number of parts is the writer's: nobody counts to it, and a few are named.
    let mut numbers = (1..=share.of).filter(|number| !here.contains(number));
    let mut absent: Vec<String> = numbers
        .by_ref()
        .take(MOST_NAMED)
        .map(|number| format!("{number}/{}", share.of))
        .collect();
    if numbers.next().is_some() {
        absent.push("…".to_owned());
    }
    let halves: Vec<String> = parts
        .iter()
        .filter(|own| !own.part.missing.is_empty())
        .map(|own| {
            format!(
                "{} was interrupted and can be taken up with --resume",
                own.name
            )
        })
        .collect();
    let mut why = match absent.as_slice() {
        [] => Vec::new(),
        [one] => vec![format!("part {one} is not among the reports")],
        several => vec![format!(
            "parts {} are not among the reports",
            several.join(", ")
        )],
    };
    why.extend(halves);
    if why.is_empty() {
        why.push("no report has them as missing either; run the parts again".to_owned());
    }
    Err(JoinError::Missing {
        missing: format!(
            "{} of {} cases are missing ({}): {}",
            missing.len(),
            head.cases.len(),
            some(&missing),
            why.join(", and ")
        ),
    })
}

/// The machine of all parts and their time together; nothing where they ran on different ones.
fn together(hosts: Vec<Option<Host>>) -> Option<Host> {
    let hosts: Vec<Host> = hosts.into_iter().collect::<Option<_>>()?;
    let mut hosts = hosts.into_iter();
    let mut all = hosts.next()?;
    for host in hosts {
        let is_same =
            (&host.platform, host.threads, &host.simd) == (&all.platform, all.threads, &all.simd);
        if !is_same {
            return None;
        }
        if let (Some(seconds), Some(more)) = (&mut all.seconds, host.seconds) {
            seconds.0 += more.0;
        }
    }
    Some(all)
}
