//! What would help the mixing kernel: the cheapest variant of the report that the layer's own rounding hides.
//!
//! The kernel hands on three things: y, which is rounded to bf16 before the layer gets it, and post and comb, of which the
//! next streams are made. A variant is hidden if at every site each of the three is off by less than that rounding alone:
//! `rel_l2` of `y_bf16` under the variant whose y is nearest to the truth there.

use std::collections::{BTreeMap, HashMap};

use super::{
    Paragraph,
    words::{error, list},
};
use crate::{
    recipe::{MixRecipe, Unit, catalogue},
    report::{
        Class, Kernel, Key, Recipe, Record, Report,
        number::{count, plain},
        reproduce,
        summary::{at_stage, median, mix_rows, values, variants},
    },
    verdict::YARDSTICK,
};

/// What the kernel hands on.
const HANDED_ON: [&str; 3] = ["y", "post", "comb"];

/// The most that the nearest variant's y may be of the rounding behind it, for the rounding to be told from it.
const APART: f64 = 0.1;

/// What tells sites, batches and runs apart, whatever the variant and the stage.
fn case(key: &Key) -> Key {
    key.without(&["variant", "stage", "splits"])
}

/// The rounding of one layer input.
#[derive(Clone, Copy, Debug)]
struct Rounding<'a> {
    /// The variant that shows it.
    variant: &'a str,
    /// Its `y`.
    y: f64,
    /// Its `y_bf16`.
    y_bf16: f64,
}

/// The error of a variant that comes nearest to the rounding, or is furthest above it.
#[derive(Clone, Copy, Debug)]
pub struct Nearest<'a> {
    /// The row.
    record: &'a Record,
    /// Its error.
    rel_l2: f64,
    /// The rounding there.
    rounding: Rounding<'a>,
}

impl Nearest<'_> {
    /// NaN is not hidden.
    fn is_hidden(&self) -> bool {
        self.rel_l2 < self.rounding.y_bf16
    }

    fn words(&self) -> String {
        let key = &self.record.key;
        format!(
            "{} ({} of {}) beside {}",
            error(self.rel_l2),
            key.stage.as_deref().unwrap_or_default(),
            key.place(),
            error(self.rounding.y_bf16)
        )
    }
}

/// What a variant costs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cost {
    /// Median time of the projection in microseconds.
    Timed(f64),
    /// Matrix instructions, or multiply-adds, along 16 values of k.
    Counted { products: usize, unit: Unit },
    /// The report has neither a time nor a recipe.
    Unknown,
}

impl Cost {
    /// What is compared; times with times, for all are timed or none.
    fn size(self) -> f64 {
        match self {
            Self::Timed(time) => time,
            Self::Counted { products, unit } => products as f64 / unit.k() as f64,
            Self::Unknown => f64::INFINITY,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Timed(time) => format!("{} us", plain(time, 3)),
            Self::Counted { products, unit } => {
                let products = count(products, "product");
                match unit {
                    Unit::FmaF32 => {
                        format!("{products}, one value of k at a time on the CUDA cores")
                    }
                    _ => format!(
                        "{products}, {} values of k per matrix instruction",
                        unit.k()
                    ),
                }
            }
            Self::Unknown => "cost not known".to_owned(),
        }
    }
}

/// A variant that is hidden or not.
struct Judged<'a> {
    variant: &'a str,
    nearest: Nearest<'a>,
    cost: Cost,
}

/// What was found out about the variants of suite mix.
pub struct Help<'a> {
    report: &'a Report,
    judged: Vec<Judged<'a>>,
    /// Why nothing could be judged, if nothing could.
    unknown: Option<Vec<Paragraph>>,
}

impl<'a> Help<'a> {
    /// Judges every variant that has rows and no bug.
    pub fn new(report: &'a Report) -> Self {
        let found = roundings(report);
        let unknown = match &found {
            Err(why) => Some(why.clone()),
            Ok(_) => None,
        };
        let roundings = found.unwrap_or_default();
        let names = variants(&report.records).into_iter();
        let nearest = names
            .filter(|name| !is_unusable(report, name))
            .filter_map(|name| Some((name, nearest(report, name, &roundings)?)));
        let nearest: Vec<_> = nearest.collect();
        let times: HashMap<&str, f64> = nearest
            .iter()
            .filter_map(|(name, _)| Some((*name, time(report, name)?)))
            .collect();
        let is_timed = !nearest.is_empty() && times.len() == nearest.len();
        let judged = nearest.into_iter().map(|(variant, nearest)| Judged {
            variant,
            nearest,
            cost: match times.get(variant) {
                Some(&time) if is_timed => Cost::Timed(time),
                _ => counted(report, variant),
            },
        });
        Self {
            report,
            judged: judged.collect(),
            unknown,
        }
    }

    /// Whether a variant is hidden, in a sentence; nothing of one that was not judged.
    pub fn of_variant(&self, variant: &str) -> Option<String> {
        let own = self.judged.iter().find(|own| own.variant == variant)?;
        let words = own.nearest.words();
        Some(match own.nearest.is_hidden() {
            true => format!(
                "{variant} itself stays below the rounding of the layer input to bf16 at every site: at most {words}."
            ),
            false => format!(
                "{variant} itself does not stay below the rounding of the layer input to bf16: {words}."
            ),
        })
    }

    /// The advice, a paragraph each.
    pub fn paragraphs(&self) -> Vec<Paragraph> {
        if let Some(why) = &self.unknown {
            return why.clone();
        }
        let mut hidden: Vec<&Judged<'_>> = self
            .judged
            .iter()
            .filter(|judged| judged.nearest.is_hidden())
            .collect();
        let by_cost = |a: &&Judged<'_>, b: &&Judged<'_>| {
            let costs = a.cost.size().total_cmp(&b.cost.size());
            costs.then(a.nearest.rel_l2.total_cmp(&b.nearest.rel_l2))
        };
        hidden.sort_by(by_cost);
        let mut paragraphs = vec![Paragraph::Text(self.criterion())];
        match hidden.as_slice() {
            [] => paragraphs.extend(self.none_is()),
            [first, others @ ..] => {
                paragraphs.push(self.cheapest(first).into());
                if !others.is_empty() {
                    let line = |one: &&Judged<'_>| {
                        format!(
                            "{} ({}; {})",
                            one.variant,
                            one.cost.words(),
                            one.nearest.words()
                        )
                    };
                    let lines: Vec<String> = others.iter().map(line).collect();
                    let text = format!("Below it as well, by cost: {}.", lines.join(", "));
                    paragraphs.push(text.into());
                }
            }
        }
        let above = self.judged.iter().filter(|one| !one.nearest.is_hidden());
        let above: Vec<String> = above
            .map(|one| format!("{} ({})", one.variant, one.nearest.words()))
            .collect();
        if !above.is_empty() && !hidden.is_empty() {
            paragraphs.push(format!("Not below it: {}.", above.join(", ")).into());
        }
        paragraphs
    }

    fn criterion(&self) -> String {
        let rounding = self.judged.first().map(|one| one.nearest.rounding);
        let shown = rounding.map_or_else(String::new, |rounding| {
            format!(
                " ({} makes y to {} and y_bf16 to {}, so that the difference is the rounding's)",
                rounding.variant,
                error(rounding.y),
                error(rounding.y_bf16)
            )
        });
        format!(
            "The layer gets its input in bf16, and that rounding is there whatever the kernel does{shown}. What the kernel \
             hands on (y, and post and comb, of which the next streams are made) is hidden where each is off by less than \
             that, at every site."
        )
    }

    fn cheapest(&self, first: &Judged<'_>) -> String {
        let by = match first.cost {
            Cost::Timed(_) => "by the projection's median time (time_us)",
            Cost::Counted { .. } => {
                "by the number of products that the recipe multiplies and how many values of k its unit takes at a time, for \
                 nothing here was timed"
            }
            Cost::Unknown => {
                "as far as can be told, for the report has neither its time nor its recipe"
            }
        };
        let summary = summary(self.report, Kernel::Mixing, first.variant);
        let summary = summary.map_or_else(String::new, |text| format!(", {text}"));
        format!(
            "The cheapest variant of this report that is hidden, {by}, is {}{summary}: {}. What it hands on is off by at \
             most {}.",
            first.variant,
            first.cost.words(),
            first.nearest.words()
        )
    }

    fn none_is(&self) -> Vec<Paragraph> {
        let above = self.judged.iter();
        let above: Vec<String> = above
            .map(|one| format!("{} has {}", one.variant, one.nearest.words()))
            .collect();
        let nothing = match above.as_slice() {
            [] => "No variant of this report can be judged.".to_owned(),
            above => format!("No variant of this report is hidden: {}.", above.join(", ")),
        };
        match self.compensated() {
            Some(command) => measured_by(&nothing, command),
            None => vec![nothing.into()],
        }
    }

    /// The command that measures the catalogue's compensated recipes, those that the report lacks.
    fn compensated(&self) -> Option<String> {
        let is_lacking = |recipe: &MixRecipe| {
            recipe.projection.products().len() > 1
                && mix_rows(&self.report.records, &recipe.name).is_empty()
        };
        let recipes = catalogue::builtin().into_iter().filter(is_lacking);
        let names: Vec<String> = recipes.map(|recipe| recipe.name).collect();
        let key = &self
            .report
            .records
            .iter()
            .find(|row| row.key.suite == "mix")?
            .key;
        (!names.is_empty()).then(|| measuring(self.report, key, &names.join(",")))
    }
}

/// The command that measures variants at all sites as `key` was.
fn measuring(report: &Report, key: &Key, variants: &str) -> String {
    let key = Key {
        suite: "mix".to_owned(),
        variant: variants.to_owned(),
        ..key.without(&[
            "layer", "site", "depth", "stage", "fault", "splits", "source", "residual", "layer_io",
            "sublayer", "sites_on", "sms",
        ])
    };
    reproduce(report, &key)
}

/// What a recipe says of itself in one line.
pub fn summary(report: &Report, kernel: Kernel, variant: &str) -> Option<String> {
    let recipe = report.recipes.get(&kernel.title(variant))?;
    let text = recipe.get("summary")?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// A variant that is broken or a bug helps nobody.
fn is_unusable(report: &Report, variant: &str) -> bool {
    report.verdicts.iter().any(|verdict| {
        let is_own = verdict.variant == variant
            && verdict
                .suites
                .iter()
                .any(|suite| Kernel::of(suite) == Kernel::Mixing);
        is_own && verdict.verdict >= Class::Structural
    })
}

/// The rounding of the layer input at every site, as the variant with the best y shows it.
fn roundings(report: &Report) -> Result<BTreeMap<Key, Rounding<'_>>, Vec<Paragraph>> {
    let mut found: BTreeMap<Key, Rounding<'_>> = BTreeMap::new();
    for variant in variants(&report.records) {
        let rows = mix_rows(&report.records, variant);
        let stored: HashMap<Key, f64> = at_stage(&rows, "y_bf16")
            .into_iter()
            .filter_map(|row| Some((case(&row.key), row.measures.value("rel_l2")?)))
            .collect();
        for row in at_stage(&rows, "y") {
            let case = case(&row.key);
            let (Some(y), Some(&y_bf16)) = (row.measures.value("rel_l2"), stored.get(&case)) else {
                continue;
            };
            let own = Rounding { variant, y, y_bf16 };
            let is_best = found
                .get(&case)
                .is_none_or(|best| y < best.y || best.y.is_nan());
            if is_best {
                found.insert(case, own);
            }
        }
    }
    if found.is_empty() {
        return Err(lacking(report));
    }
    let blurred = |one: &&Rounding<'_>| {
        let is_apart = one.y <= APART * one.y_bf16;
        !is_apart
    };
    let Some(one) = found.values().find(blurred) else {
        return Ok(found);
    };
    let blurred = format!(
        "The rounding of the layer input to bf16 cannot be told from the variants' own errors: the best y is {} ({}), its \
         y_bf16 {}.",
        error(one.y),
        one.variant,
        error(one.y_bf16)
    );
    Err(shown_by_fp32(report, &blurred))
}

fn lacking(report: &Report) -> Vec<Paragraph> {
    let nothing = "This report has no rows of suite mix at stages y and y_bf16, which would tell what the rounding of the layer \
                   input hides.";
    shown_by_fp32(report, nothing)
}

/// What the report cannot tell, and the command that measures its variants beside fp32.
fn shown_by_fp32(report: &Report, why: &str) -> Vec<Paragraph> {
    let own =
        |row: &&Record| Kernel::of(&row.key.suite) == Kernel::Mixing && row.key.direction.is_none();
    let rows: Vec<&Record> = report.records.iter().filter(own).collect();
    let Some(first) = rows.first() else {
        return vec![why.to_owned().into()];
    };
    let mut names = vec![YARDSTICK];
    for row in &rows {
        if !names.contains(&row.key.variant.as_str()) {
            names.push(&row.key.variant);
        }
    }
    measured_by(why, measuring(report, &first.key, &names.join(",")))
}

fn measured_by(why: &str, command: String) -> Vec<Paragraph> {
    vec![
        format!("{why} This would measure it:").into(),
        Paragraph::Command(command),
    ]
}

/// The row of what a variant hands on that is nearest to the rounding there; NaN is above all. Nothing if it lacks a site.
fn nearest<'a>(
    report: &'a Report,
    variant: &str,
    roundings: &BTreeMap<Key, Rounding<'a>>,
) -> Option<Nearest<'a>> {
    let rows = mix_rows(&report.records, variant);
    let mut nearest: Option<Nearest<'a>> = None;
    for stage in HANDED_ON {
        let rows = at_stage(&rows, stage);
        let by_case: HashMap<Key, &'a Record> =
            rows.into_iter().map(|row| (case(&row.key), row)).collect();
        for (case, &rounding) in roundings {
            let record = *by_case.get(case)?;
            let rel_l2 = record.measures.value("rel_l2")?;
            let share = |value: f64, of: Rounding<'_>| value / of.y_bf16;
            let is_nearer = nearest.is_none_or(|so_far| {
                let (own, other) = (
                    share(rel_l2, rounding),
                    share(so_far.rel_l2, so_far.rounding),
                );
                !other.is_nan() && (own.is_nan() || own > other)
            });
            if is_nearer {
                nearest = Some(Nearest {
                    record,
                    rel_l2,
                    rounding,
                });
            }
        }
    }
    nearest
}

/// The median time of the projection.
fn time(report: &Report, variant: &str) -> Option<f64> {
    let rows = mix_rows(&report.records, variant);
    let time = median(values(&at_stage(&rows, "dot"), "time_us"))?;
    time.is_finite().then_some(time)
}

fn counted(report: &Report, variant: &str) -> Cost {
    match Recipe::of(report, Kernel::Mixing, variant) {
        Some(Recipe::Mix(recipe)) => Cost::Counted {
            products: recipe.projection.products().len(),
            unit: recipe.projection.unit,
        },
        _ => Cost::Unknown,
    }
}

/// Sites at which the report can tell what is hidden, for sentences.
pub fn sites(rows: &[&Record]) -> String {
    let mut places: Vec<String> = rows.iter().map(|row| row.key.place()).collect();
    places.sort_unstable();
    places.dedup();
    match places.as_slice() {
        few @ [_] | few @ [_, _] | few @ [_, _, _] => list(few),
        many => count(many.len(), "site"),
    }
}
