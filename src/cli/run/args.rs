//! The flags of `run`, as typed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::suite::Suite;
use crate::{
    cli::{bugs::Bug, device::BackendChoice, outputs::OutputArgs, usage::whole},
    report::part::Share,
};

/// Arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ulpdrift run                                       synthetic V4-Flash, default variants\n  \
    ulpdrift run CHECKPOINT --layers 0-3 -v            a row per layer, site and stage\n  \
    ulpdrift run CHECKPOINT --variants 'tf32*,bf16x2' --against tf32\n  \
    ulpdrift run CHECKPOINT --suite recombine          what follows the sublayer (hc_post)\n  \
    ulpdrift run CHECKPOINT --inputs file:captured.safetensors --out report\n  \
    ulpdrift run CHECKPOINT --gate limits.toml         exit 1 if a limit is breached\n  \
    ulpdrift run CHECKPOINT --part 2/4 --out part-2  one of four parts, for ulpdrift merge\n  \
    ulpdrift run CHECKPOINT --out report --resume  go on after a kill\n  \
    ulpdrift run --sweep tokens=1,64,512,8192 --sms 132,188 --variants tf32\n  \
    ulpdrift run --sweep splits=1,64 --variants 'tf32x2,bf16x3,fp32'\n\n\
    ULPDRIFT_SIMD=portable|avx2|avx512 and RAYON_NUM_THREADS=n change speed, never a number.")]
pub struct RunArgs {
    /// A checkpoint directory, .safetensors files with commas between, ORG/MODEL or ORG/MODEL@REVISION of the local
    /// Hugging Face cache, or synthetic:flash|pro|v4.1|tiny.
    #[arg(default_value = "synthetic:flash")]
    pub checkpoint: String,
    /// What to measure [default: mix; chain where layers follow each other; indexer where a layer has one].
    #[arg(long, value_delimiter = ',', value_enum, value_name = "SUITES")]
    pub suite: Vec<Suite>,
    /// What the streams of a chain are stored in (suites chain, budget and gains).
    #[arg(long, value_enum, default_value = "bf16")]
    pub residual: Residual,
    /// What a chain rounds layer inputs and sublayer outputs to.
    #[arg(long, value_enum, default_value = "bf16")]
    pub layer_io: LayerIo,
    /// What stands in for attention and experts in a chain.
    #[arg(long, value_enum, default_value = "rms-norm")]
    pub sublayer: Sublayer,
    /// Where suite chain runs a variant's recipe: all, attn, ffn or the number of one layer; fp32 runs elsewhere.
    #[arg(long, default_value = "all", value_name = "SITES")]
    pub sites_on: String,
    /// Tokens of context for suites indexer and needle, one or several [default: 8192; with --inputs file: all].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub context: Vec<usize>,
    /// How many positions ask the indexer for keys: half at the end of the context, half along it.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub queries: usize,
    /// How many keys the indexer selects, one or several, the model's index_topk always besides, by which verdicts are reached
    /// [default: that and twice that].
    #[arg(long, value_delimiter = ',', value_name = "K", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub topk: Vec<usize>,
    /// How far above the cut suite needle plants its keys: gaps between neighbouring scores, or rank:R.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "GAPS",
        default_value = "1,4,16,64,256",
        allow_negative_numbers = true
    )]
    pub needle_margins: Vec<String>,
    /// Where suite needle plants them, in percent of the context.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", default_value = "0,10,25,50,75,90,100", value_parser = whole::<u8>, allow_negative_numbers = true)]
    pub needle_depths: Vec<u8>,
    /// Known bugs as candidates beside the variants, built into the one that --against names; the indexer's into
    /// fp8-f32scale unless it names another variant of the indexer than fp32.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAMES")]
    pub fault: Vec<Bug>,
    /// Variants by name or pattern (* and ?), comma-separated; `ulpdrift variants` lists them, and each suite takes
    /// those that it knows [default: those it marks, and all of --recipes].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub variants: Vec<String>,
    /// Add the recipes of a TOML file.
    #[arg(long, value_name = "FILE")]
    pub recipes: Option<PathBuf>,
    /// Layers: all, or a list of numbers and ranges such as 0-3,7 [default: all; of those with an indexer the first,
    /// the middle and the last].
    #[arg(long, value_name = "LAYERS", allow_negative_numbers = true)]
    pub layers: Option<String>,
    /// Sites of each layer.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "attn,ffn",
        value_name = "SITES"
    )]
    pub sites: Vec<String>,
    /// Tokens in the batch [default: 64; with --inputs file: all there are].
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub tokens: Option<usize>,
    /// Seed of the inputs' random streams.
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: u64,
    /// Run suite chain with so many seeds, counting from --seed: errors along one chain are not independent.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>, value_name = "N", allow_negative_numbers = true)]
    pub seeds: u64,
    /// Inputs x: normal, outlier, copies, correlated, scaled:S (1e-3 to 7e4), file:PATH, or embedding: rows of
    /// embed.weight drawn by the seed, which suite chain alone begins with.
    #[arg(long, default_value = "normal", value_name = "INPUTS")]
    pub inputs: String,
    /// What executes the variants.
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: BackendChoice,
    /// Emulated architecture: sm_80, sm_86, sm_89, sm_90, sm_100 or sm_120 [default: sm_120]; a device
    /// has its own.
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Number of the CUDA device [default: 0].
    #[arg(long, value_parser = whole::<usize>, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<usize>,
    /// The NVRTC library that compiles the kernels [default: what the loader finds].
    #[arg(long, value_name = "PATH")]
    pub nvrtc: Option<PathBuf>,
    /// Take kernels from this directory: files named as in kernels/ replace the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub kernels: Option<PathBuf>,
    /// Run device and emulator on the same cases instead, and count the bits that differ by stage; exit 1
    /// if stage dot has any, or the indexer's logits.
    #[arg(long)]
    pub crosscheck: bool,
    /// Also time every variant's projection on the device, beside a copy and, if named, cuBLAS.
    #[arg(long)]
    pub time: bool,
    /// Run every case of suites mix, recombine, chain and indexer so many times, and take every time so often: rows
    /// count the outputs whose bits changed, and say how far measures lie apart. The emulator's never change; it takes
    /// as many times as long to see that.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub repeat: usize,
    /// Also measure every variant's distance to this one; a suite that does not know it compares with fp32.
    #[arg(long, default_value = "fp32", value_name = "VARIANT")]
    pub against: String,
    /// Vary one axis instead: tokens=1,64,512 or splits=1,64 (layer 0, attn, unless given).
    #[arg(long, value_name = "AXIS=VALUES")]
    pub sweep: Option<String>,
    /// Streaming multiprocessors for the engines' split formula; several with --sweep tokens.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "188",
        value_name = "N",
        value_parser = whole::<usize>,
        allow_negative_numbers = true
    )]
    pub sms: Vec<usize>,
    /// What becomes of the report.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Run one part of the cases: i/n is part i of n. `ulpdrift merge` joins the reports of all parts.
    #[arg(long, value_name = "I/N", value_parser = share)]
    pub part: Option<Share>,
    /// Go on with a run that was interrupted: what it had finished is taken from --out. Where there is nothing, begin.
    #[arg(long, requires = "out")]
    pub resume: bool,
    /// Write the tensors behind the rows into this directory, as safetensors.
    #[arg(long, value_name = "DIR")]
    pub dump: Option<PathBuf>,
    /// Measure even where a weight is NaN or infinite.
    #[arg(long)]
    pub allow_nonfinite: bool,
    /// A row per layer, site and stage.
    #[arg(short, long)]
    pub verbose: bool,
    /// No progress and no remarks.
    #[arg(short, long)]
    pub quiet: bool,
}

/// `2/4`: part 2 of 4.
fn share(text: &str) -> Result<Share, String> {
    let expected = "expected I/N, such as 2/4 for the second of four parts";
    let (number, of) = text.split_once('/').ok_or(expected)?;
    let share = Share {
        number: whole(number).map_err(|_| expected)?,
        of: whole(of).map_err(|_| expected)?,
    };
    match share.is_valid() {
        true => Ok(share),
        false => Err(format!("{expected}, of at most {} parts", Share::MOST)),
    }
}

impl RunArgs {
    /// The suites asked for. What looks at single sites in a table of its own has no place for a chain.
    pub fn suites(&self) -> Vec<Suite> {
        match (self.suite.as_slice(), &self.sweep, self.crosscheck) {
            ([], None, false) => vec![Suite::Mix, Suite::Chain, Suite::Indexer],
            ([], ..) => vec![Suite::Mix],
            (named, ..) => named.to_vec(),
        }
    }

    /// The flag that has a table of its own instead of a suite's rows, if one is given.
    pub fn own_table(&self) -> Option<&'static str> {
        match (&self.sweep, self.crosscheck) {
            (Some(_), _) => Some("--sweep"),
            (None, true) => Some("--crosscheck"),
            (None, false) => None,
        }
    }
}

/// What the streams of a chain are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Residual {
    /// As deployed.
    Bf16,
    /// Without rounding.
    Fp32,
    /// What overflows at 65,504.
    Fp16,
}

/// What a chain's layer inputs and outputs are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayerIo {
    /// As deployed.
    Bf16,
    /// Nothing.
    Fp32,
}

/// What stands in for a chain's attention and experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sublayer {
    /// Nothing after the layer's norm.
    RmsNorm,
    /// The layer's own shared expert, dequantised, at ffn sites; at attn sites the norm alone.
    SharedExpert,
    /// Outputs out of --inputs file:PATH: layers.N.attn.f and layers.N.ffn.f of [tokens, d].
    File,
}
