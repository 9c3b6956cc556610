//! A recipe in words, step by step: what `ulpdrift variants NAME` prints.

use super::{
    Contraction, Mean, MixRecipe, NormPlacement, OperandRounding, Order, Projection, Recombine,
    RecombineOrder, Rsqrt, Sigmoid, SinkhornDivision, SinkhornEps, SquareSum, Storage, Unit,
    library::LibraryProduct,
    splits::{Boundaries, Launch, SplitCount, SplitRule},
};

/// The K, tokens and SMs a split rule is illustrated with: V4-Flash, a decode batch, RTX PRO 6000.
const EXAMPLE_K: usize = 16384;
const EXAMPLE_LAUNCH: Launch = Launch {
    tokens: 64,
    sms: 188,
};

/// The steps of a recipe, in the order they happen.
#[must_use]
pub fn steps(recipe: &MixRecipe) -> Vec<String> {
    let projection = &recipe.projection;
    let mut steps = vec![format!("weight: hc_fn {}", weight(projection))];
    steps.push(format!("rms: {}", rms(projection)));
    steps.push(format!("x: {}", x(projection)));
    steps.push(format!("unit: {}", unit(projection.unit)));
    if projection.products().len() > 1 {
        steps.push(format!("products: {}", products(projection)));
    }
    steps.push(format!("order: {}", order(projection.order)));
    steps.push(format!("output: {}", storage(recipe.output)));
    steps.extend(after_the_output(recipe));
    steps
}

/// The steps of a library's product, as far as they are known.
#[must_use]
pub fn product(product: LibraryProduct) -> Vec<String> {
    let surroundings = product.surroundings();
    let operands = match product.operands() {
        Storage::F32 => "in fp32",
        Storage::Bf16 => "rounded to bf16, nearest, ties to even",
    };
    let mut steps = vec![
        format!("x and hc_fn: handed over {operands}; what the library does to them is probed"),
        format!(
            "dot: cublasGemmEx, compute type {}; in which order it sums is not known, so that there is \
             neither a recipe-exact value nor a bound",
            product.compute_type()
        ),
        format!("rms: {}", rms(&surroundings.projection)),
    ];
    steps.extend(after_the_output(&surroundings));
    steps
}

/// The steps of a recombination.
#[must_use]
pub fn recombination(recombine: &Recombine) -> Vec<String> {
    let sum = match recombine.contraction {
        Contraction::Fma => "each product but the first fused with the sum",
        Contraction::MulAdd => "a rounding per product and per sum",
    };
    let order = match recombine.order {
        RecombineOrder::PostFirst => format!("post·f, then the streams ascending; {sum}"),
        RecombineOrder::StreamFirst => {
            format!("the first stream, post·f, then the other streams ascending; {sum}")
        }
        RecombineOrder::Apart { terms } => format!(
            "the streams ascending, {sum}; post·f by itself; both {}, then added",
            storage(terms)
        ),
    };
    vec![
        format!("post and comb: {}", storage(recombine.gates)),
        format!("streams: X' = post·f + combᵀ·X in fp32: {order}"),
        "as deployed: one rounding of X' to bf16".to_owned(),
    ]
}

fn after_the_output(recipe: &MixRecipe) -> [String; 3] {
    let mixes = match recipe.projection.norm {
        NormPlacement::After => format!("mixes: output × rms factor, {}", storage(recipe.scaled)),
        NormPlacement::Before => "mixes: the output itself (x was normalised first)".to_owned(),
    };
    [
        mixes,
        format!("gates and comb: {}", split(recipe)),
        format!(
            "collapse: y = Σ pre_j·x_j in fp32, streams ascending, {}; one rounding to bf16",
            contraction(recipe.epilogue.collapse)
        ),
    ]
}

fn rounding(rounding: OperandRounding) -> &'static str {
    match rounding {
        OperandRounding::F32 => "fp32, as stored",
        OperandRounding::Tf32Nearest => "rounded to TF32, nearest, ties to even (the TMA engine)",
        OperandRounding::Tf32Away => "rounded to TF32, nearest, ties away (cvt.rna)",
        OperandRounding::Tf32Truncate => "raw fp32 bits; the unit ignores the low 13 (truncation)",
        OperandRounding::Bf16 => "rounded to bf16, nearest, ties to even",
        OperandRounding::F16 => "rounded to f16, nearest, ties to even",
    }
}

fn weight(projection: &Projection) -> String {
    let text = rounding(projection.weight);
    match projection.weight_parts {
        1 => text.to_owned(),
        parts => format!("as the sum of {parts} parts, each {text}"),
    }
}

fn x(projection: &Projection) -> String {
    let first = match projection.norm {
        NormPlacement::After => "as stored",
        NormPlacement::Before => "times the rms factor in fp32",
    };
    let then = match projection.x_rounding() {
        OperandRounding::F32 => "kept in fp32".to_owned(),
        rule => format!("then, where the unit cannot hold it, {}", rounding(rule)),
    };
    match projection.x_parts {
        1 => format!("{first}, {then}"),
        parts => format!("{first}, {then}, in {parts} parts"),
    }
}

fn rms(projection: &Projection) -> String {
    let sum = match projection.square_sum {
        SquareSum::Chains => "one FMA chain per range of the projection, ranges added ascending",
        SquareSum::Lanes4 => {
            "per range, lane c adds fma(x0,x0,x1*x1) of columns 8g+c and 8g+c+4, g ascending; \
             lanes meet by xor 2, then xor 1; ranges added ascending"
        }
        SquareSum::Interleave4 => "four FMA chains by k mod 4 over the row, added ascending",
        SquareSum::ThreadStrided => "strided FMA chains and the block tree of the projection",
    };
    let mean = match projection.mean {
        Mean::Divide => "divided by K",
        Mean::Reciprocal => "times fp32(1/K)",
    };
    let root = match projection.rsqrt {
        Rsqrt::Rounded => "correctly rounded rsqrt",
        Rsqrt::SqrtThenDivide => "1/sqrt, two roundings",
    };
    format!("Σx² in fp32 ({sum}), {mean}, + norm eps, {root}")
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::FmaF32 => "fp32 fused multiply-add, one product at a time",
        Unit::MmaTf32K8 => "tensor core m16n8k8 TF32, fp32 accumulator rounded toward zero",
        Unit::MmaBf16K16 => "tensor core m16n8k16 bf16, fp32 accumulator rounded toward zero",
        Unit::MmaF16K16 => "tensor core m16n8k16 f16, fp32 accumulator rounded toward zero",
    }
}

fn products(projection: &Projection) -> String {
    let names: Vec<String> = projection
        .products()
        .iter()
        .map(|product| format!("x[{}]·w[{}]", product.x, product.weight))
        .collect();
    format!(
        "per range one accumulator, a whole chain each: {}",
        names.join(", then ")
    )
}

fn order(order: Order) -> String {
    match order {
        Order::ThreadStrided { threads } => {
            format!(
                "{threads} threads, thread t takes k = t, t+{threads}, …; then a block tree: thread \
                 t adds thread t+{half}'s sum, and so on with half the distance each time",
                half = threads / 2
            )
        }
        Order::Chains { splits, partials } => {
            let stored = match partials {
                Storage::F32 => "",
                Storage::Bf16 => ", stored as bf16",
            };
            format!(
                "{}; one ascending chain each{stored}, added ascending in fp32",
                ranges(splits)
            )
        }
    }
}

fn ranges(rule: SplitRule) -> String {
    let count = match rule.count {
        SplitCount::Fixed(1) => "one range of K".to_owned(),
        SplitCount::Fixed(count) => format!("{count} contiguous ranges of K"),
        SplitCount::Engine => "max(1, min(SMs/⌈T/64⌉, K/256)) ranges".to_owned(),
        SplitCount::Tilelang => "32 ranges up to 2048 tokens, else 1".to_owned(),
    };
    let boundaries = match rule.boundaries {
        Boundaries::Deepgemm => "whole blocks of 64, the first ranges take one more",
        Boundaries::Triton => "⌈K/S⌉ elements each, unaligned",
    };
    let here = rule.ranges(EXAMPLE_K, EXAMPLE_LAUNCH).len();
    format!(
        "{count} ({boundaries}; {here} at K = {EXAMPLE_K}, {} tokens, {} SMs)",
        EXAMPLE_LAUNCH.tokens, EXAMPLE_LAUNCH.sms
    )
}

fn storage(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => "kept in fp32",
        Storage::Bf16 => "rounded to bf16",
    }
}

fn contraction(contraction: Contraction) -> &'static str {
    match contraction {
        Contraction::Fma => "fused multiply-add",
        Contraction::MulAdd => "multiply, then add",
    }
}

fn split(recipe: &MixRecipe) -> String {
    let epilogue = &recipe.epilogue;
    let sigmoid = match epilogue.sigmoid {
        Sigmoid::Exp => "1/(1+exp(−z))",
        Sigmoid::Exp2 => "1/(1+exp2(−z·log2e))",
    };
    let eps = match epilogue.eps {
        SinkhornEps::AddAfterSum => "eps added to each sum",
        SinkhornEps::StartSum => "each sum starts at eps",
        SinkhornEps::Clamp => "each sum clamped at eps",
    };
    let division = match epilogue.division {
        SinkhornDivision::Divide => "true division",
        SinkhornDivision::Reciprocal => "product with the reciprocal",
    };
    let shift = if epilogue.skip_row_max {
        "no row maximum"
    } else {
        "row maximum subtracted"
    };
    format!(
        "fp32; scale·m + base by {}; sigmoid {sigmoid}; softmax ({shift}), then Sinkhorn ({eps}, \
         {division}); sums of 4 ascending; exp correctly rounded (a GPU's own is within 2 ulp)",
        contraction(epilogue.affine)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{RecombineRecipe, catalogue::builtin};

    /// What `ulpdrift variants NAME` says of every built-in: wording that changes has to be read.
    #[test]
    fn every_built_in_in_words() {
        let text: Vec<String> = builtin()
            .iter()
            .map(|recipe| {
                let head = format!("{} ({}): {}", recipe.name, recipe.engine, recipe.summary);
                format!("{head}\n  {}\n", steps(recipe).join("\n  "))
            })
            .collect();
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn every_product_in_words() {
        let text = LibraryProduct::ALL.map(|known| {
            let head = format!("{}: {}", known.name(), known.summary());
            format!("{head}\n  {}\n", product(known).join("\n  "))
        });
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn every_recombination_in_words() {
        let text = RecombineRecipe::ALL.map(|known| {
            let head = format!("{} ({}): {}", known.name, known.engine, known.summary);
            let steps = recombination(&known.arithmetic);
            format!("{head}\n  {}\n", steps.join("\n  "))
        });
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn no_two_recipes_read_alike() {
        let recipes = builtin();
        let recombined = RecombineRecipe::ALL.iter();
        let texts: Vec<_> = recipes
            .iter()
            .map(steps)
            .chain(recombined.map(|known| recombination(&known.arithmetic)))
            .map(|steps| steps.join("\n"))
            .collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!texts[..index].contains(text), "{text}");
        }
    }
}
