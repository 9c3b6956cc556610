//! `run --crosscheck`: a device against the emulator of its arch, on the cases of the run.

use std::{fmt::Write, process::ExitCode};

use comfy_table::{CellAlignment, Table, presets};

use super::{args::RunArgs, progress, settings::Settings, suite::Suite};
use crate::{
    backend::emulate::Emulate,
    cli::{exit, print},
    recipe::splits::Launch,
    suite::{
        Plan,
        case::Case,
        crosscheck::{self, COMPARED, Compared, Row},
        indexer::{self, IndexPlan},
    },
};

/// What one suite's crosscheck found.
struct Found {
    /// What it is of, such as "86 sites".
    cases: String,
    /// Whether there is any.
    is_empty: bool,
    stages: &'static [Compared],
    rows: Vec<Row>,
    /// Lines about what was left out.
    left_out: Vec<String>,
}

/// Compares every variant of the suites asked for; 1 if a stage differs whose every bit has to agree.
///
/// # Errors
/// A case cannot be read, or a backend cannot run it.
pub fn run(args: &RunArgs, plan: &Plan<'_>, settings: &Settings) -> anyhow::Result<ExitCode> {
    let emulate = Emulate::new(plan.backend.info().arch, plan.level);
    let mut agrees = true;
    let mut text = String::new();
    if settings.suites.contains(&Suite::Mix) {
        let found = mix(args, plan, settings, &emulate)?;
        agrees &= found.agrees();
        text += &found.describe(plan);
    }
    if let (true, Some(own)) = (settings.suites.contains(&Suite::Indexer), &settings.index) {
        let found = indexed(args, plan, own, &emulate)?;
        agrees &= found.agrees();
        let apart = if text.is_empty() { "" } else { "\n" };
        text += apart;
        text += &found.describe(plan);
    }
    print::result(&text)?;
    Ok(ExitCode::from(match agrees {
        true => exit::GOOD,
        false => exit::CHECK_FAILED,
    }))
}

/// The mixing kernel, at every site.
fn mix(
    args: &RunArgs,
    plan: &Plan<'_>,
    settings: &Settings,
    emulate: &Emulate,
) -> anyhow::Result<Found> {
    let progress = progress::Bar::new(args.quiet);
    progress.begin(Suite::Mix.name(), "sites");
    let names = plan.recipes.iter().map(|recipe| Row::new(&recipe.name));
    let mut rows: Vec<Row> = names.collect();
    let places: Vec<_> = plan
        .layers
        .iter()
        .flat_map(|&layer| plan.sites.iter().map(move |&site| (layer, site)))
        .collect();
    let mut cases = 0;
    for (index, &(layer, site)) in places.iter().enumerate() {
        let tokens = plan.tokens_at(layer, site);
        let Some(case) = Case::load(plan, layer, site, 0..tokens)? else {
            continue;
        };
        cases += 1;
        let launch = Launch {
            tokens,
            sms: plan.sms,
        };
        for (row, recipe) in rows.iter_mut().zip(plan.recipes) {
            let found =
                crosscheck::compare(emulate, plan.backend, recipe, &case, launch, &COMPARED)?;
            row.add(found);
        }
        progress.tell(index + 1, places.len(), &case.place());
    }
    let products = &settings.products;
    let products = (!products.is_empty())
        .then(|| format!("Left out: {products}, which can be measured and not emulated"));
    Ok(Found {
        cases: format!("{cases} sites"),
        is_empty: cases == 0,
        stages: &COMPARED,
        rows,
        left_out: products.into_iter().collect(),
    })
}

/// The indexer, at every layer that has one.
fn indexed(
    args: &RunArgs,
    plan: &Plan<'_>,
    own: &IndexPlan,
    emulate: &Emulate,
) -> anyhow::Result<Found> {
    let progress = progress::Bar::new(args.quiet);
    progress.begin(Suite::Indexer.name(), "layers");
    let tell = |done, total, place: &str| {
        progress.tell(done, total, place);
        Ok(())
    };
    let found = indexer::crosscheck::run(plan, own, emulate, &tell)?;
    let skipped = found.read.skipped.iter();
    Ok(Found {
        cases: format!("the indexer of {} layers and contexts", found.cases),
        is_empty: found.rows.is_empty(),
        stages: &indexer::crosscheck::COMPARED,
        rows: found.rows,
        left_out: skipped
            .map(|skip| format!("Left out: {}: {}", skip.what, skip.why))
            .collect(),
    })
}

impl Found {
    fn agrees(&self) -> bool {
        !self.is_empty && self.rows.iter().all(Row::agrees)
    }

    fn describe(&self, plan: &Plan<'_>) -> String {
        let info = plan.backend.info();
        let device = info.device.map_or_else(String::new, |device| {
            format!(
                "{} (driver {}, NVRTC {})",
                device.name, device.driver, device.nvrtc
            )
        });
        let mut text = format!(
            "Crosscheck of {device} against the emulator of {}, {} of {}, inputs {}\n\
             Elements whose bits differ, of all; in brackets the largest difference in ulps of fp32.\n\n",
            info.arch,
            self.cases,
            plan.checkpoint.source(),
            plan.inputs
        );
        let _ = writeln!(text, "{}", self.table().trim_fmt());
        for row in &self.rows {
            text += &first_differences(row);
        }
        for line in &self.left_out {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let names = self.stages.iter().map(|stage| stage.name());
        table.set_header(std::iter::once("variant").chain(names));
        for row in &self.rows {
            let cells = self.stages.iter().map(|stage| {
                let found = row.stages.iter().find(|found| found.stage == *stage);
                match found {
                    None => "-".to_owned(),
                    Some(found) if found.differing == 0 => format!("0 of {}", found.elements),
                    // Keys are no numbers that could be some ulps apart.
                    Some(found) if *stage == Compared::TopK => {
                        format!("{} of {}", found.differing, found.elements)
                    }
                    Some(found) => {
                        format!("{} of {} ({})", found.differing, found.elements, found.ulps)
                    }
                }
            });
            table.add_row(std::iter::once(row.variant.clone()).chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// A line per stage whose bits have to agree, and do not.
fn first_differences(row: &Row) -> String {
    let mut text = String::new();
    for (stage, first) in row
        .wrong()
        .filter_map(|found| Some((found.stage.name(), found.first?)))
    {
        let _ = writeln!(
            text,
            "{}: {stage} differs first at element {}: {:e} ({:08x}) emulated, {:e} ({:08x}) on the device",
            row.variant,
            first.index,
            first.one,
            first.one.to_bits(),
            first.other,
            first.other.to_bits()
        );
    }
    text
}
