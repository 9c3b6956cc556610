//! Macros of whole recipes, launches that cover every output, and shared memory that a block can have.

use std::{fmt::Write, ops::Range};

use super::*;
use crate::{
    backend::cuda::{
        device, error::CudaError, nvrtc::Nvrtc, source::Sources, testing::pinned_nvrtc,
    },
    recipe::{
        MixRecipe, Recombine, RecombineOrder,
        catalogue::builtin,
        splits::{Cuts, Launch},
    },
    tensor_core::Arch,
};

fn macro_of(build: &Build, name: &str) -> usize {
    let start = format!("-D{name}=");
    let mut values = build.options.iter();
    let value = values.find_map(|option| option.strip_prefix(&start));
    value.expect("a macro").parse().expect("a number")
}

fn recipe(name: &str) -> MixRecipe {
    let found = builtin().into_iter().find(|recipe| recipe.name == name);
    found.expect("a built-in")
}

/// An H200.
const TARGET: Target = Target {
    arch: Arch::Sm90,
    sms: 132,
    may_finish: true,
};

fn shape(recipe: &MixRecipe, (tokens, outputs, depth): (usize, usize, usize), x: Stored) -> Shape {
    let launch = Launch { tokens, sms: 132 };
    Shape::new(
        &recipe.projection,
        (tokens, outputs, depth),
        launch,
        x,
        TARGET,
    )
}

fn projected(recipe: &MixRecipe, shape: &Shape) -> Projected {
    projection(&recipe.projection, (recipe.output, recipe.scaled), shape)
}

/// The projection of a recipe, its ranges those of its own split rule.
fn project(recipe: &MixRecipe, tokens: usize, outputs: usize, depth: usize, x: Stored) -> Build {
    projected(recipe, &shape(recipe, (tokens, outputs, depth), x)).build
}

#[test]
fn the_macros_of_every_recipe() {
    let mut text = String::new();
    for recipe in builtin() {
        for x in [Stored::Bf16, Stored::F32] {
            let shape = shape(&recipe, (64, 24, 16384), x);
            let stores = (recipe.output, recipe.scaled);
            let mut builds = vec![
                rms(&recipe.projection, &shape).0,
                projected(&recipe, &shape).build,
                finish(&recipe.projection, stores, &shape),
                split_sinkhorn(&recipe.epilogue, 4, 64),
                collapse(&recipe.epilogue, 4, 64, 4096, x),
            ];
            builds.extend(pack(&recipe.projection, &shape).map(|(build, _)| build));
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
    let headers = sources.headers();
    let (_, header) = headers[1];
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
        let shape = shape(&recipe, (1, 24, 64), Stored::F32);
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

/// What a kernel does with a launch, from the tiles that stand at its head: which outputs of which ranges a
/// block makes.
fn made(build: &Build, shape: &Shape) -> Vec<(Range<usize>, Range<usize>, Vec<usize>)> {
    let value = |name: &str| macro_of(build, name);
    let (rows, width) = match build.kernel {
        Kernel::ProjectMma => (16 * value("WARPS"), 8 * value("N_TILES")),
        Kernel::ProjectFma => (
            value("TOKEN_LANES") * value("MINE"),
            value("OUTPUT_LANES") * value("OUTPUTS"),
        ),
        Kernel::ProjectStrided => (1, 1),
        other => panic!("{other:?} is no projection"),
    };
    let tiles = shape.outputs.div_ceil(width);
    let mut made = Vec::new();
    for x in 0..build.grid.blocks.0 {
        for y in 0..build.grid.blocks.1 {
            let (row, column, share) = match build.kernel {
                Kernel::ProjectStrided => (x, y, vec![0]),
                Kernel::ProjectMma if value("PAIR") == 1 => {
                    let alternate = (y..shape.cuts.count).step_by(2);
                    (x / tiles, x % tiles, alternate.collect())
                }
                _ => {
                    let share = |y: usize| shape.cuts.count * y / build.grid.blocks.1;
                    let share = share(y)..share(y + 1);
                    (x / tiles, x % tiles, share.collect())
                }
            };
            made.push((
                row * rows..((row + 1) * rows).min(shape.tokens),
                column * width..((column + 1) * width).min(shape.outputs),
                share,
            ));
        }
    }
    made
}

/// A block to 256 columns of a token.
#[test]
fn a_recombination_covers_every_column() {
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
}

/// Every output of every range comes from one block, no block is idle, and a whole sum from one block alone.
#[test]
fn a_launch_makes_every_output_of_every_range_once() {
    for recipe in builtin() {
        for tokens in [1, 13, 16, 17, 64, 65, 128, 512, 1000, 4096, 8192] {
            for outputs in [3, 8, 15, 24, 25] {
                let shape = shape(&recipe, (tokens, outputs, 16384), Stored::Bf16);
                let Projected { build, is_whole } = projected(&recipe, &shape);
                let what = format!("{}: {tokens} tokens, {outputs}", recipe.name);
                let mut times = vec![0_u8; tokens * outputs * shape.cuts.count];
                for (rows, columns, ranges) in made(&build, &shape) {
                    assert!(!rows.is_empty() && !columns.is_empty(), "{what}");
                    assert!(!ranges.is_empty(), "{what}");
                    let pair = match build.kernel {
                        Kernel::ProjectMma => macro_of(&build, "PAIR"),
                        _ => 0,
                    };
                    let all = shape.cuts.count.div_ceil(1 + pair);
                    assert!(!is_whole || ranges.len() + pair >= all, "{what}");
                    for row in rows {
                        for column in columns.clone() {
                            for &range in &ranges {
                                times[(row * outputs + column) * shape.cuts.count + range] += 1;
                            }
                        }
                    }
                }
                assert!(times.iter().all(|&times| times == 1), "{what}");
            }
        }
    }
}

/// The launches that the speed of the kernels was measured with.
#[test]
fn an_h200_is_filled() {
    let launch = |name: &str, tokens| {
        let recipe = recipe(name);
        let shape = shape(&recipe, (tokens, 24, 16384), Stored::Bf16);
        let Projected { build, is_whole } = projected(&recipe, &shape);
        let chunk = macro_of(&build, "CHUNK");
        (build.grid.blocks, build.grid.threads, chunk, is_whole)
    };
    assert_eq!(launch("tf32", 64), ((4, 64), 160, 128, false));
    assert_eq!(launch("tf32", 512), ((8, 16), 256, 256, false));
    assert_eq!(launch("tf32", 4096), ((64, 2), 256, 256, true));
    assert_eq!(launch("tf32", 8192), ((128, 1), 256, 256, true));
    assert_eq!(launch("bf16", 4096), ((64, 2), 256, 256, true));
    assert_eq!(launch("bf16", 8192), ((128, 1), 256, 256, true));
}

/// A user's own finish.cu gets its partial sums, however large the batch.
#[test]
fn a_replaced_finish_is_not_passed_by() {
    for name in ["fp32", "bf16", "tf32"] {
        let recipe = recipe(name);
        let mut shape = shape(&recipe, (8192, 24, 16384), Stored::Bf16);
        assert!(projected(&recipe, &shape).is_whole);
        shape.target.may_finish = false;
        assert!(!projected(&recipe, &shape).is_whole);
    }
}

/// Whatever the shape and the arch, the kernels' shared memory is there, and a block's threads are.
#[test]
fn every_arch_has_the_shared_memory_that_a_launch_asks_for() {
    // CUDA C++ Programming Guide, technical specifications per compute capability.
    let most = |arch| match arch {
        Arch::Sm80 => 163 << 10,
        Arch::Sm86 | Arch::Sm89 | Arch::Sm120 => 99 << 10,
        Arch::Sm90 | Arch::Sm100 => 227 << 10,
    };
    for recipe in builtin() {
        for arch in Arch::ALL {
            for tokens in [1, 16, 17, 64, 65, 512, 4096, 8192] {
                // hc from 1 to 4.
                for outputs in [3, 8, 15, 24] {
                    for x in [Stored::Bf16, Stored::F32] {
                        let mut shape = shape(&recipe, (tokens, outputs, 16384), x);
                        shape.target.arch = arch;
                        let grid = projected(&recipe, &shape).build.grid;
                        let what = format!("{}, {arch}: {tokens}, {outputs}, {x:?}", recipe.name);
                        assert!(
                            grid.shared > 0 && grid.shared <= most(arch),
                            "{what}: {grid:?}"
                        );
                        assert!(grid.threads <= 1024, "{what}");
                    }
                }
            }
        }
    }
}

/// The bytes that the host asks for are those that the kernel lays in them.
#[test]
fn shared_memory_has_the_size_that_the_kernel_gives_it() {
    let Some(library) = pinned_nvrtc() else {
        return;
    };
    let nvrtc = Nvrtc::open(Some(&library)).unwrap();
    for (name, tokens, x, holds) in [
        ("tf32", 1, Stored::Bf16, "sizeof(Shared)"),
        ("tf32", 8192, Stored::F32, "sizeof(Shared)"),
        ("bf16", 4096, Stored::Bf16, "sizeof(Shared)"),
        ("tf32", 4096, Stored::F32, "sizeof(Shared)"),
        ("bf16", 64, Stored::F32, "sizeof(Shared)"),
        ("f16-mma", 17, Stored::F32, "sizeof(Shared)"),
        ("fp32", 64, Stored::Bf16, "AT_ONCE * sizeof(Own)"),
        ("fp32", 8192, Stored::Bf16, "AT_ONCE * sizeof(Own)"),
        ("fp32", 8192, Stored::F32, "AT_ONCE * sizeof(Own)"),
    ] {
        let build = project(&recipe(name), tokens, 24, 16384, x);
        let compiles_with = |bytes: usize| {
            let kernel = Sources::default().text(build.kernel).to_owned();
            let claim = format!("static_assert({holds} == {bytes}, \"size\");");
            let text = [(
                build.kernel.file().to_owned(),
                format!("{kernel}\n{claim}\n"),
            )];
            let sources = Sources::with(text.into());
            device::compile(&nvrtc, &sources, &build, "sm_90").is_ok()
        };
        assert!(compiles_with(build.grid.shared), "{name}, {tokens}, {x:?}");
        assert!(
            !compiles_with(build.grid.shared + 16),
            "{name}, {tokens}, {x:?}"
        );
    }
}

/// Vector copies only where every bound allows them.
#[test]
fn one_odd_bound_is_enough_for_copies_by_element() {
    let vector = |unit, each, depth| {
        let recipe = recipe("bf16");
        let mut shape = shape(&recipe, (1, 24, depth), Stored::Bf16);
        shape.cuts = Cuts {
            unit,
            each,
            extra: 0,
            depth,
            count: 2,
        };
        macro_of(&projected(&recipe, &shape).build, "VECTOR") == 1
    };
    assert!(vector(64, 1, 128));
    assert!(!vector(1, 60, 120));
    // A row's end is the next row's start.
    assert!(!vector(64, 1, 132));
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
