//! The linears of the query path.
//!
//! A weight stored in FP8 runs on the arch's FP8 unit under [`Linears::Fp8`]: activations to e4m3 in the weight's
//! blocks of k with ue8m0 scales; per block `part`, one chain over its products from 0; `acc = acc + part·(s_a·s_w)`
//! in fp32, blocks ascending from 0; bf16. Any other weight, and every weight under [`Linears::Fp32`], is one fma
//! chain over ascending k, rounded to bf16 under `Fp8`.

use std::ops::Range;

use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use ulpdrift_reference::simd::Level;

use super::{super::store, FmaLinear};
use crate::{
    backend::{BackendError, instruction_rule},
    format::{e4m3, ue8m0},
    recipe::{
        Storage,
        indexer::{Held, IndexRecipe, Linears, Quantiser, ScaleFormat, Scaling, fp8_instruction},
    },
    tensor_core::{Arch, PackedWeights, Rule, chains},
};

/// A weight [n, k].
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// Its values; those of an FP8 weight dequantised.
    pub values: ArrayView2<'a, f32>,
    /// What is stored, where that is FP8.
    pub fp8: Option<Fp8Weight<'a>>,
}

/// An e4m3 weight with a power of two per block.
#[derive(Clone, Copy, Debug)]
pub struct Fp8Weight<'a> {
    /// e4m3 codes [n, k].
    pub codes: ArrayView2<'a, u8>,
    /// ue8m0 codes [⌈n/rows⌉, ⌈k/columns⌉].
    pub scales: ArrayView2<'a, u8>,
    /// Rows and columns of a block.
    pub block: [usize; 2],
}

/// Tokens whose partial sums are held at a time.
const TOKENS: usize = 64;

/// Runs linears as one recipe does.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinearUnit<'a> {
    pub(super) level: Level,
    pub(super) arch: Arch,
    pub(super) recipe: &'a IndexRecipe,
}

impl LinearUnit<'_> {
    /// x·wᵀ [T, n], stored as the recipe's linears store it.
    pub(super) fn run(
        self,
        x: ArrayView2<'_, f32>,
        weight: &Linear<'_>,
    ) -> Result<Array2<f32>, BackendError> {
        let mut y = match (self.recipe.linears, &weight.fp8) {
            (Linears::Fp8, Some(fp8)) => {
                let instruction = fp8_instruction(self.arch);
                let rule = instruction_rule(self.arch, &self.recipe.name, instruction)?;
                self.fp8(&rule, x, fp8)
            }
            _ => FmaLinear::new(&[weight.values]).project(self.level, x),
        };
        store(y.as_slice_mut().unwrap_or_default(), self.output());
        Ok(y)
    }

    /// What results are stored in.
    pub(super) fn output(self) -> Storage {
        match self.recipe.linears {
            Linears::Fp8 => Storage::Bf16,
            Linears::Fp32 => Storage::F32,
        }
    }

    /// The sums [T, n], unrounded.
    fn fp8(self, rule: &Rule, x: ArrayView2<'_, f32>, weight: &Fp8Weight<'_>) -> Array2<f32> {
        let (n, depth) = weight.codes.dim();
        let [rows, columns] = weight.block;
        let x = activations(columns).quantise(x.to_owned());
        let x_scales = x.scales.unwrap_or_default();
        let w_scales = weight.scales.mapv(ue8m0::from_bits);
        let packed = {
            let values = weight.codes.mapv(e4m3::from_bits);
            PackedWeights::new(rule.operand, values.view())
        };
        let blocks: Vec<Range<usize>> = (0..depth)
            .step_by(columns)
            .map(|start| start..depth.min(start + columns))
            .collect();
        let mut sums = Array2::zeros((x.values.nrows(), n));
        for (index, mut sums) in sums.axis_chunks_iter_mut(Axis(0), TOKENS).enumerate() {
            let first = index * TOKENS;
            let x = x.values.slice(s![first..first + sums.nrows(), ..]);
            let mut parts = Array3::zeros((blocks.len(), x.nrows(), n));
            chains(rule, self.level, x, &packed, &blocks, &mut parts);
            for (block, parts) in parts.outer_iter().enumerate() {
                for (token, (mut sums, parts)) in
                    sums.rows_mut().into_iter().zip(parts.rows()).enumerate()
                {
                    for (output, (sum, part)) in sums.iter_mut().zip(parts).enumerate() {
                        let scale =
                            x_scales[[first + token, block]] * w_scales[[output / rows, block]];
                        *sum += part * scale;
                    }
                }
            }
        }
        sums
    }
}

/// How an FP8 linear quantises its input.
fn activations(block: usize) -> Quantiser {
    Quantiser::E4m3 {
        scale: ScaleFormat::Ue8m0,
        block,
        scaling: Scaling::Divide,
        held: Held::Codes,
    }
}
