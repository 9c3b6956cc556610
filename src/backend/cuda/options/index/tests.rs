//! Macros of whole recipes, and launches that cover every key.

use std::fmt::Write;

use super::*;
use crate::{
    backend::cuda::{device, nvrtc::Nvrtc, source::Sources, testing::pinned_nvrtc},
    recipe::indexer::{
        DotUnit, Held, Quantiser, Reduce, Reduction, ScaleFormat, Scaling, Selector,
        catalogue::builtin,
    },
};

const HEADS: usize = 64;
const WIDTH: usize = 128;

fn build(recipe: &IndexRecipe, arch: Arch, keys: usize) -> Build {
    let dot = Dot::of(recipe, arch).expect("the arch has the unit");
    let shape = IndexShape::of(recipe, (16, HEADS), (keys, WIDTH));
    index_logits(recipe, arch, dot, shape)
}

fn value(build: &Build, name: &str) -> usize {
    let start = format!("-D{name}=");
    let mut values = build.options.iter();
    let value = values.find_map(|option| option.strip_prefix(&start));
    value.expect("a macro").parse().expect("a number")
}

fn recipe(name: &str) -> IndexRecipe {
    let found = builtin().into_iter().find(|recipe| recipe.name == name);
    found.expect("a built-in")
}

/// e4m3 codes with a scale per so many values, on a unit.
fn codes(unit: DotUnit, block: usize) -> IndexRecipe {
    let format = Quantiser::E4m3 {
        scale: ScaleFormat::F32,
        block,
        scaling: Scaling::Divide,
        held: Held::Codes,
    };
    let mut recipe = recipe("fp32");
    (recipe.query.format, recipe.key.format, recipe.unit) = (format, format, unit);
    recipe
}

#[test]
fn the_macros_of_every_recipe() {
    let mut text = String::new();
    for recipe in builtin() {
        for arch in [Arch::Sm89, Arch::Sm90, Arch::Sm100, Arch::Sm120] {
            let Ok(dot) = Dot::of(&recipe, arch) else {
                let reason = Dot::of(&recipe, arch).unwrap_err();
                writeln!(text, "{} on {arch}: {reason}", recipe.name).unwrap();
                continue;
            };
            let shape = IndexShape::of(&recipe, (16, HEADS), (16384, WIDTH));
            let build = index_logits(&recipe, arch, dot, shape);
            let options = build.options.join(" ").replace("-D", "");
            let target = build.target(&arch.to_string());
            writeln!(text, "{} on {target}: {options}", recipe.name).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// The macros that number something mean in the source what they mean here.
#[test]
fn the_numbers_are_those_of_the_source() {
    let sources = Sources::default();
    let text = sources.text(Kernel::IndexLogits);
    let defines = |name: &str, value: usize| {
        let line = format!("#define {name} {value}");
        assert!(text.lines().any(|known| known == line), "no '{line}'");
    };
    for (name, dot) in [
        ("UNIT_E4M3", Dot::Mma(Operand::E4m3)),
        ("UNIT_E4M3_WGMMA", Dot::WgmmaE4m3),
        ("UNIT_MXF4", Dot::MmaMxf4),
        ("UNIT_FMA", Dot::Fma),
    ] {
        defines(name, dot.code());
    }
    for (name, recipe) in [
        ("SCALES_NONE", recipe("fp32")),
        ("SCALES_CHAIN", codes(DotUnit::FmaF32, 32)),
        ("SCALES_UNIT", recipe("mxfp4")),
    ] {
        defines(name, value(&build(&recipe, Arch::Sm120, 1), "SCALES"));
    }
    let of_steps = |macro_name: &str, name: &str, steps: Reduce| {
        let mut recipe = codes(DotUnit::FmaF32, 128);
        recipe.reduction = Reduction::Steps(steps);
        defines(name, value(&build(&recipe, Arch::Sm90, 1), macro_name));
    };
    let plain = Reduce::default();
    for (name, relu) in [
        ("RELU_MAX", Relu::Max),
        ("RELU_KEEPS_NAN", Relu::MaxKeepsNan),
        ("RELU_HALF_SUM", Relu::HalfSum),
        ("RELU_ABSENT", Relu::Absent),
    ] {
        of_steps("RELU", name, Reduce { relu, ..plain });
    }
    for (name, scale) in [
        ("KEY_SCALE_NONE", ScalePosition::InProduct),
        ("KEY_SCALE_BEFORE_RELU", ScalePosition::BeforeRelu),
        ("KEY_SCALE_BEFORE_LANES", ScalePosition::BeforeLanes),
        ("KEY_SCALE_LAST", ScalePosition::Last),
    ] {
        of_steps("KEY_SCALE", name, Reduce { scale, ..plain });
    }
    for (name, order) in [
        ("ORDER_ASCENDING", HeadOrder::Ascending),
        ("ORDER_LANES", HeadOrder::FourLanes),
        ("ORDER_CHAINS", HeadOrder::FourChains),
        ("ORDER_CHUNKS", HeadOrder::ChunksOfEight),
        ("ORDER_TREE", HeadOrder::Tree),
    ] {
        of_steps("ORDER", name, Reduce { order, ..plain });
    }
    for (name, size) in [
        ("KEYS", KEYS),
        ("STRIDE", STRIDE),
        ("TILE_HEADS", TILE_HEADS),
    ] {
        defines(name, size);
    }
    defines("STEP_WORDS", STEP_WORDS);
    let top_k_text = sources.text(Kernel::TopK);
    let threads = format!("#define THREADS {}", top_k(1).grid.threads);
    assert!(top_k_text.lines().any(|line| line == threads), "{threads}");
}

/// What cuts a dot into chains, and what does not.
#[test]
fn scales_by_blocks_cut_the_chain() {
    let chains = |unit, block| {
        let shape = IndexShape::of(&codes(unit, block), (1, HEADS), (1, WIDTH));
        (shape.chains(), shape.key_scales)
    };
    assert_eq!(chains(DotUnit::Fp8K32, 32), (4, false));
    assert_eq!(chains(DotUnit::MmaBf16K16, 64), (2, false));
    assert_eq!(chains(DotUnit::FmaF32, 128), (1, true));
    let of = |name| IndexShape::of(&recipe(name), (1, HEADS), (1, WIDTH));
    assert_eq!(of("mxfp4").chains(), 1);
    assert!(!of("mxfp4").key_scales && !of("fp32").key_scales && of("fp8-keys-only").key_scales);
    // A quarter of a row of bytes is one instruction.
    let build = build(&codes(DotUnit::Fp8K32, 32), Arch::Sm90, 1);
    assert_eq!(value(&build, "CHAIN_WORDS"), STEP_WORDS);
    assert_eq!(value(&build, "ROW_WORDS"), 4 * STEP_WORDS);
}

/// A row that the unit does not fill ends in zeros; its CUDA cores stop at its end.
#[test]
fn rows_are_whole_instructions() {
    for (dot, width, words) in [
        (Dot::Fma, 126, 128),
        (Dot::Mma(Operand::Tf32), 130, 136),
        (Dot::Mma(Operand::Bf16), 128, 64),
        (Dot::WgmmaE4m3, 33, 16),
        (Dot::MmaMxf4, 128, 16),
        (Dot::MmaMxf4, 65, 16),
    ] {
        assert_eq!(dot.row_words(width), words, "{dot:?} {width}");
    }
}

/// Every key of every query comes from one warp, whatever the heads, and a block's memory is there on every arch.
#[test]
fn a_launch_makes_every_logit() {
    for name in ["fp32", "bf16-keys", "fp8-f32scale"] {
        for heads in [1, 8, 64, 100, 300] {
            for keys in [1, 31, 128, 129, 16384, 1 << 20] {
                let recipe = recipe(name);
                let dot = Dot::of(&recipe, Arch::Sm120).expect("it has them");
                let shape = IndexShape::of(&recipe, (3, heads), (keys, WIDTH));
                let build = index_logits(&recipe, Arch::Sm120, dot, shape);
                let (queries, tiles) = build.grid.blocks;
                let of_block = KEYS * value(&build, "WARPS");
                assert_eq!((queries, tiles), (3, keys.div_ceil(of_block)));
                assert!(tiles <= 65_535, "{heads} heads, {keys} keys");
                assert_eq!(build.grid.threads, of_block);
                assert!(build.grid.shared <= 99 << 10);
            }
        }
    }
}

/// An arch without the unit, and units without a kernel: in the words of a report.
#[test]
fn what_cannot_run_is_one_sentence() {
    let reason = |name, arch| Dot::of(&recipe(name), arch).unwrap_err();
    for (name, arch) in [("fp8-ue8m0", Arch::Sm80), ("mxfp4", Arch::Sm90)] {
        let error = reason(name, arch);
        assert!(
            matches!(error, BackendError::Unsupported { .. }),
            "{error:?}"
        );
    }
    for name in ["fp8-ue8m0", "mxfp4"] {
        let error = reason(name, Arch::Sm100);
        assert!(matches!(error, BackendError::NoKernel { .. }), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains("tcgen05") && said.ends_with("use --backend emulate"),
            "{said}"
        );
    }
    for selector in [Selector::Bf16Ties, Selector::SGLANG_FAST] {
        assert_ne!(selector.name(), Selector::Exact.name());
    }
}

/// The bytes that the host asks for are those that the kernel lays in them.
#[test]
fn shared_memory_has_the_size_that_the_kernel_gives_it() {
    let Some(library) = pinned_nvrtc() else {
        return;
    };
    let nvrtc = Nvrtc::open(Some(&library)).unwrap();
    for name in ["fp32", "bf16-keys", "fp8-f32scale"] {
        let build = build(&recipe(name), Arch::Sm90, 100);
        let compiles_with = |bytes: usize| {
            let kernel = Sources::default().text(build.kernel).to_owned();
            let claim = format!("static_assert(SHARED_BYTES == {bytes}, \"size\");");
            let file = build.kernel.file().to_owned();
            let sources = Sources::with([(file, format!("{kernel}\n{claim}\n"))].into());
            device::compile(&nvrtc, &sources, &build, "sm_90").is_ok()
        };
        assert!(compiles_with(build.grid.shared), "{name}");
        assert!(!compiles_with(build.grid.shared + 16), "{name}");
    }
}
