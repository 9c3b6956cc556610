//! `inspect A --against B`: the tensors that differ, and what that alone does. A view, so that differences are no error.

use std::fmt::{self, Write};

use anyhow::{Context, bail};

use super::{NAME, Only, WIDTH};
use crate::{
    checkpoint::{Checkpoint, Group, Item, Model},
    report::{number::count, printable, style, wrap},
    suite::weights::{
        Change, Comparison, Difference, compare,
        mixing::{self, MixEffect},
        selection::{self, Selection},
    },
};

/// Everything that is shown.
struct View {
    a: Checkpoint,
    b: Checkpoint,
    comparison: Comparison,
    mixes: Vec<MixEffect>,
    selection: Selection,
}

/// The comparison as text of at most 80 columns, paths and names that need more apart.
///
/// # Errors
/// If one of the two cannot be opened or read, or they are not of one model.
pub fn render(a: &str, b: &str, only: Option<Only>) -> anyhow::Result<String> {
    let a = Checkpoint::open_for_inspection(a)?;
    let b = Checkpoint::open_for_inspection(b).context("--against")?;
    let (ours, theirs) = (a.model(), b.model());
    if (ours.hidden, ours.hc) != (theirs.hidden, theirs.hc) {
        bail!(
            "--against {}: it has {} streams of {} where {} has {} of {}, and weights of different models do not \
             compare; name two checkpoints of one model",
            b.source(),
            theirs.hc,
            theirs.hidden,
            a.source(),
            ours.hc,
            ours.hidden
        );
    }
    let admits = |group: Group| only.is_none_or(|only| only.admits(group));
    let comparison = compare(&a, &b, &admits)?;
    let mixes = match admits(Group::Hc) {
        true => mixing::effects(&a, &b)?,
        false => Vec::new(),
    };
    let selection = match admits(Group::Indexer) {
        true => selection::effects(&a, &b)?,
        false => Selection::default(),
    };
    let view = View {
        a,
        b,
        comparison,
        mixes,
        selection,
    };
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = view.write(&mut text);
    Ok(text)
}

impl View {
    fn write(&self, text: &mut String) -> fmt::Result {
        for (name, checkpoint) in [("A", &self.a), ("B", &self.b)] {
            let kind = style::weights(checkpoint.kind());
            let commit = checkpoint
                .revision()
                .map(|commit| format!(" (commit {commit})"));
            writeln!(
                text,
                "{name}: {kind} weights, {}{}",
                printable(checkpoint.source()),
                commit.unwrap_or_default()
            )?;
        }
        self.write_summary(text)?;
        self.write_mixes(text)?;
        self.write_selection(text)?;
        self.write_changes(text)?;
        self.write_rest(text)
    }

    fn write_summary(&self, text: &mut String) -> fmt::Result {
        let Comparison {
            equal,
            recoded,
            changes,
            only_a,
            only_b,
        } = &self.comparison;
        let summary = format!(
            "{}, {equal} are equal, {recoded} hold equal values as another type; {} are only in A, {} only \
             in B.",
            match changes.len() {
                1 => "1 tensor differs".to_owned(),
                many => format!("{many} tensors differ"),
            },
            only_a.len(),
            only_b.len()
        );
        writeln!(text, "{}", wrap(&summary, WIDTH, ""))?;
        let limits = "Compared are the tensors that inspect lists: of hyper-connections, norms and indexers. Experts, \
                      attention beyond what its indexer reads, and embeddings are not looked at.";
        writeln!(text, "{}", wrap(limits, WIDTH, ""))?;
        if let Some(first) = self.mixes.first() {
            let (stage, worst) = first.worst();
            let line = format!(
                "B's weights move {stage} of {} by {} rel_l2, the most of {}.",
                first.place,
                figure(worst),
                count(self.mixes.len(), "site")
            );
            writeln!(text, "{}", wrap(&line, WIDTH, ""))?;
        }
        if let Some(worst) = self.selection.effects.first() {
            let line = match worst.recall.is_nan() {
                true => format!(
                    "The logits of layer {} are not all numbers, so that nothing can be said of its selection.",
                    worst.layer
                ),
                false => format!(
                    "Of the keys that A's indexer of layer {} selects, B's selects {:.2} %, the fewest of {} measured.",
                    worst.layer,
                    100.0 * worst.recall,
                    count(self.selection.effects.len(), "indexer")
                ),
            };
            writeln!(text, "{}", wrap(&line, WIDTH, ""))?;
        }
        Ok(())
    }

    fn write_mixes(&self, text: &mut String) -> fmt::Result {
        if self.mixes.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\nB's mixes and gates from A's: fp64, {} tokens of normal inputs, rel_l2",
            mixing::TOKENS
        )?;
        writeln!(
            text,
            "{:<10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "site", "mixes", "max abs", "pre", "post", "comb"
        )?;
        for effect in &self.mixes {
            writeln!(
                text,
                "{:<10} {:>9} {:>9} {:>9} {:>9} {:>9}",
                effect.place,
                figure(effect.mixes.rel_l2),
                figure(effect.mixes.max_abs),
                figure(effect.pre.rel_l2),
                figure(effect.post.rel_l2),
                figure(effect.comb.rel_l2)
            )?;
        }
        Ok(())
    }

    fn write_selection(&self, text: &mut String) -> fmt::Result {
        let Some(model) = &self.a.model().indexer else {
            return Ok(());
        };
        let Selection {
            differing,
            effects,
            left_out,
        } = &self.selection;
        if !effects.is_empty() {
            let context = selection::context(model);
            let heading = format!(
                "\nB's selection from A's: fp64, {} of {} keys, the last {} of {context} tokens of normal inputs{}",
                model.topk,
                context / model.ratio,
                selection::QUERIES,
                match differing.len() > effects.len() {
                    true => "; the first, middle and last layer of those that differ",
                    false => "",
                }
            );
            writeln!(text, "{}", wrap(&heading, WIDTH, ""))?;
            writeln!(
                text,
                "{:<10} {:>9} {:>12} {:>14}",
                "layer", "logits", "mean recall", "least recall"
            )?;
        }
        for effect in effects {
            writeln!(
                text,
                "{:<10} {:>9} {:>12.4} {:>14.4}",
                effect.layer,
                figure(effect.logits.rel_l2),
                effect.recall,
                effect.least_recall
            )?;
        }
        for why in left_out {
            let note = format!("not compared: {}", printable(why));
            writeln!(text, "{}", wrap(&note, WIDTH, "  "))?;
        }
        Ok(())
    }

    fn write_changes(&self, text: &mut String) -> fmt::Result {
        if self.comparison.changes.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "\n{:<NAME$} {:<7} {:<7} {:>8} {:>8} {:>8}",
            "tensors that differ", "in A", "in B", "rel_l2", "max abs", "changed"
        )?;
        self.comparison
            .changes
            .iter()
            .try_for_each(|change| write_change(text, change))
    }

    /// Tensors that only one has, and constants that are not the same.
    fn write_rest(&self, text: &mut String) -> fmt::Result {
        for (name, items) in [
            ("A", &self.comparison.only_a),
            ("B", &self.comparison.only_b),
        ] {
            if !items.is_empty() {
                writeln!(text)?;
            }
            for Item { official, .. } in items {
                writeln!(text, "only in {name}: {official}")?;
            }
        }
        let others = constants(self.a.model(), self.b.model());
        for Constant { what, a, b, used } in &others {
            let line = format!("{what} is {a} in A and {b} in B; {used}");
            writeln!(text, "{}", wrap(&line, WIDTH, "  "))?;
        }
        for (name, checkpoint) in [("A", &self.a), ("B", &self.b)] {
            for note in &checkpoint.model().notes {
                let note = format!("note on {name}: {}", printable(note));
                writeln!(text, "{}", wrap(&note, WIDTH, "  "))?;
            }
        }
        Ok(())
    }
}

fn write_change(text: &mut String, change: &Change) -> fmt::Result {
    let name = &change.a.official;
    if name.chars().count() > NAME {
        writeln!(text, "{name}")?;
        write!(text, "{:NAME$}", "")?;
    } else {
        write!(text, "{name:<NAME$}")?;
    }
    let [a, b] = [&change.a, &change.b].map(|item| printable(&item.dtype));
    write!(text, " {a:<7} {b:<7}")?;
    match &change.difference {
        Difference::Values(distance) => writeln!(
            text,
            " {:>8} {:>8} {:>8}",
            figure(distance.rel_l2),
            figure(distance.max_abs),
            distance.changed
        ),
        Difference::Shape => writeln!(text, " {:?} and {:?}", change.a.shape, change.b.shape),
        Difference::Undecoded => writeln!(text, " {:>26}", "other bytes, not decoded"),
        Difference::NoScales { of } => {
            writeln!(text, " {:>26}", format!("no block scales in {of}"))
        }
    }
}

/// Three digits, and NaN and inf as such.
fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value.is_finite() => format!("{value:.2e}"),
        value => value.to_string(),
    }
}

/// A value of the configurations.
struct Constant {
    what: &'static str,
    a: String,
    b: String,
    /// Which of the two is in the figures.
    used: &'static str,
}

/// What the configurations, not the tensors, say otherwise.
fn constants(a: &Model, b: &Model) -> Vec<Constant> {
    const OF_A: &str = "A's is used for both";
    let unknown = || "unknown".to_owned();
    let number = |value: Option<usize>| value.map_or_else(unknown, |value| value.to_string());
    let named = |what, used, value: &dyn Fn(&Model) -> String| Constant {
        what,
        a: value(a),
        b: value(b),
        used,
    };
    let all = [
        named("hc_eps", OF_A, &|model| format!("{:e}", model.hc_eps)),
        named("norm eps", OF_A, &|model| format!("{:e}", model.norm_eps)),
        named("hc_sinkhorn_iters", OF_A, &|model| {
            model.sinkhorn_iters.to_string()
        }),
        named("index_topk", OF_A, &|model| number(model.index_topk)),
        named("the rope of compressed keys", OF_A, &|model| {
            let indexer = model.indexer.as_ref();
            indexer.map_or_else(unknown, |indexer| indexer.rope.to_string())
        }),
        named("weight_block_size", "each is read by its own", &|model| {
            format!("{:?}", model.weight_block)
        }),
        named("swiglu_limit", "no figure here has it", &|model| {
            model.swiglu_limit.to_string()
        }),
    ];
    all.into_iter()
        .filter(|constant| constant.a != constant.b)
        .collect()
}
