//! The budget of one site: what every source brings at `mixes`, `pre`, `post`, `comb` and `y_bf16`.
//!
//! A source's error at a stage is the difference of two states carried there in fp64. Rounding of the operands is taken
//! from the truth, one operand at a time; everything after by telescoping, the state after less the state before. So the
//! errors of all sources sum to what is measured, by construction; what is not is that squares do.

use ndarray::{Array2, ArrayView2, s};
use ulpdrift_reference::mix::{Split, collapse, split_sinkhorn};

use super::{
    mixing::{Mixing, States},
    source::Source,
};
use crate::{
    backend::BackendError,
    format::{Format, Rounding},
    measure::contributions::Products,
    recipe::MixRecipe,
};

/// Tokens whose layer inputs are made at once.
const BLOCK: usize = 16;

/// What every source brings at one stage.
pub struct StageBudget {
    /// Where.
    pub stage: &'static str,
    /// The sources that bring anything, in their order.
    pub sources: Vec<Source>,
    /// Their products with the truth and each other.
    pub products: Products,
}

impl StageBudget {
    /// Appends the tokens that follow. A source that is off by nothing in one part of a batch is off by nothing in all:
    /// what rounds follows from the recipe and from how x is stored.
    pub fn append(&mut self, later: &Self) {
        self.products.append(&later.products);
    }
}

/// The error of a source: states that are added less states that are taken away.
struct Difference {
    source: Source,
    plus: Vec<usize>,
    minus: Vec<usize>,
}

/// Numbers of the states, as stages have them: those of the mixes, then the stage's own.
mod state {
    pub const TRUTH: usize = 0;
    pub const WEIGHT: usize = 1;
    pub const X: usize = 2;
    pub const EXACT: usize = 3;
    pub const PARTIALS: usize = 4;
    pub const SUMMED: usize = 5;
    pub const STORED: usize = 6;
    pub const GOT: usize = 7;
    /// The gates, or the combination, as got; of the layer input, that of the gates as got.
    pub const GATES: usize = 8;
    pub const COLLAPSED: usize = 9;
    pub const ROUNDED: usize = 10;
}

/// The differences of a stage: the sources up to the stored projection, then the stage's own steps.
fn differences(states: &States, own: &[(Source, usize, usize)]) -> Vec<Difference> {
    use state::{EXACT, GOT, PARTIALS, STORED, SUMMED, TRUTH, WEIGHT, X};
    let of = |number: usize| match number {
        TRUTH => &states.truth,
        WEIGHT => &states.weight,
        X => &states.x,
        EXACT => &states.exact,
        PARTIALS => &states.partials,
        SUMMED => &states.summed,
        STORED => &states.stored,
        _ => &states.got,
    };
    let is_same = |a: usize, b: usize| std::sync::Arc::ptr_eq(of(a), of(b));
    let mut differences = Vec::new();
    for (source, after, before) in [(Source::Weight, WEIGHT, TRUTH), (Source::X, X, TRUTH)] {
        if !is_same(after, before) {
            differences.push(Difference {
                source,
                plus: vec![after],
                minus: vec![before],
            });
        }
    }
    if !is_same(EXACT, WEIGHT) && !is_same(EXACT, X) && !is_same(EXACT, TRUTH) {
        differences.push(Difference {
            source: Source::Operands,
            plus: vec![EXACT, TRUTH],
            minus: vec![WEIGHT, X],
        });
    }
    for (source, after, before) in [
        (Source::Unit, PARTIALS, EXACT),
        (Source::SplitSums, SUMMED, PARTIALS),
        (Source::Output, STORED, SUMMED),
    ] {
        if !is_same(after, before) {
            differences.push(Difference {
                source,
                plus: vec![after],
                minus: vec![before],
            });
        }
    }
    // What a stage has of its own is no state of the mixes.
    let own = own
        .iter()
        .filter(|(_, after, before)| *after > GOT || !is_same(*after, *before));
    differences.extend(own.map(|&(source, after, before)| Difference {
        source,
        plus: vec![after],
        minus: vec![before],
    }));
    differences
}

/// The budget of every stage under one recipe.
///
/// # Errors
/// The backend cannot run the recipe.
pub fn budget(
    mixing: &Mixing<'_>,
    recipe: &MixRecipe,
    states: &States,
) -> Result<Vec<StageBudget>, BackendError> {
    let mixes = [
        &states.truth,
        &states.weight,
        &states.x,
        &states.exact,
        &states.partials,
        &states.summed,
        &states.stored,
        &states.got,
    ];
    let split = |mixes: ArrayView2<'_, f64>| split_sinkhorn(mixes, &mixing.case.split_params());
    let splits: Vec<Split> = mixes.iter().map(|mixes| split(mixes.view())).collect();
    let wide = |values: &Array2<f32>| values.mapv(f64::from);
    let made = &states.candidate;
    let views = |of: fn(&Split) -> &Array2<f64>| splits.iter().map(move |split| of(split).view());
    let [pre, post, comb] = [&made.pre, &made.post, &made.comb].map(wide);
    let at = |stage, values: Vec<ArrayView2<'_, f64>>, own: &[(Source, usize, usize)]| {
        small(stage, &values, differences(states, own))
    };
    let (stored, got, gates) = (state::STORED, state::GOT, state::GATES);
    Ok(vec![
        at(
            "mixes",
            mixes.iter().map(|mixes| mixes.view()).collect(),
            &[(Source::Epilogue, got, stored)],
        ),
        at(
            "pre",
            views(|split| &split.pre).chain([pre.view()]).collect(),
            &[(Source::Epilogue, gates, stored)],
        ),
        at(
            "post",
            views(|split| &split.post).chain([post.view()]).collect(),
            &[(Source::Epilogue, gates, stored)],
        ),
        at(
            "comb",
            views(|split| &split.comb).chain([comb.view()]).collect(),
            &[
                (Source::Epilogue, got, stored),
                (Source::Sinkhorn, gates, got),
            ],
        ),
        layer_input(mixing, recipe, states, &splits, pre.view())?,
    ])
}

/// A stage whose states are all at hand.
fn small(
    stage: &'static str,
    values: &[ArrayView2<'_, f64>],
    differences: Vec<Difference>,
) -> StageBudget {
    let mut products = Products::new(differences.len());
    for token in 0..values[state::TRUTH].nrows() {
        let rows: Vec<Vec<f64>> = values
            .iter()
            .map(|values| values.row(token).to_vec())
            .collect();
        add(&mut products, &rows, &differences);
    }
    StageBudget {
        stage,
        sources: differences.iter().map(|one| one.source).collect(),
        products,
    }
}

fn add(products: &mut Products, states: &[Vec<f64>], differences: &[Difference]) {
    let truth = &states[state::TRUTH];
    let errors: Vec<Vec<f64>> = differences
        .iter()
        .map(|difference| {
            let element = |at: usize| {
                let sum = |of: &[usize]| of.iter().map(|&state| states[state][at]).sum::<f64>();
                // Two states that are alike cancel exactly.
                match (difference.plus.as_slice(), difference.minus.as_slice()) {
                    ([plus], [minus]) => states[*plus][at] - states[*minus][at],
                    (plus, minus) => sum(plus) - sum(minus),
                }
            };
            (0..truth.len()).map(element).collect()
        })
        .collect();
    let errors: Vec<&[f64]> = errors.iter().map(Vec::as_slice).collect();
    products.add(truth, &errors);
}

/// The layer input, made a few tokens at a time.
fn layer_input(
    mixing: &Mixing<'_>,
    recipe: &MixRecipe,
    states: &States,
    splits: &[Split],
    pre: ArrayView2<'_, f64>,
) -> Result<StageBudget, BackendError> {
    let case = mixing.case;
    let (collapsed, rounded) = (state::COLLAPSED, state::ROUNDED);
    let differences = differences(
        states,
        &[
            (Source::Epilogue, state::GATES, state::STORED),
            (Source::Collapse, collapsed, state::GATES),
            (Source::LayerIo, rounded, collapsed),
        ],
    );
    let got = mixing.backend.collapse(
        &recipe.epilogue,
        states.candidate.pre.view(),
        case.x.view(),
        case.x_exact_in,
    )?;
    let mut products = Products::new(differences.len());
    let tokens = case.x.nrows();
    for start in (0..tokens).step_by(BLOCK) {
        let range = start..(start + BLOCK).min(tokens);
        let rows = s![range.clone(), ..];
        let x = case.x.slice(rows);
        let gates = splits.iter().map(|split| split.pre.view()).chain([pre]);
        let mut values: Vec<Array2<f64>> = gates
            .map(|gates| collapse(mixing.level, gates.slice(rows), x))
            .collect();
        let y = got.rows(range.clone());
        values.push(y.mapv(f64::from));
        values.push(y.mapv(|y| f64::from(Format::Bf16.round_f32(y, Rounding::NearestEven))));
        for token in 0..range.len() {
            let rows: Vec<Vec<f64>> = values
                .iter()
                .map(|values| values.row(token).to_vec())
                .collect();
            add(&mut products, &rows, &differences);
        }
    }
    Ok(StageBudget {
        stage: "y_bf16",
        sources: differences.iter().map(|one| one.source).collect(),
        products,
    })
}
