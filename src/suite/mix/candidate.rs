//! One recipe run through every stage of a case.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};

use crate::{
    backend::{Backend, BackendError},
    format::Format,
    recipe::{MixRecipe, NormPlacement, Storage, splits::Launch},
    suite::{
        case::{Case, Stages64, append},
        fault::Variant,
    },
};

/// A place in the operation where values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The projection's stored output.
    Dot,
    /// Times the RMS factor.
    Mixes,
    /// The collapse's gates.
    Pre,
    /// The sublayer's gates.
    Post,
    /// The combination matrix.
    Comb,
    /// The layer input, before rounding.
    Y,
    /// The layer input, as deployed.
    YBf16,
}

/// Every stage, in the order they are computed.
pub const STAGES: [Stage; 7] = [
    Stage::Dot,
    Stage::Mixes,
    Stage::Pre,
    Stage::Post,
    Stage::Comb,
    Stage::Y,
    Stage::YBf16,
];

impl Stage {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::Mixes => "mixes",
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Comb => "comb",
            Self::Y => "y",
            Self::YBf16 => "y_bf16",
        }
    }

    /// What a candidate got here; `None` for the layer input, which is made where it is looked at.
    #[must_use]
    pub fn got(self, candidate: &Candidate) -> Option<ArrayView2<'_, f32>> {
        let got = match self {
            Self::Dot => &candidate.dot,
            Self::Mixes => &candidate.mixes,
            Self::Pre => &candidate.pre,
            Self::Post => &candidate.post,
            Self::Comb => &candidate.comb,
            Self::Y | Self::YBf16 => return None,
        };
        Some(got.view())
    }

    /// What fp64 has here; `None` for the layer input. A recipe that normalises first is measured
    /// at `dot` against r·Σxw, since its projection is that of the normalised x.
    #[must_use]
    pub fn fp64(self, stages: &Stages64, norm: NormPlacement) -> Option<ArrayView2<'_, f64>> {
        let fp64 = match (self, norm) {
            (Self::Dot, NormPlacement::After) => &stages.dot,
            (Self::Dot, NormPlacement::Before) | (Self::Mixes, _) => &stages.mixes,
            (Self::Pre, _) => &stages.pre,
            (Self::Post, _) => &stages.post,
            (Self::Comb, _) => &stages.comb,
            (Self::Y | Self::YBf16, _) => return None,
        };
        Some(fp64.view())
    }

    /// The format the stage is stored in under `recipe`.
    #[must_use]
    pub fn format(self, recipe: &MixRecipe) -> Format {
        let storage = match (self, recipe.projection.norm) {
            (Self::Dot, _) | (Self::Mixes, NormPlacement::Before) => recipe.output,
            (Self::Mixes, NormPlacement::After) => recipe.scaled,
            (Self::YBf16, _) => Storage::Bf16,
            _ => Storage::F32,
        };
        storage.format()
    }
}

/// A recipe's outputs up to the layer input, which follows from `pre` and x.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// [T, N].
    pub dot: Array2<f32>,
    /// [T, N].
    pub mixes: Array2<f32>,
    /// [T, hc].
    pub pre: Array2<f32>,
    /// [T, hc].
    pub post: Array2<f32>,
    /// [T, hc·hc].
    pub comb: Array2<f32>,
    /// Ranges K was cut into, where that is known.
    pub splits: Option<usize>,
}

impl Candidate {
    /// Runs every stage up to the layer input.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn run(
        backend: &dyn Backend,
        variant: Variant<'_>,
        case: &Case,
        launch: Launch,
    ) -> Result<Self, BackendError> {
        let mix = variant.mix(backend, &case.mix_inputs(launch))?;
        let splits = Some(mix.splits);
        Self::from_mixes(backend, variant, case, [mix.dot, mix.mixes], splits)
    }

    /// The outputs of some tokens.
    #[must_use]
    pub fn rows(&self, tokens: Range<usize>) -> Self {
        let rows = |stage: &Array2<f32>| stage.slice(s![tokens.clone(), ..]).to_owned();
        Self {
            dot: rows(&self.dot),
            mixes: rows(&self.mixes),
            pre: rows(&self.pre),
            post: rows(&self.post),
            comb: rows(&self.comb),
            splits: self.splits,
        }
    }

    /// Runs every stage that follows the projection and the RMS factor.
    ///
    /// # Errors
    /// A device that fails.
    pub fn from_mixes(
        backend: &dyn Backend,
        variant: Variant<'_>,
        case: &Case,
        [dot, mixes]: [Array2<f32>; 2],
        splits: Option<usize>,
    ) -> Result<Self, BackendError> {
        let inputs = case.split_inputs(mixes.view());
        let split = backend.split_sinkhorn(&variant.recipe.epilogue, &inputs)?;
        let split = variant.spoil(split, case.hc);
        Ok(Self {
            dot,
            mixes,
            pre: split.pre,
            post: split.post,
            comb: split.comb,
            splits,
        })
    }

    /// Appends the tokens that follow.
    pub fn append(&mut self, later: &Self) {
        append(&mut self.dot, &later.dot);
        append(&mut self.mixes, &later.mixes);
        append(&mut self.pre, &later.pre);
        append(&mut self.post, &later.post);
        append(&mut self.comb, &later.comb);
    }
}
