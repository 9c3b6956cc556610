//! One recipe run through every stage of a case.

use ndarray::{Array2, ArrayView2};

use crate::{
    backend::{Backend, BackendError},
    format::{Format, Rounding, bf16},
    recipe::{MixRecipe, NormPlacement, Storage, splits::Launch},
    suite::case::{Case, Stages64},
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

    /// What a candidate got here.
    #[must_use]
    pub fn got(self, candidate: &Candidate) -> ArrayView2<'_, f32> {
        match self {
            Self::Dot => candidate.dot.view(),
            Self::Mixes => candidate.mixes.view(),
            Self::Pre => candidate.pre.view(),
            Self::Post => candidate.post.view(),
            Self::Comb => candidate.comb.view(),
            Self::Y => candidate.y.view(),
            Self::YBf16 => candidate.y_bf16.view(),
        }
    }

    /// What fp64 has here. A recipe that normalises first is measured at `dot` against r·Σxw, since
    /// its projection is that of the normalised x.
    #[must_use]
    pub fn fp64(self, stages: &Stages64, norm: NormPlacement) -> ArrayView2<'_, f64> {
        match (self, norm) {
            (Self::Dot, NormPlacement::After) => stages.dot.view(),
            (Self::Dot, NormPlacement::Before) | (Self::Mixes, _) => stages.mixes.view(),
            (Self::Pre, _) => stages.pre.view(),
            (Self::Post, _) => stages.post.view(),
            (Self::Comb, _) => stages.comb.view(),
            (Self::Y | Self::YBf16, _) => stages.y.view(),
        }
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

/// A recipe's outputs.
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
    /// [T, d].
    pub y: Array2<f32>,
    /// [T, d].
    pub y_bf16: Array2<f32>,
    /// Ranges K was cut into.
    pub splits: usize,
}

impl Candidate {
    /// Runs every stage.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn run(
        backend: &dyn Backend,
        recipe: &MixRecipe,
        case: &Case,
        launch: Launch,
    ) -> Result<Self, BackendError> {
        let mix = backend.mix(recipe, &case.mix_inputs(launch))?;
        let epilogue = &recipe.epilogue;
        let split = backend.split_sinkhorn(epilogue, &case.split_inputs(mix.mixes.view()));
        let y = backend.collapse(epilogue, split.pre.view(), case.x.view());
        let y_bf16 = y.mapv(|value| bf16::round_f32(value, Rounding::NearestEven));
        Ok(Self {
            dot: mix.dot,
            mixes: mix.mixes,
            pre: split.pre,
            post: split.post,
            comb: split.comb,
            y,
            y_bf16,
            splits: mix.splits,
        })
    }
}
