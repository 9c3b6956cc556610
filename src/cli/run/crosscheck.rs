//! `run --crosscheck`: a device against the emulator of its arch, on the cases of the run.

use std::{fmt::Write, process::ExitCode};

use comfy_table::{CellAlignment, Table, presets};

use super::{args::RunArgs, products::Products, progress};
use crate::{
    backend::emulate::Emulate,
    cli::{exit, print},
    recipe::splits::Launch,
    suite::{
        Plan,
        case::Case,
        crosscheck::{self, COMPARED, Compared, Difference},
    },
};

/// The differences of one variant, over all cases.
struct Row<'a> {
    variant: &'a str,
    stages: Vec<Difference>,
}

/// Compares every variant at every site; 1 if a stage differs whose every bit has to agree.
///
/// # Errors
/// A case cannot be read, or a backend cannot run it.
pub fn run(args: &RunArgs, plan: &Plan<'_>, products: &Products) -> anyhow::Result<ExitCode> {
    let emulate = Emulate::new(plan.backend.info().arch, plan.level);
    let progress = progress::Bar::new(args.quiet);
    let mut rows: Vec<Row<'_>> = plan
        .recipes
        .iter()
        .map(|recipe| Row {
            variant: &recipe.name,
            stages: Vec::new(),
        })
        .collect();
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
                crosscheck::compare(&emulate, plan.backend, recipe, &case, launch, &COMPARED)?;
            row.add(found);
        }
        progress.tell(index + 1, places.len(), &case.place());
    }
    drop(progress);
    let mut text = describe(plan, cases, &rows);
    if !products.is_empty() {
        let _ = writeln!(
            text,
            "Left out: {products}, which can be measured and not emulated"
        );
    }
    print::result(&text)?;
    let agrees = rows.iter().all(Row::agrees);
    Ok(ExitCode::from(if agrees && cases > 0 {
        exit::GOOD
    } else {
        exit::CHECK_FAILED
    }))
}

impl Row<'_> {
    fn add(&mut self, found: Vec<Difference>) {
        if self.stages.is_empty() {
            self.stages = found;
            return;
        }
        for (so_far, more) in self.stages.iter_mut().zip(found) {
            so_far.elements += more.elements;
            so_far.differing += more.differing;
            if more.ulps > so_far.ulps {
                so_far.ulps = more.ulps;
            }
            so_far.first = so_far.first.or(more.first);
        }
    }

    /// The stages whose every bit has to agree, and does not.
    fn wrong(&self) -> impl Iterator<Item = &Difference> {
        let exact = self.stages.iter().filter(|found| found.stage.is_exact());
        exact.filter(|found| found.differing > 0)
    }

    fn agrees(&self) -> bool {
        self.wrong().next().is_none()
    }
}

fn describe(plan: &Plan<'_>, cases: usize, rows: &[Row<'_>]) -> String {
    let info = plan.backend.info();
    let device = info.device.map_or_else(String::new, |device| {
        format!(
            "{} (driver {}, NVRTC {})",
            device.name, device.driver, device.nvrtc
        )
    });
    let mut text = format!(
        "Crosscheck of {device} against the emulator of {}, {cases} sites of {}, inputs {}\n\
         Elements whose bits differ, of all; in brackets the largest difference in ulps of fp32.\n\n",
        info.arch,
        plan.checkpoint.source(),
        plan.inputs
    );
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(std::iter::once("variant").chain(COMPARED.map(Compared::name)));
    for row in rows {
        let cells = row.stages.iter().map(|found| match found.differing {
            0 => format!("0 of {}", found.elements),
            differing => format!("{differing} of {} ({})", found.elements, found.ulps),
        });
        table.add_row(std::iter::once(row.variant.to_owned()).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    for row in rows {
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
    }
    text
}
