//! Compiles every kernel as every recipe of the catalogue needs it, for every arch, without a device:
//! what `scripts/check-kernels` disassembles.
//!
//! Writes a folder per arch with one CUBIN per file and set of macros, and `manifest.json`: the recipes
//! in full, and of each CUBIN its kernel file, macros, arch, the recipes that it is for, and what the
//! assembler said of its registers and spills. Builds that come out the same are compiled once.
//!
//! Beside the catalogue stand recipes of one switch each, since every built-in one has the same
//! epilogue; the recombinations, which belong to no mixing recipe; the indexer's recipes, and some of one switch each;
//! and what the recorded vectors are made with, each matrix instruction by itself and the conversions. Launches are
//! few: see `LAUNCHES`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rayon::prelude::*;
use serde::Serialize;
use ulpdrift::{
    backend::cuda::{
        device,
        nvrtc::Nvrtc,
        options::{self, Build, Dot, IndexShape, Shape, Stored, StreamShape, Target},
        source::{Kernel, Sources},
    },
    recipe::{
        Contraction, Epilogue, Mean, MixRecipe, Order, Recombine, RecombineOrder, Rsqrt, Sigmoid,
        SinkhornDivision, SinkhornEps, SplitRule, SquareSum, Storage,
        catalogue::{builtin, fp32},
        indexer::{
            self, DotUnit, HeadOrder, Held, IndexRecipe, Quantiser, Reduce, Reduction, Relu,
            ScaleFormat, ScalePosition, Scaling, Selector,
        },
        splits::{Boundaries, Launch, SplitCount},
    },
    tensor_core::{Arch, Family, Instruction},
};

/// Outputs of the projection: (2 + hc) hc.
const OUTPUTS: usize = 24;
/// Streams.
const HC: usize = 4;
/// Columns of a stream.
const WIDTH: usize = 4096;
/// Index heads, values of each, keys.
const INDEX: (usize, usize, usize) = (64, 128, 16384);
/// Multiprocessors of the device that the kernels are laid out for.
const SMS: usize = 132;
/// Batches and how x is stored. Small ones share ranges out, over blocks of one warp and of four, here where they end
/// anywhere; a block takes all of a large one's, here where production's end; in between, narrower tiles or several
/// blocks to a tile add the sums. The rest differs in numbers only.
const LAUNCHES: [(usize, Stored, Ends); 5] = [
    (64, Stored::Bf16, Ends::Anywhere),
    (512, Stored::F32, Ends::Anywhere),
    (4096, Stored::Bf16, Ends::OfRecipe),
    (8192, Stored::Bf16, Ends::OfRecipe),
    (8192, Stored::F32, Ends::OfRecipe),
];

/// Where ranges end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    OfRecipe,
    Anywhere,
}

#[derive(Parser)]
struct Arguments {
    /// The compiler: libnvrtc.so.13.
    nvrtc: PathBuf,
    /// Where the CUBINs and manifest.json go.
    out: PathBuf,
    /// Takes the files of this folder in place of the kernels of the same name.
    #[arg(long)]
    kernels: Option<PathBuf>,
    /// One more option for the compiler; may be repeated.
    #[arg(long = "option", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Only these archs; may be repeated.
    #[arg(long = "arch")]
    archs: Vec<Arch>,
    /// Only this file, such as finish.cu.
    #[arg(long)]
    file: Option<String>,
    /// Only this recipe.
    #[arg(long)]
    recipe: Option<String>,
}

/// One file with its macros.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    kernel: Kernel,
    options: Vec<String>,
    own_arch_only: bool,
}

/// What a build is for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Purpose {
    recipe: String,
    /// How x is stored.
    x: &'static str,
}

/// A CUBIN of the manifest.
#[derive(Serialize)]
struct Entry {
    kernel: &'static str,
    /// The macros.
    options: Vec<String>,
    arch: String,
    purposes: Vec<Purpose>,
    /// The file, from the output folder.
    cubin: String,
    /// What the compiler said.
    log: String,
}

/// manifest.json.
#[derive(Serialize)]
struct Manifest {
    nvrtc: String,
    recipes: BTreeMap<String, Recipe>,
    builds: Vec<Entry>,
}

/// What a build is made from.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Recipe {
    Mix(Box<MixRecipe>),
    Recombine(Recombine),
    Index(Box<IndexRecipe>),
    Tiles(Tiles),
    Convert(Convert),
}

/// A matrix instruction by itself.
#[derive(Clone, Serialize)]
struct Tiles {
    operand: String,
    k: usize,
    #[serde(skip)]
    instruction: Instruction,
}

/// The conversions by themselves; nothing to choose.
#[derive(Clone, Serialize)]
struct Convert {}

impl Recipe {
    /// What it needs, whatever the shape, with x in `x`.
    fn builds(&self, x: Stored, arch: Arch) -> Vec<Build> {
        match self {
            Self::Mix(recipe) => mix_builds(recipe, x, arch),
            Self::Recombine(recipe) => vec![recombine_build(recipe, x)],
            Self::Index(recipe) => index_builds(recipe, arch),
            Self::Tiles(tiles) => {
                let has_it = arch.rule(tiles.instruction).is_ok();
                let build = has_it.then(|| options::tiles(tiles.instruction, 1));
                build.into_iter().collect()
            }
            Self::Convert(_) => vec![options::convert(1)],
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let nvrtc = Nvrtc::open(Some(&arguments.nvrtc))?;
    let sources = sources(arguments.kernels.as_deref())?;
    let mut recipes = recipes();
    if let Some(name) = &arguments.recipe {
        recipes.retain(|known, _| known == name);
    }
    let archs = match arguments.archs.as_slice() {
        [] => &Arch::ALL[..],
        some => some,
    };
    for arch in archs {
        fs::create_dir_all(arguments.out.join(arch.to_string()))?;
    }

    let started = Instant::now();
    let mut jobs = Vec::new();
    for &arch in archs {
        let mut wanted = wanted(&recipes, arch);
        if let Some(file) = &arguments.file {
            wanted.retain(|build, _| build.kernel.file() == file);
        }
        jobs.extend(wanted.into_iter().enumerate().map(|job| (arch, job)));
    }
    ensure!(
        !jobs.is_empty(),
        "no recipe of that name needs a file of that name"
    );
    // NVRTC may be called by several threads at once, each with a program of its own.
    let builds = jobs
        .into_par_iter()
        .map(|(arch, (number, (build, purposes)))| {
            let arch = arch.to_string();
            let compiled = device::compile(
                &nvrtc,
                &sources,
                &with_options(&build, &arguments.options),
                &arch,
            )?;
            let stem = build.kernel.file().trim_end_matches(".cu");
            let cubin = format!("{arch}/{number:03}-{stem}.cubin");
            fs::write(arguments.out.join(&cubin), compiled.cubin)?;
            Ok(Entry {
                kernel: build.kernel.file(),
                options: build.options.clone(),
                arch,
                purposes: purposes.into_iter().collect(),
                cubin,
                log: compiled.log,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let (major, minor) = nvrtc.version();
    println!(
        "NVRTC {major}.{minor}: {} CUBINs for {} archs, {:.1} s",
        builds.len(),
        archs.len(),
        started.elapsed().as_secs_f64()
    );
    let manifest = Manifest {
        nvrtc: format!("{major}.{minor}"),
        recipes,
        builds,
    };
    let text = serde_json::to_string_pretty(&manifest)?;
    fs::write(arguments.out.join("manifest.json"), text)?;
    Ok(())
}

fn sources(folder: Option<&Path>) -> Result<Sources> {
    let Some(folder) = folder else {
        return Ok(Sources::default());
    };
    let mut replaced = BTreeMap::new();
    for name in Sources::names() {
        let path = folder.join(name);
        if path.is_file() {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            replaced.insert(name.to_owned(), text);
        }
    }
    ensure!(
        !replaced.is_empty(),
        "{} holds no file of kernels",
        folder.display()
    );
    Ok(Sources::with(replaced))
}

/// All recipes by name.
fn recipes() -> BTreeMap<String, Recipe> {
    let mix = mix_recipes().into_iter();
    let recombine = recombinations().into_iter();
    let convert = ("conversions".to_owned(), Recipe::Convert(Convert {}));
    mix.map(|recipe| (recipe.name.clone(), Recipe::Mix(Box::new(recipe))))
        .chain(recombine.map(|(name, recipe)| (name.to_owned(), Recipe::Recombine(recipe))))
        .chain(index_recipes().map(|recipe| {
            let title = IndexRecipe::title(&recipe.name);
            (title, Recipe::Index(Box::new(recipe)))
        }))
        .chain(tiles())
        .chain([convert])
        .collect()
}

/// Every `mma.sync` that some arch has.
fn tiles() -> impl Iterator<Item = (String, Recipe)> {
    let all = Arch::ALL.into_iter().flat_map(Arch::instructions);
    let ours = all.filter(|instruction| instruction.family == Family::MmaSync);
    ours.map(|instruction| {
        let tiles = Tiles {
            operand: instruction.operand.to_string(),
            k: instruction.k,
            instruction,
        };
        (instruction.to_string(), Recipe::Tiles(tiles))
    })
}

/// The indexer's catalogue, and recipes of switches that it does not turn.
fn index_recipes() -> impl Iterator<Item = IndexRecipe> {
    let plain = indexer::catalogue::fp32;
    let reduced = |name: &str, steps| IndexRecipe {
        name: format!("fp32, {name}"),
        reduction: Reduction::Steps(steps),
        ..plain()
    };
    let of_order = |order| Reduce {
        order,
        ..Reduce::default()
    };
    let tree = reduced("tree", of_order(HeadOrder::Tree));
    let chunks = reduced("chunks", of_order(HeadOrder::ChunksOfEight));
    let bf16 = Reduce {
        sum: Storage::Bf16,
        relu: Relu::Absent,
        contraction: Contraction::Fma,
        ..Reduce::default()
    };
    let bf16 = reduced("bf16 sums", bf16);
    let codes = |unit, block, scale| {
        let mut recipe = reduced(
            "codes",
            Reduce {
                scale,
                ..Reduce::default()
            },
        );
        let format = Quantiser::E4m3 {
            scale: ScaleFormat::F32,
            block,
            scaling: Scaling::Divide,
            held: Held::Codes,
        };
        recipe.name = format!("e4m3 blocks of {block}, {unit:?}");
        (recipe.query.format, recipe.key.format, recipe.unit) = (format, format, unit);
        recipe
    };
    let early = codes(DotUnit::MmaF16K16, 128, ScalePosition::BeforeRelu);
    let blocks = [DotUnit::FmaF32, DotUnit::MmaTf32K8, DotUnit::Fp8K32]
        .map(|unit| codes(unit, 32, ScalePosition::InProduct));
    let all = indexer::catalogue::builtin().into_iter();
    all.chain([tree, chunks, bf16, early]).chain(blocks)
}

/// The recombinations with a name, and one that stores its terms in fp32.
fn recombinations() -> [(&'static str, Recombine); 5] {
    let apart = Recombine {
        order: RecombineOrder::Apart {
            terms: Storage::F32,
        },
        ..Recombine::FP32
    };
    [
        ("recombine", Recombine::FP32),
        ("recombine, mul-add", Recombine::MUL_ADD),
        ("recombine, stream first", Recombine::STREAM_FIRST),
        ("recombine, terms apart", apart),
        ("recombine, transformers", Recombine::TRANSFORMERS),
    ]
}

/// The catalogue, and recipes of one switch each.
fn mix_recipes() -> Vec<MixRecipe> {
    let mut all = builtin();
    let mut switched = |name: &str, switch: &dyn Fn(&mut MixRecipe)| {
        let mut recipe = fp32();
        switch(&mut recipe);
        recipe.name = format!("fp32, {name}");
        all.push(recipe);
    };
    switched("chains of squares", &|recipe| {
        recipe.projection.square_sum = SquareSum::Chains;
    });
    switched("reciprocal mean", &|recipe| {
        recipe.projection.mean = Mean::Reciprocal;
    });
    switched("root, then division", &|recipe| {
        recipe.projection.rsqrt = Rsqrt::SqrtThenDivide;
    });
    switched("bf16 partial sums", &|recipe| {
        recipe.projection.order = Order::Chains {
            splits: SplitRule::fixed(64),
            partials: Storage::Bf16,
        };
    });
    for (name, epilogue) in epilogues() {
        switched(name, &|recipe| recipe.epilogue = epilogue);
    }
    all
}

/// Every switch of the epilogue by itself.
fn epilogues() -> [(&'static str, Epilogue); 7] {
    let plain = Epilogue::default();
    let affine = Epilogue {
        affine: Contraction::MulAdd,
        ..plain
    };
    let collapse = Epilogue {
        collapse: Contraction::MulAdd,
        ..plain
    };
    let exp2 = Epilogue {
        sigmoid: Sigmoid::Exp2,
        ..plain
    };
    let reciprocal = Epilogue {
        division: SinkhornDivision::Reciprocal,
        ..plain
    };
    let eps = |eps| Epilogue { eps, ..plain };
    let skip = Epilogue {
        skip_row_max: true,
        ..plain
    };
    [
        ("affine mul-add", affine),
        ("collapse mul-add", collapse),
        ("exp2", exp2),
        ("Sinkhorn by reciprocals", reciprocal),
        ("sums start at eps", eps(SinkhornEps::StartSum)),
        ("sums clamped at eps", eps(SinkhornEps::Clamp)),
        ("no row maximum", skip),
    ]
}

/// Every build that some recipe needs, with the recipes.
fn wanted(recipes: &BTreeMap<String, Recipe>, arch: Arch) -> BTreeMap<Wanted, BTreeSet<Purpose>> {
    let mut all: BTreeMap<Wanted, BTreeSet<Purpose>> = BTreeMap::new();
    for (recipe_name, recipe) in recipes {
        for (x, name) in [(Stored::Bf16, "bf16"), (Stored::F32, "f32")] {
            for build in recipe.builds(x, arch) {
                let wanted = Wanted {
                    kernel: build.kernel,
                    options: build.options,
                    own_arch_only: build.own_arch_only,
                };
                let purpose = Purpose {
                    recipe: recipe_name.clone(),
                    x: name,
                };
                all.entry(wanted).or_default().insert(purpose);
            }
        }
    }
    all
}

fn mix_builds(recipe: &MixRecipe, x: Stored, arch: Arch) -> Vec<Build> {
    let depth = HC * WIDTH;
    let target = Target {
        arch,
        sms: SMS,
        may_finish: true,
    };
    let stores = (recipe.output, recipe.scaled);
    let mut builds = Vec::new();
    for (tokens, _, ends) in LAUNCHES.into_iter().filter(|&(_, stored, _)| stored == x) {
        let launch = Launch { tokens, sms: SMS };
        let mut projection = recipe.projection.clone();
        if ends == Ends::Anywhere {
            projection.order = unaligned(projection.order);
        }
        let shape = Shape::new(&projection, (tokens, OUTPUTS, depth), launch, x, target);
        builds.extend(options::pack(&projection, &shape).map(|(build, _)| build));
        builds.push(options::projection(&projection, stores, &shape).build);
        builds.push(options::rms(&projection, &shape).0);
        builds.push(options::finish(&projection, stores, &shape));
        builds.push(options::split_sinkhorn(&recipe.epilogue, HC, tokens));
        builds.push(options::collapse(&recipe.epilogue, HC, tokens, WIDTH, x));
    }
    builds
}

/// The logits, where the arch has the recipe's unit and there is a kernel with it, and the exact selection.
fn index_builds(recipe: &IndexRecipe, arch: Arch) -> Vec<Build> {
    let (heads, width, keys) = INDEX;
    let shape = IndexShape::of(recipe, (1, heads), (keys, width));
    let logits = Dot::of(recipe, arch).ok();
    let logits = logits.map(|dot| options::index_logits(recipe, arch, dot, shape));
    let exact = (recipe.select == Selector::Exact).then(|| options::top_k(1));
    logits.into_iter().chain(exact).collect()
}

/// What the sublayer made, stored as x is.
fn recombine_build(recipe: &Recombine, x: Stored) -> Build {
    let shape = StreamShape {
        tokens: 1,
        hc: HC,
        width: WIDTH,
        x,
        f: x,
    };
    options::recombine(recipe, shape)
}

/// The order with ranges that end anywhere, if it has ranges.
fn unaligned(order: Order) -> Order {
    match order {
        Order::Chains { partials, .. } => Order::Chains {
            splits: SplitRule {
                count: SplitCount::Fixed(7),
                boundaries: Boundaries::Triton,
            },
            partials,
        },
        Order::ThreadStrided { .. } => order,
    }
}

/// The build with more options; its launch is nobody's concern here.
fn with_options(build: &Wanted, options: &[String]) -> Build {
    let nowhere = options::Grid {
        blocks: (0, 0),
        threads: 0,
        shared: 0,
        waits: false,
    };
    Build {
        kernel: build.kernel,
        own_arch_only: build.own_arch_only,
        options: [&build.options[..], options].concat(),
        grid: nowhere,
    }
}
