//! The production paths of the indexer, by name.
//!
//! Where an engine runs a recipe its linears are FP8, as the checkpoints store them. The recipes that single one
//! rounding out (`fp32`, `tf32`, `bf16-steps`, `bf16-dot`, `fp8-keys-only`, `f16-logits`) leave the linears in fp32, so
//! that nothing else is measured with it.

use super::{
    DotUnit, Fill, Floor, Fold, HeadOrder, HeadWeights, Held, IndexRecipe, KeyPath, Linears,
    LogitFormat, Quantiser, QueryPath, Reduce, Reduction, Relu, ScaleFormat, ScalePosition,
    Scaling, Selector, Ties,
};
use crate::recipe::{Contraction, Storage};

/// e4m3 with a scale per head's row.
const fn e4m3(scale: ScaleFormat) -> Quantiser {
    Quantiser::E4m3 {
        scale,
        block: 128,
        scaling: Scaling::Reciprocal,
        held: Held::Codes,
    }
}

const FP4_VALUES: Quantiser = Quantiser::Mxfp4 {
    floor: Floor::LeastNormal,
    scaling: Scaling::Divide,
    ties: Ties::Even,
    held: Held::Values,
};

const FP4_CODES: Quantiser = Quantiser::Mxfp4 {
    floor: Floor::TenThousandth,
    scaling: Scaling::Reciprocal,
    ties: Ties::Even,
    held: Held::Codes,
};

/// Nothing rounded, nothing rotated.
const fn plain(format: Quantiser) -> (QueryPath, KeyPath) {
    let f32 = Storage::F32;
    (
        QueryPath {
            roped: f32,
            hadamard: false,
            rotated: f32,
            format,
        },
        KeyPath {
            pooled: f32,
            normed: f32,
            roped: f32,
            hadamard: false,
            rotated: f32,
            format,
        },
    )
}

/// Rotated in fp32, then quantised.
fn rotated(format: Quantiser) -> (QueryPath, KeyPath) {
    let (query, key) = plain(format);
    (
        QueryPath {
            hadamard: true,
            ..query
        },
        KeyPath {
            hadamard: true,
            ..key
        },
    )
}

/// bf16 behind every step, and rotated.
fn stepwise(format: Quantiser) -> (QueryPath, KeyPath) {
    let bf16 = Storage::Bf16;
    (
        QueryPath {
            roped: bf16,
            hadamard: true,
            rotated: bf16,
            format,
        },
        KeyPath {
            pooled: bf16,
            normed: bf16,
            roped: bf16,
            hadamard: true,
            rotated: bf16,
            format,
        },
    )
}

/// The heads one after the other, the key's scale at the end.
fn ascending(contraction: Contraction, scale: ScalePosition) -> Reduction {
    Reduction::Steps(Reduce {
        scale,
        contraction,
        ..Reduce::default()
    })
}

/// bf16 dots, products and logits, as the official code has them.
const OFFICIAL: Reduction = Reduction::Steps(Reduce {
    scale: ScalePosition::InProduct,
    relu: Relu::MaxKeepsNan,
    order: HeadOrder::Ascending,
    contraction: Contraction::MulAdd,
    product: Storage::Bf16,
    sum: Storage::F32,
});

/// What the others are measured by: no format below fp32 behind the hidden state.
#[must_use]
pub fn fp32() -> IndexRecipe {
    let (query, key) = plain(Quantiser::F32);
    IndexRecipe {
        name: "fp32".to_owned(),
        summary: "fp32 everywhere behind the hidden state, fused products".to_owned(),
        engine: "none we know; what the others are measured by".to_owned(),
        linears: Linears::Fp32,
        query,
        key,
        weights: HeadWeights {
            fold: Fold::ConstantFirst,
            stored: Storage::F32,
        },
        unit: DotUnit::FmaF32,
        dot: Storage::F32,
        reduction: ascending(Contraction::Fma, ScalePosition::InProduct),
        output: LogitFormat::F32,
        fill: Fill::NegativeInfinity,
        select: Selector::Exact,
    }
}

/// `base` under another name.
fn named(base: IndexRecipe, name: &str, summary: &str, engine: &str) -> IndexRecipe {
    IndexRecipe {
        name: name.to_owned(),
        summary: summary.to_owned(),
        engine: engine.to_owned(),
        ..base
    }
}

/// All built-in variants, in the order they are listed.
#[must_use]
pub fn builtin() -> Vec<IndexRecipe> {
    let mut all = vec![reference(), transformers(), fp32()];
    all.extend(single_roundings());
    all.extend(fp8());
    all.extend([ue8m0(), mxfp4()]);
    all.extend(selectors());
    all
}

/// The variants of a run that names none: those that round. The others select another set of the same logits.
#[must_use]
pub fn defaults() -> Vec<IndexRecipe> {
    let mut all = builtin();
    all.retain(|recipe| recipe.select == Selector::Exact);
    all
}

/// Production selections that are not exact, behind fp32 logits.
fn selectors() -> [IndexRecipe; 3] {
    let with = |select| IndexRecipe { select, ..fp32() };
    [
        named(
            with(Selector::Bf16Ties),
            "topk-bf16-ties",
            "fp32 logits, selected by their bf16 roundings",
            "kernels that select on bf16 logits",
        ),
        named(
            with(Selector::SGLANG_FAST),
            "topk-coarse-8",
            "fp32 logits, an 8-bit coarse key, 4096 candidates",
            "SGLang's fast_topk_v2",
        ),
        named(
            with(Selector::SGLANG_JIT),
            "topk-coarse-12",
            "fp32 logits, a 12-bit coarse key, a tie buffer of 2048",
            "SGLang's JIT top-k v2",
        ),
    ]
}

fn reference() -> IndexRecipe {
    let (query, key) = stepwise(FP4_VALUES);
    let official = IndexRecipe {
        linears: Linears::Fp8,
        query,
        key,
        weights: HeadWeights {
            fold: Fold::ConstantFirst,
            stored: Storage::Bf16,
        },
        unit: DotUnit::MmaBf16K16,
        dot: Storage::Bf16,
        reduction: OFFICIAL,
        output: LogitFormat::Bf16,
        ..fp32()
    };
    named(
        official,
        "reference-bf16-fp4",
        "FP4 round trip of rotated q and k, bf16 behind every step",
        "the official code",
    )
}

fn transformers() -> IndexRecipe {
    let plain = IndexRecipe {
        weights: HeadWeights {
            fold: Fold::Split,
            stored: Storage::F32,
        },
        reduction: Reduction::Steps(Reduce {
            relu: Relu::MaxKeepsNan,
            contraction: Contraction::MulAdd,
            ..Reduce::default()
        }),
        ..fp32()
    };
    named(
        plain,
        "transformers",
        "no quantisation, no rotation, fp32",
        "transformers",
    )
}

/// One rounding each, all else as in `fp32`.
fn single_roundings() -> Vec<IndexRecipe> {
    let alone = "none we know; singles one rounding out";
    let formats = |unit, format| {
        let (query, key) = plain(format);
        IndexRecipe {
            query,
            key,
            unit,
            ..fp32()
        }
    };
    let tf32 = formats(DotUnit::MmaTf32K8, Quantiser::Tf32);
    let (query, key) = stepwise(Quantiser::Bf16);
    let steps = IndexRecipe {
        query,
        key,
        ..IndexRecipe {
            linears: Linears::Fp32,
            ..reference()
        }
    };
    let dot = IndexRecipe {
        dot: Storage::Bf16,
        ..fp32()
    };
    let logits = IndexRecipe {
        output: LogitFormat::F16,
        ..fp32()
    };
    let keys = IndexRecipe {
        key: rotated(e4m3(ScaleFormat::F32)).1,
        query: rotated(Quantiser::F32).0,
        reduction: ascending(Contraction::Fma, ScalePosition::Last),
        ..fp32()
    };
    vec![
        named(tf32, "tf32", "q and k to TF32, nearest-even", alone),
        named(
            steps,
            "bf16-steps",
            "rotated, bf16 behind every step of q, k and the score",
            "the official code without its FP4",
        ),
        named(dot, "bf16-dot", "each head's dot rounded to bf16", alone),
        named(
            keys,
            "fp8-keys-only",
            "rotated keys to e4m3 with an fp32 scale, q in fp32",
            alone,
        ),
        named(
            logits,
            "f16-logits",
            "logits stored in half",
            "vLLM's option, here without its FP8",
        ),
    ]
}

/// Engines that keep e4m3 keys with fp32 scales, and what their users switch to.
fn fp8() -> Vec<IndexRecipe> {
    let (query, key) = rotated(e4m3(ScaleFormat::F32));
    let sglang = IndexRecipe {
        linears: Linears::Fp8,
        query,
        key,
        unit: DotUnit::Fp8K32,
        reduction: Reduction::DeepGemm,
        ..fp32()
    };
    let (query, key) = plain(Quantiser::Bf16);
    let bf16_keys = IndexRecipe {
        query,
        key,
        unit: DotUnit::MmaBf16K16,
        reduction: ascending(Contraction::Fma, ScalePosition::InProduct),
        ..sglang.clone()
    };
    let triton = IndexRecipe {
        unit: DotUnit::MmaTf32K8,
        reduction: ascending(Contraction::Fma, ScalePosition::Last),
        ..sglang.clone()
    };
    let fallback = IndexRecipe {
        unit: DotUnit::MmaBf16K16,
        dot: Storage::Bf16,
        reduction: Reduction::Steps(Reduce {
            scale: ScalePosition::Last,
            relu: Relu::MaxKeepsNan,
            contraction: Contraction::MulAdd,
            ..Reduce::default()
        }),
        ..sglang.clone()
    };
    vec![
        named(
            bf16_keys,
            "bf16-keys",
            "q and k rounded to bf16 once, not rotated",
            "the bf16 option of the engines' index cache",
        ),
        named(
            sglang,
            "fp8-f32scale",
            "rotated q and k to e4m3, fp32 scales, the arch's FP8 unit",
            "SGLang on DeepGEMM",
        ),
        named(
            triton,
            "fp8-triton",
            "the same codes on the TF32 unit, heads ascending",
            "SGLang's Triton kernel on sm_120",
        ),
        named(
            fallback,
            "bf16-fallback",
            "the same codes in bf16, each head's dot rounded to bf16",
            "SGLang's torch fallback",
        ),
    ]
}

fn ue8m0() -> IndexRecipe {
    let (query, key) = plain(e4m3(ScaleFormat::Ue8m0));
    let bf16 = Storage::Bf16;
    let vllm = IndexRecipe {
        linears: Linears::Fp8,
        query: QueryPath {
            roped: bf16,
            ..query
        },
        key: KeyPath { roped: bf16, ..key },
        weights: HeadWeights {
            fold: Fold::ScaleFirst,
            stored: Storage::F32,
        },
        unit: DotUnit::Fp8K32,
        reduction: Reduction::DeepGemm,
        ..fp32()
    };
    named(
        vllm,
        "fp8-ue8m0",
        "q and k to e4m3 with power-of-two scales, not rotated",
        "vLLM on DeepGEMM",
    )
}

fn mxfp4() -> IndexRecipe {
    let (query, key) = rotated(FP4_CODES);
    let sglang = IndexRecipe {
        linears: Linears::Fp8,
        query,
        key,
        unit: DotUnit::Mxf4K64,
        reduction: Reduction::DeepGemm,
        ..fp32()
    };
    named(
        sglang,
        "mxfp4",
        "rotated q and k to e2m1 with a power-of-two scale per 32",
        "SGLang's FP4 indexer on sm_100 and sm_120",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_unit_holds_its_operands() {
        let all = builtin();
        for (index, recipe) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|known| known.name != recipe.name));
            for format in [recipe.query.format, recipe.key.format] {
                assert!(recipe.unit.holds(format.format()), "{}", recipe.name);
            }
        }
    }
}
