//! The indexer of V4: its dimensions, from tensors and configuration, and how its keys turn.

use super::{
    CheckpointError, Family,
    config::Config,
    family::{Evidence, agree},
    rope::{Rope, Yarn},
};

/// Tokens whose keys are compressed into one.
const RATIO: usize = 4;

/// What the published configurations turn of a head, and by which base.
const ROPE_DIMS: usize = 64;
const ROPE_THETA: f64 = 160_000.0;

/// The keys that attention selects where nothing says how many.
const TOP_K: usize = 512;

/// What the arithmetic needs to know of the indexer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexerModel {
    /// Heads, H.
    pub heads: usize,
    /// The width of a head, W.
    pub width: usize,
    /// The rank of the query projection that feeds it, R.
    pub rank: usize,
    /// Tokens per key.
    pub ratio: usize,
    /// How many keys attention selects: [`super::Model::index_topk`], or the usual number.
    pub topk: usize,
    /// How queries and keys turn.
    pub rope: Rope,
}

impl IndexerModel {
    /// Why a dimension is what it is, for the sentence about a tensor of another shape.
    pub(super) fn because(&self, hidden: usize) -> String {
        format!(
            "{} index heads of width {}, query rank {} and hidden size {hidden}",
            self.heads, self.width, self.rank
        )
    }

    /// Concludes it from tensors and configuration; what has to be assumed goes to `assume`. `None` where there is
    /// nothing to conclude it from, and for V4.1, whose indexer is another one.
    pub(super) fn conclude(
        evidence: &Evidence<'_>,
        config: Option<&Config>,
        family: Family,
        topk: Option<usize>,
        assume: &mut dyn FnMut(&str, &str),
    ) -> Result<Option<Self>, CheckpointError> {
        let absent = Config::default();
        let dims = Dims::conclude(evidence, config.unwrap_or(&absent))?;
        let (Some(heads), Some(width), Some(rank)) = (dims.heads, dims.width, dims.rank) else {
            return Ok(None);
        };
        if family == Family::V41Flash {
            return Ok(None);
        }
        // A part of a checkpoint without an indexer is no reason to remark on it.
        let mut assume = |what: &str, value: &str| {
            if evidence.index_query.is_some() {
                assume(what, value);
            }
        };
        Ok(Some(Self {
            heads,
            width,
            rank,
            ratio: RATIO,
            topk: topk.unwrap_or_else(|| {
                assume("index_topk", "512");
                TOP_K
            }),
            rope: rope(config, family, &mut assume),
        }))
    }
}

fn rope(config: Option<&Config>, family: Family, assume: &mut dyn FnMut(&str, &str)) -> Rope {
    let Some(given) = config.and_then(|config| config.rope) else {
        let (yarn, text) = match family {
            Family::Flash | Family::Pro => (
                Some(Yarn::PUBLISHED),
                "64 dimensions, theta 160000, YaRN of factor 16 over 65536 positions, beta 32 and 1,",
            ),
            _ => (None, "64 dimensions, theta 160000, no YaRN,"),
        };
        assume("the rope of compressed keys:", text);
        return Rope {
            dims: ROPE_DIMS,
            theta: ROPE_THETA,
            yarn,
        };
    };
    Rope {
        dims: given.dims.unwrap_or_else(|| {
            assume("qk_rope_head_dim", "64");
            ROPE_DIMS
        }),
        theta: given.theta.unwrap_or_else(|| {
            assume("compress_rope_theta", "160000");
            ROPE_THETA
        }),
        yarn: given.yarn,
    }
}

/// The dimensions that tensors tell, or the configuration where they do not.
struct Dims {
    heads: Option<usize>,
    width: Option<usize>,
    rank: Option<usize>,
}

impl Dims {
    fn conclude(evidence: &Evidence<'_>, given: &Config) -> Result<Self, CheckpointError> {
        let mut dims = Self {
            heads: given.index_heads,
            width: given.index_head_dim,
            rank: given.q_lora_rank,
        };
        if let Some(weights) = evidence.index_weights
            && let [heads, _] = *weights.shape
        {
            let how = "rows give a head count";
            agree("index_n_heads", given.index_heads, heads, weights, how)?;
            dims.heads = Some(heads);
        }
        if let Some(query) = evidence.index_query
            && let [rows, rank] = *query.shape
        {
            let how = "columns give a rank";
            agree("q_lora_rank", given.q_lora_rank, rank, query, how)?;
            dims.rank = Some(rank);
            if let Some(heads) = dims.heads.filter(|&heads| heads > 0 && rows % heads == 0) {
                let width = rows / heads;
                let how = "rows give a head width";
                agree("index_head_dim", given.index_head_dim, width, query, how)?;
                dims.width = Some(width);
            }
        }
        let some = |size: Option<usize>| size.filter(|&size| size > 0);
        Ok(Self {
            heads: some(dims.heads),
            width: some(dims.width),
            rank: some(dims.rank),
        })
    }
}
