//! Two reports beside each other: what differs in what was run, and which rows changed, worst first.
//!
//! A view, no gate: nothing passes or fails here. [`text`] lays it out for a terminal's width.

mod change;
mod header;
#[cfg(test)]
mod tests;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Class, Kernel, Key, Record, Report, pairing::Rows};

pub use change::{Change, Rank, Weight};
pub use header::Fact;

/// Fields that a whole run has in common. One in which two reports differ is left out of the pairing, as long as it is not
/// all that tells two rows of one report apart; the numbers of splits and SMs follow from the others.
const SHARED: [&str; 7] = [
    "backend", "arch", "seed", "inputs", "tokens", "sms", "splits",
];

/// What two reports differ in.
#[derive(Debug)]
pub struct Diff<'a> {
    /// What differs in what was run.
    pub header: Vec<Fact>,
    /// Recipes of one name that are not the same.
    pub recipes: Vec<String>,
    /// Fields that rows were paired in spite of.
    pub without: Vec<&'static str>,
    /// Rows that both have.
    pub compared: usize,
    /// Those that changed, and verdicts, by variant, the worst change first.
    pub variants: Vec<OfVariant<'a>>,
    /// Rows that only the first report has, in file order.
    pub only_a: Vec<&'a Key>,
    /// Rows that only the second has.
    pub only_b: Vec<&'a Key>,
}

/// What changed of one variant.
#[derive(Debug)]
pub struct OfVariant<'a> {
    /// Its name, with its kernel's where two kernels may have one of that name, and its bug.
    pub title: String,
    /// The verdicts before and after, where they differ.
    pub verdict: Option<[Option<Class>; 2]>,
    /// Stages with a row that changed, the worst first.
    pub stages: Vec<OfStage<'a>>,
}

/// What changed of one variant at one stage of one suite.
#[derive(Debug)]
pub struct OfStage<'a> {
    /// The suite.
    pub suite: &'a str,
    /// The stage; empty in suites without.
    pub stage: &'a str,
    /// Fields that tell the stage's rows apart, layer, site and depth aside.
    pub telling: Vec<&'static str>,
    /// Rows that changed, the worst first.
    pub rows: Vec<Changed<'a>>,
}

/// A row that changed.
#[derive(Debug)]
pub struct Changed<'a> {
    /// Its key in the second report.
    pub key: &'a Key,
    /// Every measure that changed, in column order; never empty.
    pub changes: Vec<Change>,
}

impl Changed<'_> {
    /// The change that stands for the row: a failure wherever there is one, else that of the row's main measure.
    #[must_use]
    pub fn lead(&self) -> Change {
        change::lead(&self.changes)
    }
}

impl Diff<'_> {
    /// Whether anything differs at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.is_empty()
            && self.recipes.is_empty()
            && self.variants.is_empty()
            && self.only_a.is_empty()
            && self.only_b.is_empty()
    }

    /// Rows that changed.
    #[must_use]
    pub fn changed(&self) -> usize {
        let stages = self.variants.iter().flat_map(|variant| &variant.stages);
        stages.map(|stage| stage.rows.len()).sum()
    }
}

/// What distinguishes variants: two kernels may have one of the same name, and a known bug makes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a> {
    kernel: Kernel,
    variant: &'a str,
    fault: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn of(key: &'a Key) -> Self {
        Self {
            kernel: Kernel::of(&key.suite),
            variant: &key.variant,
            fault: key.fault.as_deref(),
        }
    }

    fn title(self) -> String {
        let title = self.kernel.title(self.variant);
        match self.fault {
            Some(fault) => format!("{title} with {fault}"),
            None => title,
        }
    }

    fn verdict(self, report: &Report) -> Option<Class> {
        let of_kernel = |suite: &String| Kernel::of(suite) == self.kernel;
        let mut verdicts = report.verdicts.iter();
        let own = verdicts.find(|verdict| {
            verdict.variant == self.variant && verdict.suites.iter().any(of_kernel)
        });
        own.filter(|_| self.fault.is_none())
            .map(|verdict| verdict.verdict)
    }
}

/// Compares two reports.
#[must_use]
pub fn diff<'a>(a: &'a Report, b: &'a Report) -> Diff<'a> {
    let without = left_out(a, b);
    let missing = |rows: Option<Rows<'a>>, of: &'a Report| -> Vec<&'a Record> {
        let is_missing =
            |row: &&Record| rows.as_ref().is_none_or(|rows| rows.partner(row).is_none());
        of.records.iter().filter(is_missing).collect()
    };
    let keys = |rows: Vec<&'a Record>| rows.into_iter().map(|row| &row.key).collect();
    let rows_a = Rows::new(&a.records, &without).ok();
    let rows_b = Rows::new(&b.records, &without).ok();
    let pairs: Vec<Pair<'a>> = b
        .records
        .iter()
        .filter_map(|row| {
            let before = rows_a.as_ref()?.partner(row)?;
            Some(Pair { before, row })
        })
        .collect();
    Diff {
        header: header::facts(a, b),
        recipes: header::changed_recipes(a, b),
        compared: pairs.len(),
        variants: variants(a, b, &pairs),
        only_a: keys(missing(rows_b, a)),
        only_b: keys(missing(rows_a, b)),
        without,
    }
}

/// A row of the second report and its partner in the first.
#[derive(Clone, Copy)]
struct Pair<'a> {
    before: &'a Record,
    row: &'a Record,
}

/// The fields in which the reports differ as wholes and that no two rows of one need to be told apart.
fn left_out(a: &Report, b: &Report) -> Vec<&'static str> {
    let mut without = Vec::new();
    for field in SHARED {
        let values = |report: &Report| -> BTreeSet<Option<String>> {
            let rows = report.records.iter();
            rows.map(|row| row.key.get(field).map(|text| text.into_owned()))
                .collect()
        };
        let (in_a, in_b) = (values(a), values(b));
        if in_a == in_b || in_a.is_empty() || in_b.is_empty() {
            continue;
        }
        without.push(field);
        let is_told_apart = |report: &Report| Rows::new(&report.records, &without).is_ok();
        if !(is_told_apart(a) && is_told_apart(b)) {
            without.pop();
        }
    }
    without
}

fn variants<'a>(a: &'a Report, b: &'a Report, pairs: &[Pair<'a>]) -> Vec<OfVariant<'a>> {
    let mut by_name: BTreeMap<Name<'a>, Vec<Pair<'a>>> = BTreeMap::new();
    for pair in pairs {
        by_name
            .entry(Name::of(&pair.row.key))
            .or_default()
            .push(*pair);
    }
    let of_variant = |(name, pairs): (Name<'a>, Vec<Pair<'a>>)| {
        let verdict = [name.verdict(a), name.verdict(b)];
        let found = OfVariant {
            title: name.title(),
            verdict: (verdict[0] != verdict[1]).then_some(verdict),
            stages: stages(&pairs),
        };
        (found.verdict.is_some() || !found.stages.is_empty()).then_some(found)
    };
    let mut found: Vec<OfVariant<'a>> = by_name.into_iter().filter_map(of_variant).collect();
    // Those whose verdict alone changed stand last.
    found.sort_by_key(|variant| std::cmp::Reverse(variant.stages.first().map(worst)));
    found
}

fn stages<'a>(pairs: &[Pair<'a>]) -> Vec<OfStage<'a>> {
    let mut by_stage: BTreeMap<(&'a str, &'a str), Vec<Pair<'a>>> = BTreeMap::new();
    for pair in pairs {
        let key = &pair.row.key;
        let stage = key.stage.as_deref().unwrap_or_default();
        let rows = by_stage.entry((&key.suite, stage)).or_default();
        rows.push(*pair);
    }
    let of_stage = |((suite, stage), pairs): ((&'a str, &'a str), Vec<Pair<'a>>)| {
        let changed = |pair: &Pair<'a>| {
            let changes = change::between(&pair.before.measures, &pair.row.measures);
            let key = &pair.row.key;
            (!changes.is_empty()).then_some(Changed { key, changes })
        };
        let mut rows: Vec<Changed<'a>> = pairs.iter().filter_map(changed).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.lead().weight));
        (!rows.is_empty()).then(|| OfStage {
            suite,
            stage,
            telling: telling(&pairs),
            rows,
        })
    };
    let mut found: Vec<OfStage<'a>> = by_stage.into_iter().filter_map(of_stage).collect();
    found.sort_by_key(|stage| std::cmp::Reverse(worst(stage)));
    found
}

fn worst(stage: &OfStage<'_>) -> Option<Weight> {
    stage.rows.first().map(|row| row.lead().weight)
}

/// The fields in which some of the rows differ from others.
fn telling(pairs: &[Pair<'_>]) -> Vec<&'static str> {
    let differs = |field: &&&'static str| {
        let mut values = pairs.iter().map(|pair| pair.row.key.get(field));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let in_place = ["layer", "site", "depth"];
    let fields = Key::NAMES.iter().filter(|name| !in_place.contains(name));
    fields.filter(differs).copied().collect()
}
