//! What all of it rests on.

use maud::{Markup, html};

use super::Section;
use crate::report::{
    Report,
    html::markup::{Table, command},
    number::plain,
    printable,
    table::certificate,
};

pub fn section(report: &Report) -> Section {
    let certified = report.certificate.as_ref().map(certificate);
    Section {
        id: "provenance",
        title: "Provenance",
        body: html! {
            (command(&quoted(&report.run.command)))
            dl {
                @for (name, value) in facts(report) {
                    div { dt { (name) } dd { (printable(&value)) } }
                }
            }
            @if let Some(sentence) = certified { p { (sentence) } }
            @for note in &report.run.checkpoint.notes { p { "Note: " (printable(note)) } }
            @for (variant, found) in &report.run.backend.probed {
                p { (printable(variant)) " " (printable(found)) " (probed)." }
            }
            (compiled(report))
            (recipes(report))
        },
    }
}

/// The command line as a shell takes it.
fn quoted(words: &[String]) -> String {
    let words = words.iter().map(String::as_str);
    shlex::Quoter::new()
        .allow_nul(true)
        .join(words)
        .unwrap_or_default()
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let (run, checkpoint, backend) = (&report.run, &report.run.checkpoint, &report.run.backend);
    let dtypes = checkpoint.dtypes.iter();
    let dtypes: Vec<String> = dtypes
        .map(|(kind, dtype)| format!("{kind} {dtype}"))
        .collect();
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut facts = vec![
        (
            "Weights",
            format!("{}, {}", checkpoint.kind.shout(), checkpoint.source),
        ),
        ("Digest of the tensors", checkpoint.digest.clone()),
        (
            "Model",
            format!(
                "{}, {} layers, hidden {}, {} streams",
                checkpoint.family, checkpoint.layers, checkpoint.hidden, checkpoint.hc
            ),
        ),
        ("Stored as", dtypes.join(", ")),
        ("Tokens", run.tokens.to_string()),
        ("Inputs", run.inputs.clone()),
        ("Seed", run.seed.to_string()),
        (
            "Backend that ran",
            format!("{} {}", backend.name, backend.arch),
        ),
        ("Device", optional(&backend.device)),
        ("Driver", optional(&backend.driver)),
        ("NVRTC", optional(&backend.nvrtc)),
        ("Own kernels", backend.kernels.join(", ")),
        ("Compiler options", backend.options.join(" ")),
        ("Library", optional(&backend.library)),
        (
            "Tool",
            format!("{} {}", report.tool.name, report.tool.version),
        ),
        (
            "Report",
            format!(
                "layout {}, {} rows",
                report.schema_version,
                report.records.len()
            ),
        ),
    ];
    if let Some(host) = &report.host {
        let machine = format!("{}, {} threads, {}", host.platform, host.threads, host.simd);
        facts.push(("Machine", machine));
        let seconds = host
            .seconds
            .map(|seconds| format!("{} s", plain(seconds.0, 3)));
        facts.push(("Took", seconds.unwrap_or_default()));
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

fn compiled(report: &Report) -> Markup {
    let rows = report.compiled.iter().flat_map(|(file, texts)| {
        texts
            .iter()
            .map(move |text| vec![file.clone(), text.clone()])
    });
    let table = Table::new(
        "Macros that the kernels were compiled with",
        &["file", "macros"],
        2,
    );
    let table = table.with_rows(rows);
    html! { @if !table.rows.is_empty() { (table.folded()) } }
}

fn recipes(report: &Report) -> Markup {
    let text =
        |recipe: &serde_json::Value| serde_json::to_string_pretty(recipe).unwrap_or_default();
    html! {
        @if !report.recipes.is_empty() {
            h3 { "Recipes" }
            @for (name, recipe) in &report.recipes {
                details {
                    summary { (printable(name)) }
                    pre role="region" aria-label={ "Recipe " (printable(name)) } tabindex="0" { (text(recipe)) }
                }
            }
        }
    }
}
