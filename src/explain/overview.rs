//! What the rows of a report say, variant by variant.

use super::{
    Block, Help,
    help::{sites, summary},
    indexer,
    parts::Parts,
    row, texts,
    words::error,
};
use crate::report::{
    Class, Kernel, Record, Report, Verdict,
    number::{count, sci},
    summary::{at_stage, deepest_streams, median, mix_rows, suite_rows, values, variants, worst},
};

/// A variant of one kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Own<'a> {
    kernel: Kernel,
    variant: &'a str,
}

/// Kernels in the order of their tables.
const KERNELS: [Kernel; 3] = [Kernel::Mixing, Kernel::Recombination, Kernel::Indexer];

/// What was run, the variants worst first, what would help.
pub fn blocks(report: &Report) -> Vec<Block> {
    let mut blocks = vec![run(report)];
    let mut own: Vec<Own<'_>> = Vec::new();
    for kernel in KERNELS {
        for variant in variants(&report.records) {
            if !rows_of(report, kernel, variant).is_empty() {
                own.push(Own { kernel, variant });
            }
        }
    }
    // Those without a verdict behind the worst of those with one, in file order.
    own.sort_by_key(|own| std::cmp::Reverse(own.verdict(report).map(|verdict| verdict.verdict)));
    blocks.extend(own.iter().map(|own| own.block(report)));
    let has = |kernel: Kernel| own.iter().any(|own| own.kernel == kernel);
    if has(Kernel::Mixing) {
        blocks.push(Block {
            title: "What would help".to_owned(),
            paragraphs: Help::new(report).paragraphs(),
        });
    }
    if has(Kernel::Indexer) {
        blocks.push(Block {
            title: "What would help the indexer".to_owned(),
            paragraphs: texts(indexer::help(report)),
        });
    }
    if !report.records.is_empty() {
        blocks.push(Block {
            title: "More".to_owned(),
            paragraphs: texts([
                "A single row: --row layer=…,site=…,stage=…,variant=… (any fields of a record's key)."
                    .to_owned(),
            ]),
        });
    }
    blocks
}

/// The rows of a variant without a bug, of all suites that look at its kernel.
fn rows_of<'a>(report: &'a Report, kernel: Kernel, variant: &str) -> Vec<&'a Record> {
    let is_own = |row: &&Record| {
        let key = &row.key;
        Kernel::of(&key.suite) == kernel
            && key.variant == variant
            && key.fault.is_none()
            && key.direction.is_none()
    };
    report.records.iter().filter(is_own).collect()
}

fn run(report: &Report) -> Block {
    let run = &report.run;
    let (backend, checkpoint) = (&run.backend, &run.checkpoint);
    let device = match &backend.device {
        Some(device) => format!(" on {device}"),
        None => String::new(),
    };
    let weights = match checkpoint.kind {
        crate::report::WeightKind::Real => "read from a checkpoint",
        crate::report::WeightKind::Synthetic => "made up: no model's",
    };
    let mut paragraphs = vec![
        format!(
            "{}: {}, {} layers, hidden size {}, {} residual streams. The weights are {weights}.",
            checkpoint.source,
            checkpoint.family,
            checkpoint.layers,
            checkpoint.hidden,
            checkpoint.hc
        ),
        format!(
            "Backend {} for {}{device}; {} tokens, inputs {}, seed {}; {} in this report.",
            backend.name,
            backend.arch,
            run.tokens,
            run.inputs,
            run.seed,
            count(report.records.len(), "row")
        ),
        "Every error is against fp64 (the truth), relative to it: rel_l2 1e-3 is an error a thousandth as long as the truth."
            .to_owned(),
    ];
    if let Some(certificate) = &report.certificate {
        paragraphs.push(format!(
            "The truth itself: {} outputs were recomputed exactly, the largest difference is {} of the scale.",
            certificate.checked,
            sci(certificate.max_rel_to_scale.0, 2)
        ));
    }
    if report.records.is_empty() {
        paragraphs.push("There is nothing to explain: the report has no rows.".to_owned());
    }
    paragraphs.extend(report.failures.iter().cloned());
    Block {
        title: match &report.part {
            None => format!("{} weights", checkpoint.kind.shout()),
            Some(part) => format!("{} weights · {}", checkpoint.kind.shout(), part.headline()),
        },
        paragraphs: texts(paragraphs),
    }
}

impl<'a> Own<'a> {
    fn verdict(self, report: &'a Report) -> Option<&'a Verdict> {
        report.verdicts.iter().find(|verdict| {
            let mut suites = verdict.suites.iter();
            verdict.variant == self.variant && suites.any(|suite| Kernel::of(suite) == self.kernel)
        })
    }

    fn block(self, report: &Report) -> Block {
        let name = self.kernel.title(self.variant);
        let title = match self.verdict(report) {
            Some(verdict) => format!("{name} is {}", verdict.verdict.word()),
            None => format!("{name} (without a verdict)"),
        };
        let mut paragraphs = Vec::new();
        if let Some(text) = summary(report, self.kernel, self.variant) {
            paragraphs.push(format!("What it is: {text}."));
        }
        if let Some(verdict) = self.verdict(report) {
            paragraphs.push(meaning(verdict.verdict).to_owned());
        }
        paragraphs.extend(match self.kernel {
            Kernel::Mixing => mixing(report, self.variant),
            Kernel::Recombination => recombination(report, self.variant),
            Kernel::Indexer => selecting(report, self.variant),
        });
        Block {
            title,
            paragraphs: texts(paragraphs),
        }
    }
}

/// What a verdict means, the numbers apart.
fn meaning(class: Class) -> &'static str {
    match class {
        Class::Exact => "Exact: it is at or below the error of fp32 itself.",
        Class::Noise => "Noise: what it is off by is too small to matter where it ends up.",
        Class::Degraded => "Degraded: its error is finite and no bug, but large enough to matter.",
        Class::Structural => {
            "Structural: more than any rounding of this recipe explains. It is a bug."
        }
        Class::Broken => "Broken: it is not finite, or points another way than the truth.",
    }
}

fn mixing(report: &Report, variant: &str) -> Vec<String> {
    let rows = mix_rows(&report.records, variant);
    let mixes = at_stage(&rows, "mixes");
    let mut paragraphs = Vec::new();
    if let Some(text) = size("Its mixes are", &mixes) {
        paragraphs.push(text);
        paragraphs.extend(Parts::over(&mixes).sentences());
    }
    let middle = |stage| median(values(&at_stage(&rows, stage), "rel_l2"));
    if let (Some(y), Some(y_bf16)) = (middle("y"), middle("y_bf16")) {
        paragraphs.push(format!(
            "Downstream: the layer's input is off by {} before it is rounded to bf16 and by {} after (y and y_bf16, medians).",
            error(y),
            error(y_bf16)
        ));
    }
    let chain = suite_rows(&report.records, "chain", variant);
    if let Some(streams) = worst(&deepest_streams(&chain), "rel_l2") {
        paragraphs.push(row::at_depth(report, streams.record));
    }
    paragraphs.extend(row::ended(report, variant));
    if mixes.is_empty() && chain.is_empty() {
        let rows = rows_of(report, Kernel::Mixing, variant);
        let mut suites: Vec<&str> = rows.iter().map(|row| row.key.suite.as_str()).collect();
        suites.dedup();
        paragraphs.push(format!(
            "Its {} are of suite {}; --row explains them one by one.",
            count(rows.len(), "row"),
            suites.join(", ")
        ));
    }
    paragraphs
}

fn recombination(report: &Report, variant: &str) -> Vec<String> {
    let rows = suite_rows(&report.records, "recombine", variant);
    let streams = at_stage(&rows, "streams");
    let mut paragraphs: Vec<String> = size("The new streams are", &streams).into_iter().collect();
    paragraphs.extend(Parts::over(&streams).sentences());
    if let Some(stored) = median(values(&at_stage(&rows, "streams_bf16"), "rel_l2")) {
        paragraphs.push(format!(
            "Downstream: stored in bf16 they are off by {} (streams_bf16, median).",
            error(stored)
        ));
    }
    paragraphs
}

fn selecting(report: &Report, variant: &str) -> Vec<String> {
    let rows = suite_rows(&report.records, "indexer", variant);
    let mut logits = at_stage(&rows, "logits");
    logits.retain(|row| row.key.query_set.as_deref() == Some("all"));
    let mut paragraphs: Vec<String> = size("Its logits are", &logits).into_iter().collect();
    paragraphs.extend(Parts::over(&logits).sentences());
    paragraphs.extend(indexer::selected(report, variant));
    let needles = suite_rows(&report.records, "needle", variant);
    if let Some(found) = worst(&needles, "found") {
        paragraphs.push(format!(
            "Planted keys: where it does worst it still selects {} of them ({}).",
            super::words::keys(found.value),
            found.record.key.words()
        ));
    }
    paragraphs
}

/// `Its mixes are off by …`, the median and the worst of some rows.
fn size(what: &str, rows: &[&Record]) -> Option<String> {
    let middle = median(values(rows, "rel_l2"))?;
    let high = worst(rows, "rel_l2")?;
    if let [only] = rows {
        return Some(format!(
            "{what} off by {} (rel_l2 at {}).",
            error(middle),
            only.key.place()
        ));
    }
    Some(format!(
        "{what} off by {} (rel_l2, the median of {}), at worst by {} ({}).",
        error(middle),
        sites(rows),
        error(high.value),
        high.record.key.place()
    ))
}
