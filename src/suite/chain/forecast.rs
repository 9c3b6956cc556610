//! From a chain's rows to what a deeper model can expect.

use crate::{
    measure::{
        growth::{Curve, Forecast, Model, SeedForecast, over_seeds},
        value::Value,
    },
    report::{
        Growth, HeldOut, Record,
        number::sci,
        summary::{at_stage, median, suite_rows, variants},
    },
};

/// The layers of V4-Flash: what a law is fitted to.
const FITTED: u32 = 43;
/// The layers of V4-Pro: what it is asked about.
const ASKED: u32 = 61;

/// A forecast per variant: of 61 layers, from at most 43 of them.
#[must_use]
pub fn forecasts(records: &[Record]) -> Vec<Growth> {
    let names = variants(records).into_iter();
    names
        .filter_map(|variant| of_variant(records, variant))
        .collect()
}

fn of_variant(records: &[Record], variant: &str) -> Option<Growth> {
    let rows = at_stage(&suite_rows(records, "chain", variant), "streams");
    let rows: Vec<&Record> = rows
        .into_iter()
        .filter(|row| row.key.site.as_deref() == Some("ffn"))
        .collect();
    let mut seeds: Vec<u64> = rows.iter().map(|row| row.key.seed).collect();
    seeds.dedup();
    let points = |seed: u64| -> (Vec<u32>, Vec<f64>) {
        let of_seed = rows.iter().filter(|row| row.key.seed == seed);
        let fitted = of_seed.filter_map(|row| {
            let depth = row.key.depth.filter(|depth| *depth <= FITTED)?;
            Some((depth, row.measures.value("rel_l2")?))
        });
        fitted.unzip()
    };
    let points: Vec<_> = seeds.into_iter().map(points).collect();
    let curves: Vec<Curve<'_>> = points
        .iter()
        .map(|(depths, values)| Curve { depths, values })
        .collect();
    // A chain that begins further up has another depth behind it than its layers say.
    if points.iter().any(|(depths, _)| depths.first() != Some(&1)) {
        return None;
    }
    let fitted = points
        .iter()
        .flat_map(|(depths, _)| depths)
        .max()
        .copied()?;
    let Forecast {
        depth,
        spread,
        seeds,
    } = over_seeds(&curves, ASKED);
    let there = rows.iter().filter(|row| row.key.depth == Some(ASKED));
    let measured = there
        .filter_map(|row| row.measures.value("rel_l2"))
        .collect();
    Some(Growth {
        variant: variant.to_owned(),
        fitted,
        depth,
        laws: seeds.iter().map(law).collect(),
        held_out: Model::ALL
            .into_iter()
            .filter_map(|model| held_out(model, &seeds))
            .collect(),
        low: spread.map(|spread| Value(spread.low)),
        median: spread.map(|spread| Value(spread.median)),
        high: spread.map(|spread| Value(spread.high)),
        measured: median(measured).map(Value),
    })
}

/// A seed's law with its numbers, or why it has none.
fn law(seed: &SeedForecast) -> String {
    match &seed.growth {
        Err(reason) => reason.to_string(),
        Ok(growth) => {
            let (intercept, slope) = (growth.line.intercept, growth.line.slope);
            match growth.model {
                Model::Power => format!("{}·L^{slope:.2}", sci(libm::exp(intercept), 3)),
                Model::Linear => format!("{} + {}·L", sci(intercept, 3), sci(slope, 3)),
                Model::Variance => format!("sqrt({} + {}·L)", sci(intercept, 3), sci(slope, 3)),
            }
        }
    }
}

/// The median error of prediction of a model over the seeds in which it is not out.
fn held_out(model: Model, seeds: &[SeedForecast]) -> Option<HeldOut> {
    let of_seed = |seed: &SeedForecast| {
        let trials = seed.growth.as_ref().ok()?.trials;
        trials
            .into_iter()
            .find(|trial| trial.model == model)?
            .held_out
            .ok()
    };
    let errors: Vec<f64> = seeds.iter().filter_map(of_seed).collect();
    let law = match model {
        Model::Power => "power",
        Model::Linear => "linear",
        Model::Variance => "variance",
    };
    Some(HeldOut {
        law: law.to_owned(),
        error: Value(median(errors)?),
    })
}
