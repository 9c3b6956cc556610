//! Every variant's X' of one site, and what is measured of it.
//!
//! The fp64 sides are made where they are measured, a block of tokens at a time, once per pass.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};
use ulpdrift_reference::streams::recombine;

use super::{
    bound::bound_ratio,
    operands::{Operands, rounded},
};
use crate::{
    format::Format,
    measure::{
        passes::{Block, Truth},
        stages::{self, Measured, Rows},
    },
    recipe::{RecombineRecipe, Storage},
    suite::{Plan, SuiteError, case::Case},
};

/// The site's streams under any variant.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    /// The run.
    pub plan: &'a Plan<'a>,
    /// Where x comes from.
    pub case: &'a Case,
    /// What it is recombined with.
    pub operands: &'a Operands,
}

/// Both stages of one variant.
pub struct Found {
    /// Before storage.
    pub streams: Measured,
    /// As deployed.
    pub streams_bf16: Measured,
    /// The largest share of its bound.
    pub bound_ratio: f64,
}

impl Streams<'_> {
    /// X' of a variant, fp32 [T, hc·d].
    ///
    /// # Errors
    /// A device that fails.
    pub fn run(&self, recipe: &RecombineRecipe) -> Result<Array2<f32>, SuiteError> {
        let inputs = self.operands.inputs(self.case);
        Ok(self.plan.backend.recombine(&recipe.arithmetic, &inputs)?)
    }

    /// Measures variants; `other` is X' of the one that they are compared with.
    ///
    /// # Errors
    /// A device that fails.
    pub fn measure(
        &self,
        recipes: &[RecombineRecipe],
        other: &Array2<f32>,
    ) -> Result<Vec<Found>, SuiteError> {
        let got = recipes
            .iter()
            .map(|recipe| self.run(recipe))
            .collect::<Result<Vec<_>, _>>()?;
        let compared = Compared {
            streams: *self,
            recipes,
            got: &got,
            other,
            formats: [Format::F32, Format::Bf16].repeat(recipes.len()),
        };
        let measured = stages::measure(self.plan.level, &compared);
        let (pairs, _) = measured.as_chunks::<2>();
        let each = recipes.iter().zip(&got).zip(pairs);
        each.map(|((recipe, got), &[streams, streams_bf16])| {
            Ok(Found {
                streams,
                streams_bf16,
                bound_ratio: bound_ratio(self.plan.level, recipe, self, got.view())?,
            })
        })
        .collect()
    }

    /// X' in fp64 of some tokens, with post and comb as `storage` holds them.
    pub fn fp64(&self, storage: Storage, tokens: Range<usize>) -> Array2<f64> {
        let rows = s![tokens.clone(), ..];
        let [post, comb] = self.operands.gates(storage, tokens);
        let [x, f, post, comb] = [
            self.case.x.slice(rows),
            self.operands.f.slice(rows),
            post.view(),
            comb.view(),
        ]
        .map(|values| values.mapv(f64::from));
        recombine(
            self.plan.level,
            x.view(),
            f.view(),
            post.view(),
            comb.view(),
        )
    }
}

/// X' of some variants, block by block.
struct Compared<'a> {
    streams: Streams<'a>,
    recipes: &'a [RecombineRecipe],
    got: &'a [Array2<f32>],
    other: &'a Array2<f32>,
    formats: Vec<Format>,
}

impl Compared<'_> {
    /// The recipe-exact values of a block, where they are not the truth itself.
    fn exact(&self, tokens: &Range<usize>) -> Option<Array2<f64>> {
        let rounds = |recipe: &RecombineRecipe| recipe.arithmetic.gates == Storage::Bf16;
        let some = self.recipes.iter().any(rounds);
        some.then(|| self.streams.fp64(Storage::Bf16, tokens.clone()))
    }
}

impl Rows for Compared<'_> {
    type Sample = f32;

    fn tokens(&self) -> usize {
        self.streams.case.x.nrows()
    }

    fn width(&self) -> usize {
        self.streams.case.x.ncols()
    }

    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn visit(&self, tokens: Range<usize>, see: &mut dyn FnMut(usize, Block<'_, f32>)) {
        let as_deployed = |values: &[f32]| values.iter().copied().map(rounded).collect::<Vec<_>>();
        let other = block(self.other.view(), &tokens);
        let other_bf16 = as_deployed(other);
        let got: Vec<&[f32]> = self
            .got
            .iter()
            .map(|got| block(got.view(), &tokens))
            .collect();
        let got_bf16: Vec<Vec<f32>> = got.iter().map(|got| as_deployed(got)).collect();
        let reference = self.streams.fp64(Storage::F32, tokens.clone());
        let reference = reference.as_slice().unwrap_or_default();
        let exact = self.exact(&tokens);
        let exact = exact.as_ref().and_then(|exact| exact.as_slice());
        let as_stored = Truth::new(reference, Some(reference));
        let in_bf16 = Truth::new(reference, exact);
        for (index, recipe) in self.recipes.iter().enumerate() {
            let truth = match recipe.arithmetic.gates {
                Storage::F32 => &as_stored,
                Storage::Bf16 => &in_bf16,
            };
            for (stage, got, other) in [
                (2 * index, got[index], other),
                (2 * index + 1, &got_bf16[index], &other_bf16),
            ] {
                let block = Block {
                    got,
                    truth,
                    other: Some(other),
                };
                see(stage, block);
            }
        }
    }
}

/// The rows of some tokens, one after another.
pub fn block<'a>(values: ArrayView2<'a, f32>, tokens: &Range<usize>) -> &'a [f32] {
    let width = values.ncols();
    let all = values.to_slice().unwrap_or_default();
    all.get(tokens.start * width..tokens.end * width)
        .unwrap_or_default()
}
