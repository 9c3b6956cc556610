//! A recipe of the indexer in words, step by step.

use super::{
    DotUnit, Fill, Floor, Fold, HeadOrder, Held, IndexRecipe, KeyPath, Linears, LogitFormat,
    Quantiser, QueryPath, Reduce, Reduction, Relu, ScaleFormat, ScalePosition, Scaling, Selector,
    Ties,
};
use crate::{
    recipe::{Contraction, Storage},
    tensor_core::Arch,
};

/// The steps of a recipe, in the order they happen, on every arch.
#[must_use]
pub fn steps(recipe: &IndexRecipe) -> Vec<String> {
    around(recipe, reduction(recipe))
}

/// The steps of a recipe on one arch.
#[must_use]
pub fn steps_on(recipe: &IndexRecipe, arch: Arch) -> Vec<String> {
    let steps = recipe.reduction.on(arch, recipe.has_key_scale());
    around(recipe, vec![format!("heads: {}", reduce(&steps))])
}

/// What comes before and after the reduction of the heads.
fn around(recipe: &IndexRecipe, reduction: Vec<String>) -> Vec<String> {
    let mut steps = vec![
        format!("linears: {}", linears(recipe.linears)),
        format!("q: {}", query(&recipe.query)),
        format!("k: {}", key(&recipe.key)),
        format!("head weights: {}", weights(recipe)),
        format!(
            "dot: one chain over ascending k, {}; {}",
            unit(recipe.unit),
            storage(recipe.dot)
        ),
    ];
    steps.extend(reduction);
    steps.push(format!("logit: {}", output(recipe.output)));
    steps.push(format!("selection: {}", selection(recipe)));
    steps
}

fn linears(linears: Linears) -> &'static str {
    match linears {
        Linears::Fp8 => {
            "wq_a and wq_b as stored; an FP8 weight multiplies e4m3 inputs with a power-of-two scale per 128, \
             block by block on the arch's FP8 unit; results rounded to bf16"
        }
        Linears::Fp32 => {
            "wq_a and wq_b dequantised to fp32, inputs as they are, one fused chain over ascending k, \
             results in fp32"
        }
    }
}

fn query(path: &QueryPath) -> String {
    let mut steps = vec![rounded("rope on the last 64 values", path.roped)];
    if path.hadamard {
        steps.push(rounded("Hadamard · 128^-½", path.rotated));
    }
    steps.push(format(path.format));
    steps.join("; ")
}

fn key(path: &KeyPath) -> String {
    let mut steps = vec![
        rounded("pooled over 8 rows with a softmax per channel", path.pooled),
        rounded("RMS norm", path.normed),
        rounded("rope at position 4i", path.roped),
    ];
    if path.hadamard {
        steps.push(rounded("Hadamard · 128^-½", path.rotated));
    }
    steps.push(format(path.format));
    steps.join("; ")
}

fn rounded(step: &str, storage: Storage) -> String {
    match storage {
        Storage::F32 => step.to_owned(),
        Storage::Bf16 => format!("{step}, rounded to bf16"),
    }
}

fn format(quantiser: Quantiser) -> String {
    match quantiser {
        Quantiser::F32 => "kept in fp32".to_owned(),
        Quantiser::Tf32 => "rounded to TF32, nearest, ties to even".to_owned(),
        Quantiser::Bf16 => "rounded to bf16".to_owned(),
        Quantiser::F16 => "rounded to f16".to_owned(),
        Quantiser::E4m3 {
            scale,
            block,
            scaling,
            held,
        } => {
            let scale = match scale {
                ScaleFormat::F32 => "amax/448 in fp32",
                ScaleFormat::Ue8m0 => "the power of two at or above amax/448",
            };
            format!(
                "e4m3, nearest-even, a scale per {block} values ({scale}, amax at least 1e-4), {}; {}",
                self::scaling(scaling),
                self::held(held)
            )
        }
        Quantiser::Mxfp4 {
            floor,
            scaling,
            ties,
            held,
        } => {
            let floor = match floor {
                Floor::LeastNormal => "6·2^-126",
                Floor::TenThousandth => "1e-4",
            };
            let ties = match ties {
                Ties::Even => "ties to even",
                Ties::TowardZero => "ties toward zero",
            };
            format!(
                "e2m1, nearest, {ties}, a scale per 32 values (the power of two at or above amax/6, amax at least \
                 {floor}), {}; {}",
                self::scaling(scaling),
                self::held(held)
            )
        }
    }
}

fn scaling(scaling: Scaling) -> &'static str {
    match scaling {
        Scaling::Divide => "x / scale",
        Scaling::Reciprocal => "x · (1 / scale)",
    }
}

fn held(held: Held) -> &'static str {
    match held {
        Held::Codes => "the codes multiply",
        Held::Values => "code · scale in bf16 multiplies",
    }
}

fn weights(recipe: &IndexRecipe) -> String {
    let fold = match (recipe.weights.fold, recipe.has_query_scale()) {
        (Fold::ConstantFirst, true) => "weights_proj · fp32(128^-½·H^-½) · q's scale",
        (Fold::ConstantFirst, false) => "weights_proj · fp32(128^-½·H^-½)",
        (Fold::ScaleFirst, true) => "weights_proj · q's scale · fp32(128^-½) · fp32(H^-½)",
        (Fold::ScaleFirst, false) => "weights_proj · fp32(128^-½) · fp32(H^-½)",
        (Fold::Split, true) => "weights_proj · fp32(H^-½) · q's scale; every dot · fp32(128^-½)",
        (Fold::Split, false) => "weights_proj · fp32(H^-½); every dot · fp32(128^-½)",
    };
    format!(
        "{fold}, a rounding each, {}",
        storage(recipe.weights.stored)
    )
}

fn unit(unit: DotUnit) -> &'static str {
    match unit {
        DotUnit::FmaF32 => "fp32 fused multiply-add",
        DotUnit::MmaTf32K8 => "tensor core m16n8k8 TF32, accumulator rounded toward zero",
        DotUnit::MmaBf16K16 => "tensor core m16n8k16 bf16, accumulator rounded toward zero",
        DotUnit::MmaF16K16 => "tensor core m16n8k16 f16, accumulator rounded toward zero",
        DotUnit::Fp8K32 => {
            "the arch's FP8 unit, 32 products at a time (13 fraction bits on sm_89 and sm_90, 25 on sm_100 and sm_120)"
        }
        DotUnit::Mxf4K64 => {
            "tensor core m16n8k64 mxf4, scales in the product, 35 fraction bits (sm_100 and sm_120)"
        }
    }
}

/// What happens between the dots and the logit; `DeepGEMM`'s two kernels where they differ.
fn reduction(recipe: &IndexRecipe) -> Vec<String> {
    let scales = recipe.has_key_scale();
    match recipe.reduction {
        Reduction::Steps(steps) => vec![format!("heads: {}", reduce(&steps))],
        deep_gemm @ Reduction::DeepGemm => [
            ("sm_90 and before", Arch::Sm90),
            ("sm_100, sm_120", Arch::Sm120),
        ]
        .map(|(archs, arch)| format!("heads ({archs}): {}", reduce(&deep_gemm.on(arch, scales))))
        .to_vec(),
    }
}

fn reduce(reduce: &Reduce) -> String {
    let mut steps = Vec::new();
    if reduce.scale == ScalePosition::BeforeRelu {
        steps.push("dot · k's scale".to_owned());
    }
    steps.push(
        match reduce.relu {
            Relu::Max => "max(s, 0), a NaN becomes 0",
            Relu::MaxKeepsNan => "max(s, 0), a NaN stays",
            Relu::HalfSum => "s + |s|, halved at the end, a NaN stays",
            Relu::Absent => "no relu",
        }
        .to_owned(),
    );
    let product = match (reduce.product, reduce.contraction) {
        (Storage::Bf16, _) => "· weight rounded to bf16, then added",
        (Storage::F32, Contraction::Fma) => "· weight, fused with the sum",
        (Storage::F32, Contraction::MulAdd) => "· weight, rounded, then added",
    };
    let sums = match reduce.sum {
        Storage::F32 => "fp32",
        Storage::Bf16 => "bf16",
    };
    let order = match reduce.order {
        HeadOrder::Ascending => "heads ascending",
        HeadOrder::FourLanes => {
            "in lane c = 0..3 one sum over heads 8j+2c and one over 8j+2c+1, even + odd, then lanes by xor 1 and xor 2"
        }
        HeadOrder::FourChains => "four sums by head mod 4, (c0+c2) + (c1+c3)",
        HeadOrder::ChunksOfEight => "a sum per 8 heads, chunk after chunk",
        HeadOrder::Tree => "pairs at strides H/2, …, 1",
    };
    steps.push(format!("{product} in {sums}: {order}"));
    match reduce.scale {
        ScalePosition::BeforeLanes => {
            steps.push("a lane's sum · k's scale before lanes meet".to_owned());
        }
        ScalePosition::Last => steps.push("the sum · k's scale".to_owned()),
        ScalePosition::InProduct | ScalePosition::BeforeRelu => {}
    }
    steps.join("; ")
}

fn output(output: LogitFormat) -> &'static str {
    match output {
        LogitFormat::F32 => "stored in fp32",
        LogitFormat::Bf16 => "rounded to bf16",
        LogitFormat::F16 => "rounded to f16",
    }
}

fn selection(recipe: &IndexRecipe) -> String {
    let fill = match recipe.fill {
        Fill::NegativeInfinity => "keys out of sight are −inf",
        Fill::Zero => "keys out of sight are 0, which beats a negative logit",
    };
    format!("{}; {fill}", selector(recipe.select))
}

fn selector(selector: Selector) -> String {
    match selector {
        Selector::Exact => "the k largest, ties to the lower index".to_owned(),
        Selector::Bf16Ties => {
            "the k largest by their bf16 roundings, ties to the lower index".to_owned()
        }
        Selector::CoarseRadix { key_bits, buffer } => format!(
            "by the upper {key_bits} bits of the logit's half: bins above the cut's whole, of the cut's bin the \
             largest among its first {buffer}, the rest dropped"
        ),
    }
}

fn storage(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => "kept in fp32",
        Storage::Bf16 => "rounded to bf16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::indexer::catalogue::builtin;

    /// What `ulpdrift variants NAME` says of every built-in: wording that changes has to be read.
    #[test]
    fn every_built_in_in_words() {
        let text = builtin().into_iter().map(|recipe| {
            let head = format!("{} ({}): {}", recipe.name, recipe.engine, recipe.summary);
            format!("{head}\n  {}\n", steps(&recipe).join("\n  "))
        });
        insta::assert_snapshot!(text.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn no_two_recipes_read_alike() {
        let texts: Vec<_> = builtin()
            .iter()
            .map(|recipe| steps(recipe).join("\n"))
            .collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!texts[..index].contains(text), "{text}");
        }
    }
}
