//! Known bugs of other implementations, to be built into a candidate: what a bug looks like beside rounding.
//!
//! A bug is what happens to the values between the kernels, so that every backend and every recipe can have it:
//!
//! | name | what | where it was |
//! |---|---|---|
//! | `transposed-comb` | row k of comb goes to stream k, not column k | several ports of `hc_post` |
//! | `post-without-factor` | post = sigmoid(·), not 2·sigmoid(·) | an early port |
//! | `eps-outside-root` | r = 1/(√mean(x²) + ε), not 1/√(mean(x²) + ε) | an older training framework |
//!
//! The last is built into recipes that multiply first; one that normalises x first has used its factor by then.

pub mod findings;

use std::fmt;

use ndarray::{Array2, Axis, Zip};

use crate::{
    backend::{Backend, BackendError, Mix, MixInputs, Split},
    format::Rounding,
    recipe::{MixRecipe, NormPlacement},
};

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// comb enters the recombination transposed.
    TransposedComb,
    /// post lacks its factor 2.
    PostWithoutFactor,
    /// The RMS factor adds ε to the root.
    EpsOutsideRoot,
}

impl Fault {
    /// All, in the order they are listed.
    pub const ALL: [Self; 3] = [
        Self::TransposedComb,
        Self::PostWithoutFactor,
        Self::EpsOutsideRoot,
    ];

    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TransposedComb => "transposed-comb",
            Self::PostWithoutFactor => "post-without-factor",
            Self::EpsOutsideRoot => "eps-outside-root",
        }
    }

    /// What goes wrong.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::TransposedComb => "comb enters hc_post transposed",
            Self::PostWithoutFactor => "post lacks its factor 2",
            Self::EpsOutsideRoot => {
                "the RMS factor adds eps to the root instead of to what is under it"
            }
        }
    }

    /// Where it was seen.
    #[must_use]
    pub const fn origin(self) -> &'static str {
        match self {
            Self::TransposedComb => "several ports of hc_post",
            Self::PostWithoutFactor => "an early port",
            Self::EpsOutsideRoot => "an older training framework",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A recipe, and the bug that is built into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant<'a> {
    /// The recipe.
    pub recipe: &'a MixRecipe,
    /// The bug.
    pub fault: Option<Fault>,
}

impl<'a> From<&'a MixRecipe> for Variant<'a> {
    fn from(recipe: &'a MixRecipe) -> Self {
        Self {
            recipe,
            fault: None,
        }
    }
}

/// `tf32`, or `fp32+transposed-comb`.
impl fmt::Display for Variant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.recipe.name)?;
        match self.fault {
            Some(fault) => write!(f, "+{fault}"),
            None => Ok(()),
        }
    }
}

impl Variant<'_> {
    /// Whether the bug can be built into the recipe.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.fault != Some(Fault::EpsOutsideRoot)
            || self.recipe.projection.norm == NormPlacement::After
    }

    /// The mixes on a backend.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn mix(&self, backend: &dyn Backend, inputs: &MixInputs<'_>) -> Result<Mix, BackendError> {
        if self.fault != Some(Fault::EpsOutsideRoot) {
            return backend.mix(self.recipe, inputs);
        }
        let without = MixInputs {
            norm_eps: 0.0,
            ..*inputs
        };
        let mut mix = backend.mix(self.recipe, &without)?;
        let eps = inputs.norm_eps as f32;
        mix.rms.mapv_inplace(|factor| 1.0 / (1.0 / factor + eps));
        let stored = self.recipe.scaled.format();
        mix.mixes.assign(&mix.dot);
        Zip::from(mix.mixes.axis_iter_mut(Axis(0)))
            .and(&mix.rms)
            .for_each(|mut row, &factor| {
                row.mapv_inplace(|dot| stored.round_f32(dot * factor, Rounding::NearestEven));
            });
        Ok(mix)
    }

    /// What the bug makes of the gates and the combination of `hc` streams.
    #[must_use]
    pub fn spoil(&self, mut split: Split, hc: usize) -> Split {
        match self.fault {
            Some(Fault::TransposedComb) => split.comb = transposed(&split.comb, hc),
            Some(Fault::PostWithoutFactor) => split.post.mapv_inplace(|post| 0.5 * post),
            Some(Fault::EpsOutsideRoot) | None => {}
        }
        split
    }
}

/// Row-major matrices [T, hc·hc], each transposed.
fn transposed(comb: &Array2<f32>, hc: usize) -> Array2<f32> {
    Array2::from_shape_fn(comb.dim(), |(token, at)| {
        comb[[token, at % hc * hc + at / hc]]
    })
}

#[cfg(test)]
mod tests {
    use ndarray::array;
    use ulpdrift_reference::simd::Level;

    use super::*;
    use crate::{
        backend::emulate::Emulate,
        format::Format,
        recipe::{catalogue, splits::Launch},
        tensor_core::Arch,
    };

    fn with(recipe: &MixRecipe, fault: Fault) -> Variant<'_> {
        Variant {
            recipe,
            fault: Some(fault),
        }
    }

    #[test]
    fn gates_and_combination_are_spoilt_as_named() {
        let fp32 = catalogue::fp32();
        let split = Split {
            pre: array![[0.1, 0.2]],
            post: array![[1.5, 0.5]],
            comb: array![[1.0, 2.0, 3.0, 4.0]],
        };
        let transposed = with(&fp32, Fault::TransposedComb).spoil(split.clone(), 2);
        assert_eq!(transposed.comb, array![[1.0, 3.0, 2.0, 4.0]]);
        assert_eq!(transposed.post, split.post);
        let halved = with(&fp32, Fault::PostWithoutFactor).spoil(split.clone(), 2);
        assert_eq!(halved.post, array![[0.75, 0.25]]);
        assert_eq!(halved.comb, split.comb);
    }

    /// x of 2^-10 throughout: mean 2^-20, root 2^-10; with ε = 2^-20 outside, r = 1/(2^-10 + 2^-20).
    #[test]
    fn eps_outside_the_root_is_what_it_says() {
        let fp32 = catalogue::fp32();
        let least = 2f32.powi(-10);
        let x = Array2::from_elem((1, 64), least);
        let function = Array2::from_elem((24, 64), 1.0);
        let inputs = MixInputs {
            x: x.view(),
            x_exact_in: Format::Bf16,
            function: function.view(),
            norm_eps: 2f64.powi(-20),
            launch: Launch {
                tokens: 1,
                sms: 188,
            },
        };
        let backend = Emulate::new(Arch::Sm120, Level::detect());
        let mix = with(&fp32, Fault::EpsOutsideRoot)
            .mix(&backend, &inputs)
            .expect("fp32 runs everywhere");
        let expected = 64.0 * least * (1.0 / (least + 2f32.powi(-20)));
        assert_eq!(mix.mixes[[0, 0]], expected);
        let right = Variant::from(&fp32).mix(&backend, &inputs).expect("runs");
        assert!((right.mixes[[0, 0]] - 64.0 / 2f32.sqrt()).abs() < 1e-4);
    }
}
