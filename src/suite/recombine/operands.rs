//! What all variants of one site multiply.
//!
//! post [T, hc] and comb [T, hc·hc] are made by the mixing kernel under recipe `fp32`. The sublayer's output is made up
//! of what the site has:
//!
//! ```text
//! y = Σ_j pre_j·X_j            rounded to bf16
//! f = RMSNorm(y)·weight        in fp64, rounded once to fp32 and then to bf16
//! ```
//!
//! It is of a sublayer's order of magnitude and exact in bf16, which is all that the sum sees of it. V4.1 collapses
//! with the `pre` of the site before, which a single site does not have; its own stands in.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};
use ulpdrift_reference::streams::rms_norm;

use crate::{
    backend::RecombineInputs,
    format::{Format, Rounding, bf16},
    recipe::{Storage, catalogue, splits::Launch},
    suite::{
        Plan, SuiteError,
        case::{Case, append},
        mix::Candidate,
    },
};

/// Tokens that the emulator mixes at a time.
const SLICE: usize = 512;

/// Gates, combination matrix and the sublayer's output.
pub struct Operands {
    /// [T, hc].
    pub post: Array2<f32>,
    /// [T, hc·hc].
    pub comb: Array2<f32>,
    /// [T, d].
    pub f: Array2<f32>,
}

impl Operands {
    /// Makes them, with the weight of the norm before the sublayer. A device gets the batch whole, as it
    /// would be deployed.
    ///
    /// # Errors
    /// A device that fails.
    pub fn make(plan: &Plan<'_>, case: &Case, norm: &[f32]) -> Result<Self, SuiteError> {
        let tokens = case.x.nrows();
        let launch = Launch {
            tokens,
            sms: plan.sms,
        };
        if plan.backend.hardware().is_some() {
            return Self::of(plan, case, launch, norm);
        }
        let mut whole = Self::of(plan, &case.tokens(0..tokens.min(SLICE)), launch, norm)?;
        for start in (SLICE..tokens).step_by(SLICE) {
            let part = case.tokens(start..(start + SLICE).min(tokens));
            let later = Self::of(plan, &part, launch, norm)?;
            append(&mut whole.post, &later.post);
            append(&mut whole.comb, &later.comb);
            append(&mut whole.f, &later.f);
        }
        Ok(whole)
    }

    fn of(plan: &Plan<'_>, case: &Case, launch: Launch, norm: &[f32]) -> Result<Self, SuiteError> {
        let fp32 = catalogue::fp32();
        let made = Candidate::run(plan.backend, (&fp32).into(), case, launch)?;
        let (tokens, width) = (case.x.nrows(), case.x.ncols() / case.hc);
        let y = plan.backend.collapse(
            &fp32.epilogue,
            made.pre.view(),
            case.x.view(),
            case.x_exact_in,
        )?;
        let mut f = Array2::zeros((tokens, width));
        for start in (0..tokens).step_by(SLICE) {
            let rows = start..(start + SLICE).min(tokens);
            let normed = normed(y.rows(rows.clone()).view(), norm, case.norm_eps);
            f.slice_mut(s![rows, ..]).assign(&normed);
        }
        Ok(Self {
            post: made.post,
            comb: made.comb,
            f,
        })
    }

    /// What a backend multiplies.
    pub fn inputs<'a>(&'a self, case: &'a Case) -> RecombineInputs<'a> {
        RecombineInputs {
            x: case.x.view(),
            x_exact_in: case.x_exact_in,
            f: self.f.view(),
            f_exact_in: Format::Bf16,
            post: self.post.view(),
            comb: self.comb.view(),
        }
    }

    /// post and comb of some tokens as `storage` holds them.
    pub fn gates(&self, storage: Storage, tokens: Range<usize>) -> [Array2<f32>; 2] {
        let format = storage.format();
        [&self.post, &self.comb].map(|gates| {
            let rows = gates.slice(s![tokens.clone(), ..]);
            rows.mapv(|gate| format.round_f32(gate, Rounding::NearestEven))
        })
    }
}

/// The norm of layer inputs y [T, d], both sides in bf16.
fn normed(y: ArrayView2<'_, f32>, weight: &[f32], eps: f64) -> Array2<f32> {
    let y = y.mapv(|value| f64::from(rounded(value)));
    rms_norm(y.view(), weight, eps).mapv(|value| rounded(value as f32))
}

/// As deployed.
pub fn rounded(value: f32) -> f32 {
    bf16::round_f32(value, Rounding::NearestEven)
}
