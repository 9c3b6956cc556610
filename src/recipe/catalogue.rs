//! The production paths of the mixing kernel, by name.
//!
//! Who runs what was read in the engines' public sources; the orders are the kernels' own where a
//! kernel defines one, and 64 contiguous ranges where a library decides and does not say. So is the
//! order of the squared sum; where nobody says, it is `DeepGEMM`'s lanes. One long chain of squares
//! would not do: all terms are positive and a bf16 square has few bits, so that its roundings do not
//! cancel (at K = 16384 the factor comes out 3.5e-6 too small, more than the whole error of an fp32
//! projection).

use super::{
    Epilogue, Mean, MixRecipe, NormPlacement, OperandRounding, Order, Projection, Rsqrt, SquareSum,
    Storage, Unit,
    splits::{Boundaries, SplitCount, SplitRule},
};

/// The variants of a run that names none.
pub const DEFAULT_VARIANTS: [&str; 6] = [
    "fp32",
    "tf32",
    "tf32-rz",
    "bf16",
    "bf16-patch",
    "bf16-prenorm",
];

/// The variant every other is compared with unless `--against` names another.
pub const DEFAULT_AGAINST: &str = "fp32";

/// Threads of vLLM's SIMT kernel.
const SIMT_THREADS: usize = 512;

/// The fixed count of the recipes whose order no engine prescribes.
const LIBRARY_SPLITS: usize = 64;

fn fixed_chains(splits: usize) -> Order {
    Order::Chains {
        splits: SplitRule::fixed(splits),
        partials: Storage::F32,
    }
}

fn projection(unit: Unit, weight: OperandRounding) -> Projection {
    Projection {
        unit,
        weight,
        x: None,
        weight_parts: 1,
        x_parts: 1,
        norm: NormPlacement::After,
        order: fixed_chains(LIBRARY_SPLITS),
        square_sum: SquareSum::Lanes4,
        mean: Mean::Divide,
        rsqrt: Rsqrt::Rounded,
    }
}

fn recipe(name: &str, summary: &str, engine: &str, projection: Projection) -> MixRecipe {
    MixRecipe {
        name: name.to_owned(),
        summary: summary.to_owned(),
        engine: engine.to_owned(),
        projection,
        output: Storage::F32,
        scaled: Storage::F32,
        epilogue: Epilogue::default(),
    }
}

/// All built-in variants, in the order they are listed.
#[must_use]
pub fn builtin() -> Vec<MixRecipe> {
    let mut all = full_precision();
    all.extend(tf32());
    all.extend(half_precision());
    all.extend(compensated());
    all
}

/// The official code's arithmetic in a fixed order: what `exact` is measured by.
#[must_use]
pub fn fp32() -> MixRecipe {
    recipe(
        "fp32",
        "fp32 operands, fused multiply-add, 64 chains",
        "the official code's arithmetic in a fixed order",
        projection(Unit::FmaF32, OperandRounding::F32),
    )
}

fn full_precision() -> Vec<MixRecipe> {
    let fp32 = fp32();
    let simt = Projection {
        order: Order::ThreadStrided {
            threads: SIMT_THREADS,
        },
        square_sum: SquareSum::ThreadStrided,
        ..fp32.projection.clone()
    };
    vec![
        fp32,
        recipe(
            "fp32-simt",
            "fp32 operands, 512 strided chains, block tree",
            "vLLM fallback",
            simt,
        ),
    ]
}

fn tf32() -> Vec<MixRecipe> {
    let engine_order = Order::Chains {
        splits: SplitRule {
            count: SplitCount::Engine,
            boundaries: Boundaries::Deepgemm,
        },
        partials: Storage::F32,
    };
    let tilelang_order = Order::Chains {
        splits: SplitRule {
            count: SplitCount::Tilelang,
            boundaries: Boundaries::Deepgemm,
        },
        partials: Storage::F32,
    };
    let with = |weight, order, square_sum| Projection {
        order,
        square_sum,
        ..projection(Unit::MmaTf32K8, weight)
    };
    vec![
        recipe(
            "tf32",
            "weight to TF32, nearest-even; engines' split formula",
            "DeepGEMM, SGLang, vLLM on sm_90 and sm_100",
            with(
                OperandRounding::Tf32Nearest,
                engine_order,
                SquareSum::Lanes4,
            ),
        ),
        recipe(
            "tf32-rna",
            "weight to TF32, ties away; engines' split formula",
            "TileKernels, CUTLASS",
            with(
                OperandRounding::Tf32Away,
                engine_order,
                SquareSum::Interleave4,
            ),
        ),
        recipe(
            "tf32-rz",
            "raw fp32 bits to the TF32 unit: truncation",
            "TileLang, Triton, sm_120 ports",
            with(
                OperandRounding::Tf32Truncate,
                tilelang_order,
                SquareSum::Lanes4,
            ),
        ),
    ]
}

fn half_precision() -> Vec<MixRecipe> {
    let bf16 = projection(Unit::MmaBf16K16, OperandRounding::Bf16);
    let prenorm = Projection {
        norm: NormPlacement::Before,
        ..bf16.clone()
    };
    let ds4 = Projection {
        norm: NormPlacement::Before,
        ..projection(Unit::FmaF32, OperandRounding::F16)
    };
    let patch = MixRecipe {
        output: Storage::Bf16,
        ..recipe(
            "bf16-patch",
            "bf16 x, weight and GEMM output; fp32 rms product",
            "the deployment patch",
            bf16.clone(),
        )
    };
    let scaled = MixRecipe {
        name: "bf16-patch-scaled".to_owned(),
        summary: "bf16-patch with the rms product rounded to bf16 too".to_owned(),
        engine: "forks of the patch".to_owned(),
        scaled: Storage::Bf16,
        ..patch.clone()
    };
    let mirage = MixRecipe {
        output: Storage::Bf16,
        ..recipe(
            "bf16-prenorm",
            "x normalised, then bf16; bf16 weight and result",
            "mirage",
            prenorm,
        )
    };
    vec![
        recipe(
            "bf16",
            "bf16 x and weight, fp32 result",
            "a plain bf16 tensor-core GEMM",
            bf16,
        ),
        patch,
        scaled,
        mirage,
        recipe(
            "f16",
            "f16 weight, x normalised first in fp32, FMA",
            "ds4",
            ds4,
        ),
        recipe(
            "f16-mma",
            "f16 x and weight, fp32 result",
            "a plain f16 tensor-core GEMM",
            projection(Unit::MmaF16K16, OperandRounding::F16),
        ),
    ]
}

fn compensated() -> Vec<MixRecipe> {
    let split = |unit, weight, weight_parts, x_parts| Projection {
        weight_parts,
        x_parts,
        ..projection(unit, weight)
    };
    vec![
        recipe(
            "tf32x2",
            "weight as two TF32 parts, low part's chain first",
            "SGLang's V4.1 path on DeepGEMM; what to use instead",
            split(Unit::MmaTf32K8, OperandRounding::Tf32Nearest, 2, 1),
        ),
        recipe(
            "tf32x3",
            "x and weight as two TF32 parts, three products",
            "SGLang's V4.1 path for small batches; what to use instead",
            split(Unit::MmaTf32K8, OperandRounding::Tf32Nearest, 2, 2),
        ),
        recipe(
            "bf16x2",
            "weight as two bf16 parts, low part's chain first",
            "no engine we know; what to use instead",
            split(Unit::MmaBf16K16, OperandRounding::Bf16, 2, 1),
        ),
        recipe(
            "bf16x3",
            "weight as three bf16 parts, lowest part's chain first",
            "SGLang's V4.1 path; what to use instead",
            split(Unit::MmaBf16K16, OperandRounding::Bf16, 3, 1),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_defaults_exist() {
        let names: Vec<_> = builtin().into_iter().map(|recipe| recipe.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} stands twice");
        }
        assert!(
            DEFAULT_VARIANTS
                .iter()
                .all(|name| names.iter().any(|known| known == name))
        );
        assert!(names.iter().any(|known| known == DEFAULT_AGAINST));
    }
}
