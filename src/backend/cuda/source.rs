//! The kernels' sources: those in the binary, or a user's own in their place.
//!
//! A replacement keeps the contract that stands at the head of each file in `kernels/`: the file's name, the
//! kernel's name, its arguments and their layout, and the macros it is compiled with.

use std::collections::BTreeMap;

/// The headers that kernels include, and their texts.
const HEADERS: [(&str, &str); 5] = [
    ("barrier.cuh", include_str!("../../../kernels/barrier.cuh")),
    ("common.cuh", include_str!("../../../kernels/common.cuh")),
    ("finish.cuh", include_str!("../../../kernels/finish.cuh")),
    ("matrix.cuh", include_str!("../../../kernels/matrix.cuh")),
    ("ranges.cuh", include_str!("../../../kernels/ranges.cuh")),
];

/// One file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kernel {
    /// Weights as the projection on a matrix unit wants them.
    PackWeights,
    /// Weights as the projection on CUDA cores wants them.
    PackColumns,
    /// The projection on a matrix unit.
    ProjectMma,
    /// The projection on CUDA cores, a chain per range.
    ProjectFma,
    /// The projection on CUDA cores, strided threads and a block tree.
    ProjectStrided,
    /// The RMS factor.
    Rms,
    /// From partial sums to dot and mixes.
    Finish,
    /// Gates and combination matrix.
    SplitSinkhorn,
    /// The layer input.
    Collapse,
    /// The streams after the sublayer.
    Recombine,
    /// The indexer's logits.
    IndexLogits,
    /// The largest of a row.
    TopK,
    /// One matrix instruction per tile.
    MmaTiles,
    /// The conversions of fp32 words to operands.
    Convert,
}

impl Kernel {
    /// Every file.
    pub const ALL: [Self; 14] = [
        Self::PackWeights,
        Self::PackColumns,
        Self::ProjectMma,
        Self::ProjectFma,
        Self::ProjectStrided,
        Self::Rms,
        Self::Finish,
        Self::SplitSinkhorn,
        Self::Collapse,
        Self::Recombine,
        Self::IndexLogits,
        Self::TopK,
        Self::MmaTiles,
        Self::Convert,
    ];

    /// The name of the file.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::PackWeights => "pack_weights.cu",
            Self::PackColumns => "pack_columns.cu",
            Self::ProjectMma => "project_mma.cu",
            Self::ProjectFma => "project_fma.cu",
            Self::ProjectStrided => "project_strided.cu",
            Self::Rms => "rms.cu",
            Self::Finish => "finish.cu",
            Self::SplitSinkhorn => "split_sinkhorn.cu",
            Self::Collapse => "collapse.cu",
            Self::Recombine => "recombine.cu",
            Self::IndexLogits => "index_logits.cu",
            Self::TopK => "top_k.cu",
            Self::MmaTiles => "mma_tiles.cu",
            Self::Convert => "convert.cu",
        }
    }

    fn embedded(self) -> &'static str {
        match self {
            Self::PackWeights => include_str!("../../../kernels/pack_weights.cu"),
            Self::PackColumns => include_str!("../../../kernels/pack_columns.cu"),
            Self::ProjectMma => include_str!("../../../kernels/project_mma.cu"),
            Self::ProjectFma => include_str!("../../../kernels/project_fma.cu"),
            Self::ProjectStrided => include_str!("../../../kernels/project_strided.cu"),
            Self::Rms => include_str!("../../../kernels/rms.cu"),
            Self::Finish => include_str!("../../../kernels/finish.cu"),
            Self::SplitSinkhorn => include_str!("../../../kernels/split_sinkhorn.cu"),
            Self::Collapse => include_str!("../../../kernels/collapse.cu"),
            Self::Recombine => include_str!("../../../kernels/recombine.cu"),
            Self::IndexLogits => include_str!("../../../kernels/index_logits.cu"),
            Self::TopK => include_str!("../../../kernels/top_k.cu"),
            Self::MmaTiles => include_str!("../../../kernels/mma_tiles.cu"),
            Self::Convert => include_str!("../../../kernels/convert.cu"),
        }
    }
}

/// The sources that a backend compiles.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    replaced: BTreeMap<String, String>,
}

impl Sources {
    /// The names of all files.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let headers = HEADERS.iter().map(|(name, _)| *name);
        headers.chain(Kernel::ALL.map(Kernel::file)).collect()
    }

    /// The names that a user's own file may have: what a run compiles.
    #[must_use]
    pub fn names_of_run() -> Vec<&'static str> {
        let mut names = Self::names();
        let elsewhere = [Kernel::MmaTiles, Kernel::Convert].map(Kernel::file);
        names.retain(|name| !elsewhere.contains(name));
        names
    }

    /// The sources in the binary, `replaced` ones apart: text by file name, each one of
    /// [`Sources::names`].
    #[must_use]
    pub fn with(replaced: BTreeMap<String, String>) -> Self {
        Self { replaced }
    }

    /// The names of the files that are not the binary's own.
    pub fn replaced(&self) -> impl Iterator<Item = &str> {
        self.replaced.keys().map(String::as_str)
    }

    /// Whether a file of kernels is not the binary's own.
    #[must_use]
    pub fn replaces(&self, kernel: Kernel) -> bool {
        self.replaced.contains_key(kernel.file())
    }

    /// The text of a file of kernels.
    #[must_use]
    pub fn text(&self, kernel: Kernel) -> &str {
        let replaced = self.replaced.get(kernel.file());
        replaced.map_or_else(|| kernel.embedded(), String::as_str)
    }

    /// The headers' names and texts.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, &str); HEADERS.len()] {
        HEADERS.map(|(name, embedded)| {
            let replaced = self.replaced.get(name);
            (name, replaced.map_or(embedded, String::as_str))
        })
    }
}
