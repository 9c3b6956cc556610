//! One row in words.

use super::{
    Block, Paragraph,
    help::summary,
    indexer,
    parts::Parts,
    stage, texts,
    words::{error, list, percent},
};
use crate::{
    recipe::catalogue::DEFAULT_AGAINST,
    report::{
        Kernel, Key, Record, Report,
        number::{count, plain, sci},
        reproduce,
        summary::{at_stage, deepest_streams, suite_rows, variants, worst},
    },
};

/// Everything about one row but what would help.
pub fn block(report: &Report, record: &Record) -> Block {
    let key = &record.key;
    let mut paragraphs = vec![what(report, key)];
    paragraphs.extend(size(record));
    paragraphs.extend(non_finite(record));
    paragraphs.extend(worst_element(record));
    paragraphs.extend(Parts::of(record).sentences());
    paragraphs.extend(sources(report, record));
    paragraphs.extend(drift(record));
    paragraphs.extend(of_suite(record));
    paragraphs.extend(indexer::selection(record));
    paragraphs.extend(against(report, record));
    paragraphs.extend(downstream(report, record));
    paragraphs.push("To measure this row alone:".to_owned());
    let mut paragraphs = texts(paragraphs);
    paragraphs.push(Paragraph::Command(reproduce(report, key)));
    Block {
        title: key.words(),
        paragraphs,
    }
}

/// Which experiment it is.
fn what(report: &Report, key: &Key) -> String {
    let mut sentences = vec![stage::suite(key)];
    let stage = stage::stage(key);
    if !stage.is_empty() {
        sentences.push(stage);
    }
    let kernel = Kernel::of(&key.suite);
    let variant = match summary(report, kernel, &key.variant) {
        Some(text) => format!("Variant {}: {text}.", key.variant),
        None => format!(
            "Variant {}, which the report describes no further.",
            key.variant
        ),
    };
    if key.direction.is_none() {
        sentences.push(variant);
    }
    if let Some(splits) = key.splits.filter(|&splits| splits > 1) {
        sentences.push(format!("Here its sum over K is cut into {splits} parts."));
    }
    if let Some(fault) = &key.fault {
        sentences.push(format!(
            "The known bug {fault} was built into it (`ulpdrift variants --faults`)."
        ));
    }
    if let (Some(residual), Some(layer_io)) = (&key.residual, &key.layer_io) {
        sentences.push(format!(
            "The streams are stored in {residual}, layer inputs and outputs in {layer_io}."
        ));
    }
    sentences.push(format!(
        "{} weights, {} on {}, {} tokens, inputs {}, seed {}.",
        report.run.checkpoint.kind.shout(),
        key.backend,
        key.arch,
        key.tokens,
        key.inputs,
        key.seed
    ));
    sentences.join(" ")
}

/// How large the error is.
fn size(record: &Record) -> Option<String> {
    let rel_l2 = record.measures.value("rel_l2")?;
    let mut text = format!("How large: rel_l2 {}", error(rel_l2));
    if rel_l2.is_finite() && rel_l2 > 0.0 {
        text.push_str(&format!(
            ", an error of 1 part in {} of the truth",
            plain(1.0 / rel_l2, 3)
        ));
    }
    if let (Some(mean), Some(max)) = (
        record.measures.value("ulp_mean"),
        record.measures.value("ulp_max"),
    ) {
        text.push_str(&format!(
            "; in units of the last place of what the stage is stored in, {} on average and {} at most (ulp_mean, ulp_max)",
            plain(mean, 3),
            plain(max, 3)
        ));
    }
    if let Some(gap) = record.measures.value("cosine_gap") {
        text.push_str(&format!(
            "; it turns the direction by a cosine_gap of {}",
            error(gap)
        ));
    }
    Some(text + ".")
}

/// Values that are no numbers, if there are any.
fn non_finite(record: &Record) -> Option<String> {
    let counts = [
        ("nan_got", "NaN where the variant computed them"),
        ("inf_got", "infinite where the variant computed them"),
        ("class_mismatch", "finite on one side and not on the other"),
    ];
    let said: Vec<String> = counts
        .iter()
        .filter_map(|(name, words)| {
            let found = record.measures.value(name).filter(|found| *found != 0.0)?;
            Some(format!("{found} {words} ({name})"))
        })
        .collect();
    (!said.is_empty()).then(|| format!("Outputs that are no numbers: {}.", list(&said)))
}

fn worst_element(record: &Record) -> Option<String> {
    let measures = &record.measures;
    let (index, got, truth) = (
        measures.worst_index?,
        measures.worst_got?,
        measures.worst_ref?,
    );
    let mut text = format!(
        "The worst element, number {index}, is {} where the truth is {}",
        sci(got.0, 6),
        sci(truth.0, 6)
    );
    if let Some(condition) = measures.worst_condition {
        text.push_str(&format!(
            "; the terms of its sum come to {} times what is left of them (worst_condition)",
            plain(condition.0, 3)
        ));
    }
    Some(text + ".")
}

/// The budget of the row's case, source by source, or how to get it.
fn sources(report: &Report, record: &Record) -> Option<String> {
    let key = &record.key;
    if key.suite == "budget" {
        return None;
    }
    let case = |key: &Key| key.without(&["suite", "source", "splits", "sms"]);
    let own = case(key);
    let is_own = |row: &&Record| row.key.suite == "budget" && case(&row.key) == own;
    let rows: Vec<&Record> = report.records.iter().filter(is_own).collect();
    let mut shares: Vec<(f64, &str, f64)> = rows
        .iter()
        .filter_map(|row| {
            let source = row
                .key
                .source
                .as_deref()
                .filter(|source| *source != "total")?;
            Some((
                row.measures.value("share")?,
                source,
                row.measures.value("rel_l2")?,
            ))
        })
        .collect();
    if shares.is_empty() {
        return None;
    }
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let line = |(share, source, rel_l2): &(f64, &str, f64)| {
        let what = stage::source(source).unwrap_or("a source this version does not know");
        format!("{what} {} ({source}, {})", percent(*share), error(*rel_l2))
    };
    let lines: Vec<String> = shares.iter().map(line).collect();
    let total = rows
        .iter()
        .find(|row| row.key.source.as_deref() == Some("total"))
        .and_then(|total| total.measures.value("explained"));
    let total = total.map_or_else(String::new, |explained| {
        format!(
            " Together they come to {} times what is measured (explained).",
            plain(explained, 4)
        )
    });
    Some(format!(
        "Source by source, of the square of them all (suite budget): {}.{total}",
        lines.join(", ")
    ))
}

/// What an accumulator that rounds toward zero should do, as evidence.
fn drift(record: &Record) -> Option<String> {
    let (drift, z) = (
        record.measures.value("drift")?,
        record.measures.value("drift_z")?,
    );
    Some(format!(
        "An accumulator that rounds toward zero is expected to shrink or grow the sums by {} of them (drift); this one is {} \
         standard deviations from that (drift_z), which is evidence and no failure.",
        sci(drift, 2),
        plain(z, 2)
    ))
}

/// What only rows of some suites have.
fn of_suite(record: &Record) -> Vec<String> {
    let key = &record.key;
    let get = |name| record.measures.value(name);
    let mut sentences = Vec::new();
    if let Some(source) = &key.source {
        if let Some(what) = stage::source(source) {
            sentences.push(format!("Source {source}: {what}, alone."));
        }
        if let Some(share) = get("share") {
            sentences.push(format!(
                "It is {} of the square of all sources together (share).",
                percent(share)
            ));
        }
        if let Some(cross) = get("cross") {
            sentences.push(format!(
                "The two are not independent: their cross term is {} of the measured square (cross).",
                percent(cross)
            ));
        }
        if let Some(explained) = get("explained") {
            sentences.push(format!(
                "All sources together come to {} times what is measured (explained).",
                plain(explained, 4)
            ));
        }
    }
    if let Some(gain) = get("gain") {
        let direction = key.direction.as_deref().unwrap_or("some");
        sentences.push(format!(
            "A perturbation in direction {direction} that enters before layer {} is {} times as large at the end, relative \
             to the streams (gain).",
            key.layer.unwrap_or_default(),
            plain(gain, 3)
        ));
    }
    if let Some(changed) = get("row0_changed") {
        sentences.push(match changed {
            0.0 => "Token 0 has the same bits as in the first batch of the sweep (row0_changed 0).".to_owned(),
            changed => format!(
                "Of token 0, {changed} outputs have other bits than in the first batch of the sweep (row0_changed): the \
                 result depends on what else is in the batch."
            ),
        });
    }
    if let (Some(row), Some(column)) = (get("row_sum_dev"), get("col_sum_dev")) {
        sentences.push(format!(
            "The rows and columns of the matrices sum to 1 within {} and {} (row_sum_dev, col_sum_dev).",
            sci(row, 2),
            sci(column, 2)
        ));
    }
    if let Some(time) = get("time_us") {
        sentences.push(format!(
            "The projection takes {} us (time_us).",
            plain(time, 3)
        ));
    }
    sentences
}

/// How far it is from the variant that all are compared with.
fn against(report: &Report, record: &Record) -> Option<String> {
    let distance = record.measures.value("against_rel_l2")?;
    let mut flags = report.run.repeat_flags.iter();
    let named = flags
        .find(|flag| *flag == "--against")
        .and_then(|_| flags.next());
    let other = named.map_or(DEFAULT_AGAINST, String::as_str);
    let changed = record
        .measures
        .value("changed")
        .map_or_else(String::new, |changed| {
            format!(
                "; {} of the outputs have other bits (changed)",
                percent(changed)
            )
        });
    Some(format!(
        "Does it matter which kernel ran: it is {} from {other}'s (against_rel_l2){changed}.",
        error(distance)
    ))
}

/// What becomes of the row's error further on.
fn downstream(report: &Report, record: &Record) -> Vec<String> {
    let key = &record.key;
    match key.suite.as_str() {
        "mix" => layer_input(report, key)
            .into_iter()
            .chain(of_chain(report, &key.variant))
            .collect(),
        "chain" => vec![at_depth(report, record)],
        _ => Vec::new(),
    }
}

/// The same site's row at another stage.
fn at<'a>(report: &'a Report, key: &Key, stage: &str) -> Option<&'a Record> {
    let wanted = Key {
        stage: Some(stage.to_owned()),
        ..key.clone()
    };
    report.records.iter().find(|row| row.key == wanted)
}

/// What is left of it in the layer input.
fn layer_input(report: &Report, key: &Key) -> Option<String> {
    let rel_l2 = |stage| at(report, key, stage)?.measures.value("rel_l2");
    let (y, y_bf16) = (rel_l2("y")?, rel_l2("y_bf16")?);
    Some(format!(
        "Downstream: at this site the layer's input is off by {} before it is rounded to bf16 and by {} after (y, y_bf16).",
        error(y),
        error(y_bf16)
    ))
}

/// What is left of it behind the last layer of the chain.
fn of_chain(report: &Report, variant: &str) -> Option<String> {
    let chain = suite_rows(&report.records, "chain", variant);
    let streams = worst(&deepest_streams(&chain), "rel_l2")?;
    Some(at_depth(report, streams.record))
}

/// A row of a chain beside the other variants' at the same place.
pub fn at_depth(report: &Report, record: &Record) -> String {
    let key = &record.key;
    let of = |key: &Key| key.without(&["variant", "splits"]);
    let own = of(key);
    let others = report
        .records
        .iter()
        .filter(|row| row.key.fault.is_none() && of(&row.key) == own);
    let mut others: Vec<(f64, &str)> = others
        .filter_map(|row| Some((row.measures.value("rel_l2")?, row.key.variant.as_str())))
        .filter(|(value, _)| !value.is_nan())
        .collect();
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let stage = key.stage.as_deref().unwrap_or("output");
    let value = record
        .measures
        .value("rel_l2")
        .map_or_else(|| "nothing known".to_owned(), error);
    let depth = count(key.depth.unwrap_or_default() as usize, "layer");
    let mut text = format!(
        "Along the chain: after {depth}, {stage} of {} is off by {value}",
        key.variant
    );
    if let [least, .., most] = others.as_slice() {
        text.push_str(&format!(
            "; over the variants of this report it is {} ({}) to {} ({})",
            error(least.0),
            least.1,
            error(most.0),
            most.1
        ));
    }
    text + "."
}

/// Where a variant's chain ended before the model did.
pub fn ended(report: &Report, variant: &str) -> Option<String> {
    let at = report.non_finite.iter().find(|at| at.variant == variant)?;
    Some(format!(
        "Its chain ends at {}: {} of token {} is {}; the streams that the token came with are at most {}.",
        at.place,
        at.stage,
        at.token,
        at.value.0,
        error(at.came_with.0)
    ))
}

/// Which recombinations the storage of the streams hides.
pub fn help_of_recombination(report: &Report) -> Vec<String> {
    let rounding = variants(&report.records)
        .into_iter()
        .filter_map(|variant| {
            let rows = suite_rows(&report.records, "recombine", variant);
            let streams = worst(&at_stage(&rows, "streams"), "rel_l2")?;
            let stored = worst(&at_stage(&rows, "streams_bf16"), "rel_l2")?;
            Some((variant, streams.value, stored.value))
        })
        .collect::<Vec<_>>();
    let best = rounding.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let Some((name, streams, stored)) = best else {
        return vec![
            "This report has no rows of suite recombine at both streams and streams_bf16, which would tell what the storage \
             of the streams hides."
                .to_owned(),
        ];
    };
    let line = |(name, streams, _): &(&str, f64, f64)| format!("{name} ({})", error(*streams));
    let (hidden, above): (Vec<_>, Vec<_>) = rounding
        .iter()
        .partition(|(_, streams, _)| streams < stored);
    let mut text = format!(
        "Storing the streams in bf16 costs {} at worst whatever the kernel does ({name} makes them to {} before that).",
        error(*stored),
        error(*streams)
    );
    let names = |rows: &[&(&str, f64, f64)]| {
        let lines: Vec<String> = rows.iter().map(|row| line(row)).collect();
        list(&lines)
    };
    match hidden.as_slice() {
        [] => text.push_str(" No variant of this report is below that."),
        hidden => text.push_str(&format!(
            " Below that at every site: {}. They read and write the same streams, and the report has no time of them: none is \
             known to be cheaper.",
            names(hidden)
        )),
    }
    if !above.is_empty() {
        text.push_str(&format!(" Not below it: {}.", names(&above)));
    }
    vec![text]
}
