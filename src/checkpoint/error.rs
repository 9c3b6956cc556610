//! What can be wrong with a checkpoint: every message is one sentence that names the file or
//! tensor, says what was found and what was expected, and what to do about it.

use std::path::{Path, PathBuf};

use super::names::EMBEDDING;

/// Why a checkpoint could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The argument names nothing that could be a checkpoint.
    #[error(
        "{} is not a checkpoint: {found}; give a directory with model.safetensors.index.json or \
         .safetensors files, such files with commas between, ORG/MODEL of the local Hugging Face cache, or \
         synthetic:flash|pro|v4.1|tiny",
        quoted(.spec)
    )]
    NotACheckpoint {
        /// The argument as given.
        spec: String,
        /// What was found there.
        found: String,
    },
    /// A name that could be a model's is neither a path nor in the local cache.
    #[error("{} is no file or directory, and as a model it is not in the Hugging Face cache: {found}; {advice}", quoted(.spec))]
    NotCached {
        /// The argument as given.
        spec: String,
        /// What is there instead.
        found: String,
        /// What to do.
        advice: String,
    },
    /// The operating system refuses to read a file.
    #[error("cannot read {}: {reason}", shown(.path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says, and what to do.
        reason: String,
    },
    /// A file is of another format.
    #[error("{} is not a safetensors file: {found}; {advice}", shown(.path))]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// A safetensors header breaks the format's rules.
    #[error("the header of {} is broken: {found}; download or write the file again", shown(.path))]
    Header {
        /// The file.
        path: PathBuf,
        /// The broken rule.
        found: String,
    },
    /// A file is shorter than its header says.
    #[error("{} is truncated: {found}; download or copy it again", shown(.path))]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Lengths found and expected.
        found: String,
    },
    /// The index file is unusable.
    #[error("the index {} is unusable: {found}; {advice}", shown(.path))]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// `config.json` is unusable.
    #[error("the configuration {} is unusable: {found}; {advice}", shown(.path))]
    Config {
        /// The configuration file.
        path: PathBuf,
        /// What is wrong.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// The index names a shard that is not there.
    #[error(
        "the index names {}, where {} should be, but {found} ({absent} of {total} shards are \
         absent); finish the download",
        quoted(.shard), quoted(.tensor)
    )]
    ShardAbsent {
        /// The shard's file name.
        shard: String,
        /// A tensor it should hold.
        tensor: String,
        /// What is there instead.
        found: String,
        /// How many shards the index names in vain.
        absent: usize,
        /// How many shards the index names.
        total: usize,
    },
    /// The index puts a tensor into a shard that does not hold it.
    #[error(
        "the index puts {} into {}, which does not hold it; the index and the shards are of \
         different versions: download both again",
        quoted(.tensor), shown(.shard)
    )]
    TensorAbsent {
        /// The tensor.
        tensor: String,
        /// The shard that should hold it.
        shard: PathBuf,
    },
    /// Two stored tensors are the same one under two spellings.
    #[error(
        "{} and {} both name the tensor {canonical}; remove one of them",
        quoted(.first), quoted(.second)
    )]
    Ambiguous {
        /// One stored name.
        first: String,
        /// The other.
        second: String,
        /// The official name of both.
        canonical: String,
    },
    /// A tensor is in two of the files that make up a checkpoint.
    #[error("{} is in {} and in {}; name or keep only one of these files", quoted(.tensor), quoted(.first), quoted(.second))]
    InTwoFiles {
        /// The stored name.
        tensor: String,
        /// One file.
        first: String,
        /// The other.
        second: String,
    },
    /// There is nothing to measure here.
    #[error(
        "{} has no hyper-connection tensors (layers.N.hc_attn_fn and the like) among its \
         {tensors} tensors: {hint}; ulpdrift measures DeepSeek-V4-style checkpoints",
        quoted(.spec)
    )]
    NoHyperConnections {
        /// The argument as given.
        spec: String,
        /// How many tensors there are.
        tensors: usize,
        /// What it probably is.
        hint: String,
    },
    /// A layer asked for is not in the checkpoint.
    #[error("layer {layer} is not in {}, which has hc tensors for layers {have}; choose among these", quoted(.spec))]
    MissingLayer {
        /// The layer asked for.
        layer: u32,
        /// The argument as given.
        spec: String,
        /// The layers that are there, as ranges.
        have: String,
    },
    /// A layer lacks part of its tensors.
    #[error("{} lacks {missing}, although other hc tensors of layer {layer} are there; complete the checkpoint", quoted(.spec))]
    IncompleteLayer {
        /// The layer.
        layer: u32,
        /// The argument as given.
        spec: String,
        /// The official names of what is missing.
        missing: String,
    },
    /// A tensor's shape is not the one the model calls for.
    #[error("{} in {} has shape {found}, expected {expected}; this is not the tensor it is named after: check how the checkpoint was written", quoted(.tensor), quoted(.file))]
    WrongShape {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// Its shape.
        found: String,
        /// The expected shape, and what that follows from.
        expected: String,
    },
    /// A tensor's type is none that it can have.
    #[error("{} in {} has dtype {}, expected F32, BF16 or F16; convert it back to F32", quoted(.tensor), quoted(.file), quoted(.found))]
    WrongType {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// Its dtype.
        found: String,
    },
    /// The configuration contradicts the tensors.
    #[error("config.json says {key} = {configured}, but {} {found}; one of the two belongs to another model", quoted(.tensor))]
    Contradiction {
        /// The configuration key.
        key: &'static str,
        /// Its value.
        configured: String,
        /// The stored name of the tensor.
        tensor: String,
        /// What the tensor says.
        found: String,
    },
    /// The model has dimensions that the tool does not cover.
    #[error("{} {found}; {expected}", quoted(.tensor))]
    Unsupported {
        /// The stored name of the tensor.
        tensor: String,
        /// What it says.
        found: String,
        /// What is covered.
        expected: String,
    },
    /// A weight holds NaN or infinities.
    #[error("{} in {} holds {count} non-finite values of {total} (the first at index {first}), needed at {needed}; look at it with `ulpdrift inspect`, or pass --allow-nonfinite to measure it nevertheless", quoted(.tensor), quoted(.file))]
    NonFinite {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// How many are non-finite.
        count: usize,
        /// How many values there are.
        total: usize,
        /// The flat index of the first.
        first: usize,
        /// Where it is needed, such as `layer 3 attn`.
        needed: String,
    },
    /// A tensor beside the hyper-connections is not there.
    #[error("{} lacks {missing}, needed at {needed}; {advice}", quoted(.spec))]
    Lacking {
        /// The argument as given.
        spec: String,
        /// The official names of what is missing.
        missing: String,
        /// Where it is needed, such as `layer 3 attn`.
        needed: String,
        /// What to do.
        advice: &'static str,
    },
    /// A shared expert is asked for that is not there.
    #[error("{}, needed at layer {layer} ffn; choose --sublayer rms-norm, or complete the checkpoint", .found)]
    NoSharedExpert {
        /// What is missing where.
        found: String,
        /// The layer.
        layer: u32,
    },
    /// An indexer is there in a form that the tool does not read.
    #[error("{} lacks {missing}, needed at layer {layer} indexer, but holds {found}: a fused, packed or renamed form that ulpdrift does not read; use the checkpoint that it was made from", quoted(.spec))]
    OtherIndexer {
        /// The argument as given.
        spec: String,
        /// The official names of what is missing.
        missing: String,
        /// The layer.
        layer: u32,
        /// The stored names of what is there instead.
        found: String,
    },
    /// A scale is not what scales of a weight's type are.
    #[error("{} in {} holds {value} at index {index}, expected powers of two from 2^-127 to 2^127, as UE8M0 scales are; {advice}", quoted(.tensor), quoted(.file))]
    OddScale {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// The first value that is none.
        value: f32,
        /// Its flat index.
        index: usize,
        /// What to do.
        advice: &'static str,
    },
    /// A matrix is stored in a way that the tool does not decode, or not there.
    #[error("{} in {} has dtype {}, expected {expected}; {advice}", quoted(.tensor), quoted(.file), quoted(.found))]
    MatrixType {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// Its dtype.
        found: String,
        /// What it can be.
        expected: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A layer without an indexer is asked for its indexer.
    #[error("layer {layer} of {} has no indexer, which layers {have} have; choose among these", quoted(.spec))]
    NoIndexer {
        /// The layer.
        layer: u32,
        /// The argument as given.
        spec: String,
        /// The layers with one, as ranges.
        have: String,
    },
    /// No layer's indexer can be read.
    #[error("{}, needed at layer {layer} indexer; choose other suites, or another checkpoint", .why)]
    Unindexed {
        /// The layer.
        layer: u32,
        /// Why, naming the checkpoint.
        why: String,
    },
    /// A row of packed FP4 that would end within a byte.
    #[error("{} in {} packs {columns} values into a row, expected an even number, two per byte; choose --sublayer rms-norm, or check how the checkpoint was written", quoted(.tensor), quoted(.file))]
    OddPacking {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// Values in a row.
        columns: usize,
    },
    /// A token that the embedding does not have.
    #[error("{} in {} has {rows} rows, but row {row} is asked for; choose tokens below {rows}", quoted(.tensor), quoted(.file))]
    NoSuchRow {
        /// The stored name.
        tensor: String,
        /// The file.
        file: String,
        /// How many rows it has.
        rows: usize,
        /// The row asked for.
        row: u64,
    },
    /// Rows of an embedding of which only others are here.
    #[error("{} has only some rows of {EMBEDDING}, and not those of the tokens {absent}; fetch these too (`ulpdrift fetch --with embed-rows={absent}`), or choose other --inputs", quoted(.spec))]
    RowsAbsent {
        /// The argument as given.
        spec: String,
        /// The tokens, with commas between.
        absent: String,
    },
    /// A `synthetic:` name that does not exist.
    #[error("there is no synthetic model {}; choose among flash, pro, v4.1 and tiny", quoted(.0))]
    UnknownSynthetic(String),
    /// `synth` cannot use its target directory.
    #[error("cannot write a checkpoint to {}: {reason}", shown(.path))]
    Unwritable {
        /// The target.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A bad choice of layers.
    #[error("--layers {}: {reason}", quoted(.text))]
    Layers {
        /// The argument as given.
        text: String,
        /// What is wrong, and what is expected.
        reason: String,
    },
}

/// A name from a file or the user, made safe for one line of a terminal.
pub(super) fn quoted(name: &str) -> String {
    const LONGEST: usize = 200;
    let escaped: String = name
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    let more = if name.chars().nth(LONGEST).is_some() {
        "…"
    } else {
        ""
    };
    format!(
        "'{}{more}'",
        escaped.replace("\\'", "'").replace("\\\"", "\"")
    )
}

/// A path, made safe for one line of a terminal.
pub(super) fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// A shape as `[24, 16384]`.
pub(super) fn shape_text(shape: &[usize]) -> String {
    format!("{shape:?}")
}

impl CheckpointError {
    /// An I/O error on `path`, told without the platform's jargon where a plain word exists.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let reason = match error.kind() {
            ErrorKind::NotFound => "it does not exist; check the path".to_owned(),
            ErrorKind::PermissionDenied => "permission denied; make it readable".to_owned(),
            _ => format!("{error}; check the file and its disk"),
        };
        Self::Unreadable {
            path: path.to_owned(),
            reason,
        }
    }
}
