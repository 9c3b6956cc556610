//! One sentence per variant, with the numbers that led to it.
//!
//! Worst first, the first that holds:
//!
//! | verdict | holds when |
//! |---|---|
//! | `broken` | an output is NaN or infinite, or the cosine of any stage is not at least [`VerdictLimits::broken_cosine`] |
//! | `structural` | an output is finite where the truth is not, or `bound_ratio` is not at most [`VerdictLimits::bound_ratio`]: no rounding of the recipe explains it |
//! | `degraded` | the cosine gap of the deepest stage is not below [`VerdictLimits::noise_cosine_gap`] on every site |
//! | `noise` | it is, but `mixes` is somewhere worse than under `fp32` |
//! | `exact` | `mixes` has at most the `rel_l2` of `fp32` on every site |
//!
//! The recombinations of suite `recombine` are judged apart, by the same rules: they are variants of another kernel, of
//! which one has the name of a mixing kernel's. `streams` takes the place of `mixes`, `streams_bf16` that of the deepest
//! stage.
//!
//! So are those of suite indexer: `logits` takes the place of both. A certificate is structural as well (see
//! [`certificate`](crate::measure::certificate)), and noise keeps [`VerdictLimits::noise_kept_at_2k`] of the true top k
//! among the 2k that it selects. What q and k themselves are off by is shown and not judged: their format was chosen. Nor
//! is an indexer broken by a cosine: four bits leave a logit one of 0.98.
//!
//! A library's product has no bound, because what it does inside is not known: it is judged by the truth
//! alone, and its sentence says so.
//!
//! Every comparison is written so that NaN counts as the worse side, and so does a cosine gap that
//! is missing; a `rel_l2` that is not finite, at any stage, is never noise.

mod bugs;
mod facts;
mod failures;
mod of_report;
mod soundness;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::report::{
    Class, Key, NonFinite, Record, Verdict,
    number::{exact, plain, sci},
    summary::{at_stage, deepest_streams, mix_rows, suite_rows, variants, worst},
};

use facts::whereabouts;

pub use bugs::{explain, judge_bugs};
pub use failures::failures;
pub use of_report::{judged_again, row_behind};
pub use soundness::{is_good, is_sound};

/// The recipe whose own error is the yardstick of `exact`.
pub const YARDSTICK: &str = "fp32";

/// The suites a full verdict rests on; those without a row are named in the sentence.
const SUITES: [&str; 2] = ["mix", "chain"];

/// What is judged: the variants of one kernel.
struct Kernel {
    /// The suite that looks at it alone.
    suite: &'static str,
    /// What a variant is called in its sentence, before its name.
    noun: &'static str,
    /// The stage at which `exact` is decided.
    decisive: &'static str,
    /// Its stages, the deepest last.
    stages: &'static [&'static str],
    /// Whether a cosine below the limit makes it useless. Four bits leave a logit a cosine of 0.98 and nine of ten keys
    /// of the selection: what that costs is said by the keys, and what is a bug by the certificates.
    has_direction: bool,
}

const MIXING: Kernel = Kernel {
    suite: "mix",
    noun: "",
    decisive: "mixes",
    stages: &["dot", "mixes", "pre", "post", "comb", "y", "y_bf16"],
    has_direction: true,
};

const RECOMBINATION: Kernel = Kernel {
    suite: "recombine",
    noun: "recombine ",
    decisive: "streams",
    stages: &["streams", "streams_bf16"],
    has_direction: true,
};

const INDEXER: Kernel = Kernel {
    suite: "indexer",
    noun: "indexer ",
    decisive: "logits",
    stages: &["logits"],
    has_direction: false,
};

/// Where one verdict ends and the next begins. A thresholds file can move them in `[verdict]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerdictLimits {
    /// A cosine gap below this at the deepest stage is noise.
    pub noise_cosine_gap: f64,
    /// A cosine below this is broken.
    pub broken_cosine: f64,
    /// A ratio of error to bound above this is structural.
    pub bound_ratio: f64,
    /// An indexer that keeps less of the true top k among its 2k is more than noise.
    pub noise_kept_at_2k: f64,
}

impl Default for VerdictLimits {
    fn default() -> Self {
        Self {
            noise_cosine_gap: 1e-4,
            broken_cosine: 0.99,
            bound_ratio: 1.0,
            noise_kept_at_2k: 0.999,
        }
    }
}

/// A verdict per variant of the mixing kernel, then per recombination and per indexer, in file order.
///
/// `yardstick` is where the rows of [`YARDSTICK`] are looked up: the same rows, or those of a run
/// made for the comparison alone. Without them nothing is `exact`. A variant of `non_finite` is broken even where the
/// rows it has are finite: it has none of what lies behind.
#[must_use]
pub fn judge(
    records: &[Record],
    non_finite: &[NonFinite],
    yardstick: &[Record],
    limits: &VerdictLimits,
) -> Vec<Verdict> {
    let fp32 = Yardstick::of(yardstick, &MIXING);
    let ran = |suite: &&str| records.iter().any(|record| record.key.suite == *suite);
    let (suites, not_run): (Vec<&str>, Vec<&str>) = SUITES.into_iter().partition(ran);
    let mut verdicts = Vec::new();
    for variant in variants(records) {
        let mut rows = mix_rows(records, variant);
        let chain = suite_rows(records, "chain", variant);
        rows.extend(&chain);
        if rows.is_empty() {
            continue;
        }
        let evidence = Evidence {
            kernel: &MIXING,
            rows: &rows,
            chain: &chain,
            ended: non_finite.iter().find(|at| at.variant == variant),
            fp32: &fp32,
            limits,
        };
        verdicts.push(evidence.verdict(variant, &suites, &not_run));
    }
    for kernel in [&RECOMBINATION, &INDEXER] {
        let fp32 = Yardstick::of(yardstick, kernel);
        for variant in variants(records) {
            let mut rows = suite_rows(records, kernel.suite, variant);
            rows.retain(|row| kernel.judges(row));
            if rows.is_empty() {
                continue;
            }
            let evidence = Evidence {
                kernel,
                rows: &rows,
                chain: &[],
                ended: None,
                fp32: &fp32,
                limits,
            };
            verdicts.push(evidence.verdict(variant, &[kernel.suite], &[]));
        }
    }
    verdicts
}

impl Kernel {
    /// Whether a row of its suite counts: the stages of an indexer that it does not name are operands, but for its
    /// selections.
    fn judges(&self, record: &Record) -> bool {
        let stage = record.key.stage.as_deref().unwrap_or_default();
        self.suite != INDEXER.suite || stage == "top_k" || self.stages.contains(&stage)
    }
}

/// What makes two rows of the decisive stage comparable across recipes: everything of the key but the
/// recipe and the splits that follow from it.
#[derive(PartialEq, Eq, Hash)]
struct Case<'a> {
    layer: Option<u32>,
    site: Option<&'a str>,
    inputs: &'a str,
    tokens: u64,
    context: Option<u64>,
    query_set: Option<&'a str>,
    /// Of a selection.
    k: Option<u32>,
    seed: u64,
}

impl<'a> Case<'a> {
    fn of(key: &'a Key) -> Self {
        Self {
            layer: key.layer,
            site: key.site.as_deref(),
            inputs: &key.inputs,
            tokens: key.tokens,
            context: key.context,
            query_set: key.query_set.as_deref(),
            k: key.k,
            seed: key.seed,
        }
    }
}

/// `rel_l2` of the decisive stage under fp32, and the recall of its selections, by case.
struct Yardstick<'a>(HashMap<Case<'a>, f64>);

impl<'a> Yardstick<'a> {
    fn of(records: &'a [Record], kernel: &Kernel) -> Self {
        let rows = suite_rows(records, kernel.suite, YARDSTICK);
        let of = |stage, measure| {
            let entry = move |record: &'a Record| {
                Some((Case::of(&record.key), record.measures.value(measure)?))
            };
            at_stage(&rows, stage).into_iter().filter_map(entry)
        };
        Self(
            of(kernel.decisive, "rel_l2")
                .chain(of("top_k", "recall"))
                .collect(),
        )
    }
}

struct Finding {
    class: Class,
    reason: String,
}

/// The rows of one variant and what they are held against.
struct Evidence<'a> {
    kernel: &'static Kernel,
    rows: &'a [&'a Record],
    /// Those of suite chain among them.
    chain: &'a [&'a Record],
    /// Where its chain ended, if it did before the model.
    ended: Option<&'a NonFinite>,
    fp32: &'a Yardstick<'a>,
    limits: &'a VerdictLimits,
}

impl Evidence<'_> {
    fn verdict(&self, variant: &str, suites: &[&str], not_run: &[&str]) -> Verdict {
        let finding = self.weigh();
        let (noun, word) = (self.kernel.noun, finding.class.word());
        let mut sentence = format!("{noun}{variant} is {word}: {}", finding.reason);
        for fact in self.facts() {
            sentence.push_str("; ");
            sentence.push_str(&fact);
        }
        sentence.push_str(&format!(". Rests on {}", suites.join(", ")));
        if !not_run.is_empty() {
            sentence.push_str(&format!("; not run: {}", not_run.join(", ")));
        }
        sentence.push('.');
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Verdict {
            variant: variant.to_owned(),
            verdict: finding.class,
            sentence,
            suites: owned(suites),
            not_run: owned(not_run),
        }
    }

    fn weigh(&self) -> Finding {
        let worst_first = [
            (Class::Broken, self.broken()),
            (Class::Structural, self.structural()),
            (Class::Degraded, self.degraded()),
            (Class::Noise, self.worse_than_fp32()),
        ];
        for (class, reason) in worst_first {
            if let Some(reason) = reason {
                return Finding { class, reason };
            }
        }
        Finding {
            class: Class::Exact,
            reason: format!(
                "{} is at or below fp32's own error on each of {}",
                self.kernel.decisive,
                self.sites()
            ),
        }
    }

    fn broken(&self) -> Option<String> {
        if let Some(at) = self.ended {
            let (stage, token, place) = (&at.stage, at.token, &at.place);
            return Some(format!(
                "{stage} of token {token} is {} in {place}, where its chain ends",
                at.value.0
            ));
        }
        for record in self.rows {
            let count = |measure| record.measures.value(measure).unwrap_or(0.0);
            let (nan, inf) = (count("nan_got"), count("inf_got"));
            if nan + inf > 0.0 {
                let whereabouts = whereabouts(record);
                return Some(format!(
                    "{nan} NaN and {inf} infinite outputs in {whereabouts}"
                ));
            }
        }
        if !self.kernel.has_direction {
            return None;
        }
        let low = worst(self.rows, "cosine")?;
        let limit = self.limits.broken_cosine;
        let is_aligned = low.value >= limit;
        (!is_aligned).then(|| {
            let whereabouts = whereabouts(low.record);
            format!(
                "cosine {} in {whereabouts}, limit {}",
                plain(low.value, 4),
                exact(limit)
            )
        })
    }

    fn structural(&self) -> Option<String> {
        for record in self.rows {
            let mismatches = record.measures.get("class_mismatch");
            if let Some(count) = mismatches.filter(|count| count.as_f64() > 0.0) {
                let whereabouts = whereabouts(record);
                return Some(format!(
                    "{count} outputs finite where the truth is not in {whereabouts}"
                ));
            }
        }
        if let Some(high) = worst(self.rows, "certificates").filter(|high| high.value > 0.0) {
            let count = high.value;
            let whereabouts = whereabouts(high.record);
            return Some(format!(
                "{count} findings that no rounding explains in {whereabouts}"
            ));
        }
        let high = worst(self.rows, "bound_ratio")?;
        let limit = self.limits.bound_ratio;
        let is_rounding = high.value <= limit;
        (!is_rounding).then(|| {
            format!(
                "the error is {} times its bound in {}, limit {}, which no rounding of this recipe explains",
                plain(high.value, 3),
                whereabouts(high.record),
                exact(limit)
            )
        })
    }

    fn degraded(&self) -> Option<String> {
        for record in self.rows {
            let rel_l2 = record.measures.value("rel_l2");
            if let Some(rel_l2) = rel_l2.filter(|rel_l2| !rel_l2.is_finite()) {
                return Some(format!("rel_l2 {rel_l2} in {}", whereabouts(record)));
            }
        }
        let deepest = self.deepest();
        if deepest.is_empty() {
            return Some("no stage was measured".to_owned());
        }
        let is_missing = |record: &&&Record| record.measures.get("cosine_gap").is_none();
        if let Some(record) = deepest.iter().find(is_missing) {
            return Some(format!("cosine_gap is missing in {}", whereabouts(record)));
        }
        let gap = worst(&deepest, "cosine_gap")?;
        let limit = self.limits.noise_cosine_gap;
        let is_noise = gap.value < limit;
        if let Some(reason) = self.loses_keys().filter(|_| is_noise) {
            return Some(reason);
        }
        (!is_noise).then(|| {
            let whereabouts = whereabouts(gap.record);
            let limit = exact(limit);
            format!(
                "cosine_gap {} in {whereabouts}, not below {limit}",
                sci(gap.value, 3)
            )
        })
    }

    /// How an indexer keeps too few of the true keys even among twice as many.
    fn loses_keys(&self) -> Option<String> {
        let low = worst(self.rows, "kept_at_2k")?;
        let limit = self.limits.noise_kept_at_2k;
        let keeps = low.value >= limit;
        (!keeps).then(|| {
            format!(
                "{} of the true keys are among twice as many in {}, limit {}",
                plain(low.value, 4),
                whereabouts(low.record),
                exact(limit)
            )
        })
    }

    /// The streams behind the most layers, or the rows of the last stage that was measured.
    fn deepest(&self) -> Vec<&Record> {
        let streams = deepest_streams(self.chain);
        if !streams.is_empty() {
            return streams;
        }
        let stages = self
            .kernel
            .stages
            .iter()
            .rev()
            .map(|stage| at_stage(self.rows, stage));
        stages
            .into_iter()
            .find(|rows| !rows.is_empty())
            .unwrap_or_default()
    }

    /// Why it is no better than noise, or nothing if it is exact.
    fn worse_than_fp32(&self) -> Option<String> {
        let gap = worst(&self.deepest(), "cosine_gap")?;
        let below = format!(
            "cosine_gap at most {} in {}, limit {}",
            sci(gap.value, 3),
            whereabouts(gap.record),
            exact(self.limits.noise_cosine_gap)
        );
        let decisive = at_stage(self.rows, self.kernel.decisive);
        if decisive.is_empty() {
            return Some(below);
        }
        for record in decisive {
            let Some(fp32) = self.fp32.0.get(&Case::of(&record.key)) else {
                return Some(format!(
                    "{below} (not compared with fp32, which was not run)"
                ));
            };
            let own = record.measures.value("rel_l2");
            let is_exact = own.is_some_and(|own| own <= *fp32);
            if !is_exact {
                return Some(below);
            }
        }
        self.selects_worse_than_fp32()
    }

    /// Where an indexer of fp32's logits selects fewer of the true keys than fp32 does.
    fn selects_worse_than_fp32(&self) -> Option<String> {
        at_stage(self.rows, "top_k").into_iter().find_map(|record| {
            let fp32 = *self.fp32.0.get(&Case::of(&record.key))?;
            let own = record.measures.value("recall")?;
            let is_as_good = own >= fp32;
            (!is_as_good).then(|| {
                format!(
                    "recall {} in {}, fp32's is {}",
                    plain(own, 4),
                    whereabouts(record),
                    plain(fp32, 4)
                )
            })
        })
    }
}

#[cfg(test)]
mod tests;
