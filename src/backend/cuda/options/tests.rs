//! Macros of whole recipes, launches that cover every output, and shared memory that a block can have.

use std::fmt::Write;

use super::*;
use crate::{
    backend::cuda::{
        device, error::CudaError, nvrtc::Nvrtc, source::Sources, testing::pinned_nvrtc,
    },
    recipe::{MixRecipe, Recombine, RecombineOrder, catalogue::builtin, splits::Launch},
};

/// What a block may ask for on sm_86, sm_89 and sm_120, the least of all archs: 99 KiB (CUDA C++
/// Programming Guide, technical specifications per compute capability).
const LEAST_SHARED: usize = 99 << 10;

fn recipe(name: &str) -> MixRecipe {
    let found = builtin().into_iter().find(|recipe| recipe.name == name);
    found.expect("a built-in")
}

/// The projection of a recipe, its ranges those of its own split rule.
fn project(recipe: &MixRecipe, tokens: usize, outputs: usize, depth: usize, x: Stored) -> Build {
    let launch = Launch { tokens, sms: 188 };
    let ranges = recipe.projection.order.ranges(depth, launch);
    let shape = Shape {
        tokens,
        outputs,
        depth,
        ranges: &ranges,
        x,
    };
    projection(&recipe.projection, &shape)
}

#[test]
fn the_macros_of_every_recipe() {
    let mut text = String::new();
    for recipe in builtin() {
        let launch = Launch {
            tokens: 64,
            sms: 188,
        };
        let ranges = recipe.projection.order.ranges(16384, launch);
        for x in [Stored::Bf16, Stored::F32] {
            let shape = Shape {
                tokens: 64,
                outputs: 24,
                depth: 16384,
                ranges: &ranges,
                x,
            };
            let builds = [
                rms(&recipe.projection, &shape).0,
                projection(&recipe.projection, &shape),
                finish(&recipe.projection, recipe.output, recipe.scaled, &shape),
                split_sinkhorn(&recipe.epilogue, 4, 64),
                collapse(&recipe.epilogue, 4, 64, 4096, x),
            ];
            writeln!(text, "{}, x as {x:?}", recipe.name).unwrap();
            for build in builds {
                let options: Vec<&str> = build
                    .options
                    .iter()
                    .map(|option| option.trim_start_matches("-D"))
                    .collect();
                let (kernel, options) = (build.kernel.file(), options.join(" "));
                writeln!(text, "  {kernel}: {options}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(text);
}

fn streams(x: Stored, f: Stored) -> StreamShape {
    StreamShape {
        tokens: 64,
        hc: 4,
        width: 4096,
        x,
        f,
    }
}

#[test]
fn the_macros_of_every_recombination() {
    let mut text = String::new();
    for (name, recipe) in [
        ("fp32", Recombine::FP32),
        ("mul-add", Recombine::MUL_ADD),
        ("stream first", Recombine::STREAM_FIRST),
        ("transformers", Recombine::TRANSFORMERS),
    ] {
        for (x, f) in [
            (Stored::Bf16, Stored::Bf16),
            (Stored::Bf16, Stored::F32),
            (Stored::F32, Stored::Bf16),
        ] {
            let build = recombine(&recipe, streams(x, f));
            let options = build.options.join(" ").replace("-D", "");
            writeln!(text, "{name}, x as {x:?}, f as {f:?}: {options}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// The macros that number something mean in the sources what they mean here.
#[test]
fn the_numbers_are_those_of_the_sources() {
    let sources = Sources::default();
    let [(_, header), _] = sources.headers();
    let defines = |text: &str, name: &str, value: usize| {
        let line = format!("#define {name} {value}");
        assert!(text.lines().any(|known| known == line), "no '{line}'");
    };
    for (name, value) in [
        ("ROUND_NONE", OperandRounding::F32),
        ("ROUND_TF32_NEAREST", OperandRounding::Tf32Nearest),
        ("ROUND_TF32_AWAY", OperandRounding::Tf32Away),
        ("ROUND_TF32_TRUNCATE", OperandRounding::Tf32Truncate),
        ("ROUND_BF16", OperandRounding::Bf16),
        ("ROUND_F16", OperandRounding::F16),
    ] {
        defines(header, name, rounding(value));
    }
    defines(header, "STORE_F32", storage(Storage::F32));
    defines(header, "STORE_BF16", storage(Storage::Bf16));
    let macro_of = |build: &Build, name: &str| -> usize {
        let start = format!("-D{name}=");
        let mut values = build.options.iter();
        let value = values.find_map(|option| option.strip_prefix(&start));
        value.expect("a macro").parse().expect("a number")
    };
    for (name, built_in) in [
        ("UNIT_TF32", "tf32"),
        ("UNIT_BF16", "bf16"),
        ("UNIT_F16", "f16-mma"),
    ] {
        let build = project(&recipe(built_in), 64, 24, 16384, Stored::Bf16);
        defines(header, name, macro_of(&build, "UNIT"));
    }
    let rms_text = sources.text(Kernel::Rms);
    for (name, square_sum) in [
        ("SQUARES_CHAINS", SquareSum::Chains),
        ("SQUARES_LANES", SquareSum::Lanes4),
        ("SQUARES_INTERLEAVE", SquareSum::Interleave4),
        ("SQUARES_STRIDED", SquareSum::ThreadStrided),
    ] {
        let mut recipe = recipe("fp32-simt");
        recipe.projection.square_sum = square_sum;
        let shape = Shape {
            tokens: 1,
            outputs: 24,
            depth: 64,
            ranges: std::slice::from_ref(&(0..64)),
            x: Stored::F32,
        };
        let (build, _) = rms(&recipe.projection, &shape);
        defines(rms_text, name, macro_of(&build, "SQUARES"));
    }
    let split_text = sources.text(Kernel::SplitSinkhorn);
    for (name, eps) in [
        ("EPS_ADD", SinkhornEps::AddAfterSum),
        ("EPS_START", SinkhornEps::StartSum),
        ("EPS_CLAMP", SinkhornEps::Clamp),
    ] {
        let epilogue = Epilogue {
            eps,
            ..Epilogue::default()
        };
        let build = split_sinkhorn(&epilogue, 4, 1);
        defines(split_text, name, macro_of(&build, "EPS"));
    }
    let recombine_text = sources.text(Kernel::Recombine);
    let apart = RecombineOrder::Apart {
        terms: Storage::Bf16,
    };
    for (name, order) in [
        ("ORDER_POST_FIRST", RecombineOrder::PostFirst),
        ("ORDER_STREAM_FIRST", RecombineOrder::StreamFirst),
        ("ORDER_APART", apart),
    ] {
        let recipe = Recombine {
            order,
            ..Recombine::FP32
        };
        let build = recombine(&recipe, streams(Stored::Bf16, Stored::Bf16));
        defines(recombine_text, name, macro_of(&build, "ORDER"));
    }
}

/// Blocks cover the outputs and none is idle. Expected by hand, from the tiles that stand at the head of
/// each kernel.
#[test]
fn a_launch_covers_every_output_once() {
    let grid = |name: &str, tokens, outputs| {
        project(&recipe(name), tokens, outputs, 16384, Stored::Bf16).grid
    };
    // 16 tokens to a warp and up to 4 warps to a block; 32 to a warp where blocks are many.
    for (tokens, blocks, threads) in [
        (1, 1, 32),
        (16, 1, 32),
        (17, 1, 64),
        (32, 1, 64),
        (33, 1, 96),
        (64, 1, 128),
        (65, 2, 128),
        (8192, 64, 128),
    ] {
        let found = grid("bf16", tokens, 24);
        assert_eq!(found.blocks, (blocks, 64), "{tokens} tokens");
        assert_eq!(found.threads, threads, "{tokens} tokens");
    }
    assert_eq!(grid("bf16", 1, 25).threads, 32);
    // 128 tokens to a block, 16 threads for 12 outputs.
    for (tokens, blocks) in [(1, 1), (128, 1), (129, 2), (8192, 64)] {
        let found = grid("fp32", tokens, 24);
        let expected = Grid {
            blocks: (blocks, 64),
            threads: 32,
            shared: 0,
        };
        assert_eq!(found, expected, "{tokens} tokens");
    }
    assert_eq!(grid("fp32", 1, 25).threads, 48);
    // A block to an output; a sum of each of the 512 threads in shared memory.
    let strided = Grid {
        blocks: (13, 24),
        threads: 256,
        shared: 2048,
    };
    assert_eq!(grid("fp32-simt", 13, 24), strided);
    // A block to 256 columns of a token.
    let mut wide = streams(Stored::Bf16, Stored::Bf16);
    for (width, blocks) in [(1, 1), (256, 1), (257, 2), (4096, 16)] {
        wide.width = width;
        let found = recombine(&Recombine::FP32, wide).grid;
        assert_eq!(
            (found.blocks, found.threads),
            ((64, blocks), 256),
            "{width} columns"
        );
    }
    // Ranges: the engines' formula at 8192 tokens is one.
    assert_eq!(grid("tf32", 8192, 24).blocks, (128, 1));
}

/// Whatever the shape, the matrix kernel's chunks fit where shared memory is smallest.
#[test]
fn chunks_fit_into_the_shared_memory_of_every_arch() {
    for recipe in builtin() {
        if recipe.projection.unit == Unit::FmaF32 {
            continue;
        }
        for tokens in [1, 16, 17, 32, 33, 64, 65, 8192] {
            // hc from 1 to 4.
            for outputs in [3, 8, 15, 24] {
                for x in [Stored::Bf16, Stored::F32] {
                    let build = project(&recipe, tokens, outputs, 16384, x);
                    let what = format!("{}: {tokens} tokens, {outputs}, {x:?}", recipe.name);
                    assert!(build.grid.shared > 0, "{what}");
                    assert!(build.grid.shared <= LEAST_SHARED, "{what}");
                    assert!(build.grid.threads <= 1024, "{what}");
                }
            }
        }
    }
}

/// The bytes that the host asks for are those of the two chunks that the kernel lays in them.
#[test]
fn a_buffer_has_the_size_that_the_kernel_gives_it() {
    let Some(library) = pinned_nvrtc() else {
        return;
    };
    let nvrtc = Nvrtc::open(Some(&library)).unwrap();
    for (name, tokens, x) in [
        ("tf32", 1, Stored::Bf16),
        ("tf32", 64, Stored::F32),
        ("bf16", 32, Stored::Bf16),
        ("bf16", 64, Stored::F32),
        ("f16-mma", 17, Stored::F32),
    ] {
        let build = project(&recipe(name), tokens, 24, 16384, x);
        let compiles_with = |bytes: usize| {
            let kernel = Sources::default().text(build.kernel).to_owned();
            let claim = format!("static_assert(2 * sizeof(Chunk) == {bytes}, \"size\");");
            let text = [(
                build.kernel.file().to_owned(),
                format!("{kernel}\n{claim}\n"),
            )];
            let sources = Sources::with(text.into());
            device::compile(&nvrtc, &sources, &build, "sm_90").is_ok()
        };
        assert!(compiles_with(build.grid.shared), "{name}, {x:?}");
        assert!(!compiles_with(build.grid.shared + 16), "{name}, {x:?}");
    }
}

/// Vector copies only where every bound allows them.
#[test]
fn one_odd_bound_is_enough_for_copies_by_element() {
    let vector = |ranges: &[Range<usize>], depth| {
        let shape = Shape {
            tokens: 1,
            outputs: 24,
            depth,
            ranges,
            x: Stored::Bf16,
        };
        let build = projection(&recipe("bf16").projection, &shape);
        build.options.contains(&"-DVECTOR=1".to_owned())
    };
    assert!(vector(&[0..64, 64..128], 128));
    assert!(!vector(&[0..60, 60..128], 128));
    assert!(!vector(&[0..64, 64..132], 132));
    // A row's end is the next row's start.
    assert!(!vector(&[0..64, 64..128], 132));
}

/// A device newer than the compiler: refused with its name before anything is compiled, so that a source
/// that is no C++ does not matter.
#[test]
fn an_arch_that_the_compiler_does_not_know_is_refused_first() {
    let Some(library) = pinned_nvrtc() else {
        return;
    };
    let nvrtc = Nvrtc::open(Some(&library)).unwrap();
    for recipe in [recipe("fp32"), recipe("tf32"), recipe("bf16-prenorm")] {
        let build = project(&recipe, 64, 24, 16384, Stored::Bf16);
        let text = [(build.kernel.file().to_owned(), "no C++".to_owned())];
        let sources = Sources::with(text.into());
        let refused = device::compile(&nvrtc, &sources, &build, "sm_130").unwrap_err();
        let CudaError::UnknownArch { arch, .. } = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(arch, "sm_130");
        let known = device::compile(&nvrtc, &sources, &build, "sm_90").unwrap_err();
        assert!(matches!(known, CudaError::Compile { .. }), "{known:?}");
    }
}
