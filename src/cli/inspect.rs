//! `ulpdrift inspect CHECKPOINT`: which tensors of interest are there, what their values look
//! like, and what is missing; with `--against`, how they differ from another checkpoint's.

mod against;

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use rayon::prelude::*;

use super::{exit, print};
use crate::{
    checkpoint::{Checkpoint, CheckpointError, Group, Inventory, Item, ReadBuffers, TensorStats},
    report::{printable, style, wrap},
};

/// List the hyper-connection, indexer and norm tensors of a checkpoint.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift inspect ~/models/DeepSeek-V4-Flash                what is there, what is missing
  ulpdrift inspect deepseek-ai/DeepSeek-V4-Flash --only hc   from the local Hugging Face cache
  ulpdrift inspect ORIGINAL --against CONVERTED              what a conversion or fine-tune changed")]
pub struct InspectArgs {
    /// A directory with model.safetensors.index.json or .safetensors files, such files with commas between,
    /// ORG/MODEL or ORG/MODEL@REVISION of the local Hugging Face cache, or synthetic:flash|pro|v4.1|tiny.
    pub checkpoint: String,
    /// Only these tensors.
    #[arg(long, value_name = "WHICH")]
    pub only: Option<Only>,
    /// Show how this checkpoint's tensors differ instead, and what that alone does to mixes and selected keys, in fp64.
    #[arg(long, value_name = "CHECKPOINT")]
    pub against: Option<String>,
}

/// A choice of tensors to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Hyper-connections, the head's included.
    Hc,
    /// The indexer and the query projection that feeds it.
    Indexer,
    /// RMS norm weights.
    Norms,
}

impl Only {
    fn admits(self, group: Group) -> bool {
        match self {
            Self::Hc => matches!(group, Group::Hc | Group::Head),
            Self::Indexer => group == Group::Indexer,
            Self::Norms => matches!(group, Group::Norm | Group::Mtp),
        }
    }
}

/// Prints the list.
///
/// # Errors
///
/// If there is nothing to inspect, or a tensor cannot be read.
pub fn run(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.against {
        None => render(args)?,
        Some(other) => against::render(&args.checkpoint, other, args.only)?,
    };
    print::result(&text)?;
    Ok(ExitCode::from(exit::GOOD))
}

/// The list as painted text of at most 80 columns, paths and names that need more apart.
///
/// # Errors
///
/// As [`run`].
pub fn render(args: &InspectArgs) -> Result<String, CheckpointError> {
    let checkpoint = Checkpoint::open_for_inspection(&args.checkpoint)?;
    let Inventory {
        items,
        mtp,
        mut missing,
    } = checkpoint.inventory();
    let admits = |group| args.only.is_none_or(|only| only.admits(group));
    missing.retain(|name| Group::of(name).is_none_or(admits));
    let all = items.into_iter().chain(mtp);
    let items: Vec<Item> = all.filter(|item| admits(item.group)).collect();
    // From the back, because names sort a scale before its weight, and a synthetic scale comes for
    // nothing after it.
    let mut rows: Vec<Row> = items
        .into_par_iter()
        .rev()
        .map_init(ReadBuffers::default, |buffers, item| {
            let stats = checkpoint.stats(&item, buffers)?;
            Ok(Row { item, stats })
        })
        .collect::<Result<_, CheckpointError>>()?;
    rows.reverse();

    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_all(&mut text, &checkpoint, &rows, &missing);
    Ok(text)
}

/// A tensor and, if its type is one the tool decodes, its statistics.
struct Row {
    item: Item,
    stats: Option<TensorStats>,
}

fn write_all(
    text: &mut String,
    checkpoint: &Checkpoint,
    rows: &[Row],
    missing: &[String],
) -> fmt::Result {
    write_title(text, checkpoint)?;
    let mut heading = None;
    for row in rows {
        let title = title(&row.item);
        if heading.as_ref() != Some(&title) {
            writeln!(
                text,
                "\n{title:<NAME$} {:<SHAPE$} {:<7} {:>7} {:>7} {:>7}",
                "shape", "dtype", "rms", "abs max", "NaN,Inf"
            )?;
            heading = Some(title);
        }
        write_row(text, row)?;
    }
    write_remarks(text, checkpoint, rows, missing)
}

/// What a row's tensor belongs to.
fn title(item: &Item) -> String {
    match (item.layer, item.mtp) {
        (None, _) => "whole model".to_owned(),
        (Some(layer), false) => format!("layer {layer}"),
        (Some(_), true) => {
            let name = item
                .stored
                .strip_suffix(&short_name(item))
                .unwrap_or(&item.official);
            format!(
                "MTP {}, not measured",
                printable(name.trim_end_matches('.'))
            )
        }
    }
}

fn write_title(text: &mut String, checkpoint: &Checkpoint) -> fmt::Result {
    let kind = style::weights(checkpoint.kind());
    let model = checkpoint.model();
    writeln!(text, "{}: {kind} weights", printable(checkpoint.source()))?;
    if let Some(commit) = checkpoint.revision() {
        writeln!(text, "commit {commit} of the Hugging Face cache")?;
    }
    writeln!(
        text,
        "family {}, hidden {}, {} streams (K = {}), {} of {} layers",
        model.family,
        model.hidden,
        model.hc,
        model.width(),
        checkpoint.layers().len(),
        model.layers
    )?;
    writeln!(
        text,
        "Sinkhorn iterations {}, hc_eps {:e}, norm eps {:e}, index top-k {}",
        model.sinkhorn_iters,
        model.hc_eps,
        model.norm_eps,
        model
            .index_topk
            .map_or("unknown".to_owned(), |k| k.to_string())
    )
}

/// Column widths: the longest official name within a layer, and `[8192,1536]`.
const NAME: usize = 36;
/// All columns together.
const WIDTH: usize = 80;
const SHAPE: usize = 11;

fn write_row(text: &mut String, row: &Row) -> fmt::Result {
    let name = short_name(&row.item);
    if name.chars().count() > NAME {
        writeln!(text, "{name}")?;
        write!(text, "{:NAME$}", "")?;
    } else {
        write!(text, "{name:<NAME$}")?;
    }
    let dims: Vec<String> = row.item.shape.iter().map(usize::to_string).collect();
    let shape = format!("[{}]", dims.join(","));
    write!(text, " {shape:<SHAPE$} {:<7}", printable(&row.item.dtype))?;
    match row.stats {
        Some(stats) => writeln!(
            text,
            " {:>7} {:>7} {:>7}",
            format!("{:.2e}", stats.rms),
            format!("{:.2e}", stats.abs_max),
            stats.nonfinite
        ),
        None => writeln!(text, " {:>7} {:>7} {:>7}", "-", "-", "-"),
    }
}

/// The stored name, less what the heading says.
fn short_name(item: &Item) -> String {
    let name = match item.layer {
        Some(layer) => {
            let markers = [format!("layers.{layer}."), format!("mtp.{layer}.")];
            let rest = |marker: &String| Some(item.stored.split_once(marker)?.1);
            markers.iter().find_map(rest).unwrap_or(&item.stored)
        }
        None => &item.stored,
    };
    printable(name)
}

fn write_remarks(
    text: &mut String,
    checkpoint: &Checkpoint,
    rows: &[Row],
    missing: &[String],
) -> fmt::Result {
    writeln!(text)?;
    let nonfinite: Vec<&Row> = rows
        .iter()
        .filter(|row| row.stats.is_some_and(|stats| stats.nonfinite > 0))
        .collect();
    for row in &nonfinite {
        writeln!(
            text,
            "{}: {} in {}",
            style::failure("non-finite"),
            printable(&row.item.stored),
            printable(&row.item.file)
        )?;
    }
    let lossy = |dtype: &str| {
        let is_lossy = |row: &&Row| {
            row.item.group == Group::Hc
                && row.item.official.ends_with("_fn")
                && row.item.dtype == dtype
        };
        rows.iter().filter(is_lossy).count()
    };
    for (dtype, rounding) in [("BF16", "1.6e-3"), ("F16", "2.1e-4")] {
        let count = lossy(dtype);
        if count > 0 {
            writeln!(
                text,
                "{count} hc_fn are stored as {dtype}: already a loss, about {rounding} rel_l2 of \
                 the mixes\nagainst F32 weights, which nothing measured here can show"
            )?;
        }
    }
    if rows.iter().any(|row| row.item.dtype == "F8_E4M3") {
        writeln!(text, "F8_E4M3 values are codes, without their block scales")?;
    }
    let model = checkpoint.model();
    let has_all_layers = checkpoint.layers().len() >= model.layers;
    for note in &model.notes {
        writeln!(
            text,
            "{}",
            wrap(&format!("note: {}", printable(note)), WIDTH, "  ")
        )?;
    }
    match missing {
        [] if has_all_layers => writeln!(text, "missing: nothing"),
        [] => writeln!(text, "missing in the layers that are here: nothing"),
        names => names
            .iter()
            .try_for_each(|name| writeln!(text, "{}: {name}", style::caution("missing"))),
    }
}
