//! The model a checkpoint belongs to: its family and the numbers the arithmetic depends on.
//!
//! Dimensions come from the tensors; `config.json` adds what tensors cannot tell (epsilons,
//! iterations, top-k) and must not contradict them. Where there is no configuration the family's
//! published values stand in, and a note says so.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    config::Config,
    error::{CheckpointError, shape_text},
    indexer_model::IndexerModel,
};

/// The widest hidden size accepted; above it a header is hostile, not a model.
const LARGEST_HIDDEN: usize = 1 << 20;

/// A published model family.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// DeepSeek-V4-Flash: hidden 4096, 43 layers.
    Flash,
    /// DeepSeek-V4-Pro: hidden 7168, 61 layers.
    Pro,
    /// DeepSeek-V4.1-Flash: hidden 5120, 40 layers, delayed `pre`, no head mixing.
    #[serde(rename = "v4.1-flash")]
    V41Flash,
    /// The same hyper-connections in a model of other dimensions.
    Other,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flash => "flash",
            Self::Pro => "pro",
            Self::V41Flash => "v4.1-flash",
            Self::Other => "other",
        })
    }
}

impl Family {
    fn recognise(model_type: Option<&str>, hidden: usize) -> Self {
        match (model_type, hidden) {
            (Some("deepseek_v41"), _) | (None, 5120) => Self::V41Flash,
            (Some("deepseek_v4") | None, 4096) => Self::Flash,
            (Some("deepseek_v4") | None, 7168) => Self::Pro,
            _ => Self::Other,
        }
    }

    fn norm_eps(self) -> f64 {
        if self == Self::V41Flash { 1e-20 } else { 1e-6 }
    }

    /// The side of an FP8 weight's scale block.
    fn weight_block(self) -> usize {
        if self == Self::V41Flash { 32 } else { 128 }
    }

    fn index_topk(self) -> Option<usize> {
        match self {
            Self::Flash | Self::V41Flash => Some(512),
            Self::Pro => Some(1024),
            Self::Other => None,
        }
    }
}

/// What the arithmetic needs to know of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The family.
    pub family: Family,
    /// The width d of one residual stream.
    pub hidden: usize,
    /// How many residual streams there are, h.
    pub hc: usize,
    /// How many layers the whole model has, be they in this checkpoint or not.
    pub layers: usize,
    /// Sinkhorn iterations, the first (softmax and column) included.
    pub sinkhorn_iters: u32,
    /// The epsilon of `pre` and of Sinkhorn.
    pub hc_eps: f64,
    /// The epsilon inside the reciprocal square root.
    pub norm_eps: f64,
    /// Rows and columns of an FP8 weight that share a scale.
    pub weight_block: [usize; 2],
    /// Where the shared expert clamps its hidden layer; infinite: nowhere.
    pub swiglu_limit: f64,
    /// How many keys sparse attention selects.
    pub index_topk: Option<usize>,
    /// The indexer, if it is V4's.
    pub indexer: Option<IndexerModel>,
    /// What had to be assumed, and what is odd, a sentence each.
    pub notes: Vec<String>,
}

impl Model {
    /// The length K = h·d of a flattened row of x.
    #[must_use]
    pub fn width(&self) -> usize {
        self.hc * self.hidden
    }

    /// How many mixes a site has: (2 + h)·h.
    #[must_use]
    pub fn mixes(&self) -> usize {
        (2 + self.hc) * self.hc
    }
}

/// The tensors that determine a model's dimensions, with their stored names.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// One `hc_attn_fn` or `hc_ffn_fn`.
    pub(super) function: Shaped<'a>,
    /// One `indexer.wq_b.weight`, if any.
    pub(super) index_query: Option<Shaped<'a>>,
    /// One `indexer.weights_proj.weight`, if any.
    pub(super) index_weights: Option<Shaped<'a>>,
    /// The highest layer with hc tensors, and one of its tensors.
    pub(super) deepest: (u32, &'a str),
    /// Whether there are `hc_head_*` tensors.
    pub(super) has_head: bool,
    /// Whether there are shared experts.
    pub(super) has_shared_expert: bool,
}

/// A tensor's stored name and shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaped<'a> {
    pub(super) name: &'a str,
    pub(super) shape: &'a [usize],
}

/// Concludes the model from tensors and configuration.
pub(super) fn conclude(
    evidence: &Evidence<'_>,
    config: Option<&Config>,
) -> Result<Model, CheckpointError> {
    let (hc, width) = streams(evidence.function)?;
    let hidden = width / hc;
    let absent = Config::default();
    let given = config.unwrap_or(&absent);
    let function = evidence.function;
    agree(
        "hc_mult",
        given.hc_mult,
        hc,
        function,
        "rows, (2 + h)·h, give h",
    )?;
    agree(
        "hidden_size",
        given.hidden_size,
        hidden,
        function,
        "columns give a hidden size",
    )?;
    if let Some(layers) = given.layers
        && evidence.deepest.0 as usize >= layers
    {
        return Err(CheckpointError::Contradiction {
            key: "num_hidden_layers",
            configured: layers.to_string(),
            tensor: evidence.deepest.1.to_owned(),
            found: format!("is of layer {}", evidence.deepest.0),
        });
    }

    let family = Family::recognise(given.model_type.as_deref(), hidden);
    let mut notes = Vec::new();
    let mut assume = |what: &str, value: &str| {
        let why = if config.is_some() {
            "config.json does not say"
        } else {
            "no config.json"
        };
        notes.push(format!(
            "{why}: {what} {value} assumed, the published value"
        ));
    };
    let sinkhorn_iters = given.sinkhorn_iters.unwrap_or_else(|| {
        assume("hc_sinkhorn_iters", "20");
        20
    });
    let hc_eps = given.hc_eps.unwrap_or_else(|| {
        assume("hc_eps", "1e-6");
        1e-6
    });
    let norm_eps = given.norm_eps.unwrap_or_else(|| {
        assume("rms_norm_eps", &format!("{:e}", family.norm_eps()));
        family.norm_eps()
    });
    let swiglu_limit = given.swiglu_limit.unwrap_or_else(|| {
        if evidence.has_shared_expert {
            assume("swiglu_limit", "10");
        }
        10.0
    });
    let index_topk = given.index_topk.or(family.index_topk());
    let indexer = IndexerModel::conclude(evidence, config, family, index_topk, &mut assume)?;
    if family == Family::V41Flash && evidence.has_head {
        notes.push("hc_head_* tensors are there, which V4.1 does not have".to_owned());
    }
    Ok(Model {
        family,
        hidden,
        hc,
        layers: given.layers.unwrap_or(evidence.deepest.0 as usize + 1),
        sinkhorn_iters,
        hc_eps,
        norm_eps,
        weight_block: given.weight_block.unwrap_or([family.weight_block(); 2]),
        swiglu_limit: match swiglu_limit {
            0.0 => f64::INFINITY,
            limit => limit,
        },
        index_topk,
        indexer,
        notes,
    })
}

/// h and K from the shape [(2 + h)·h, h·d] of `fn`.
fn streams(function: Shaped<'_>) -> Result<(usize, usize), CheckpointError> {
    const HC: usize = 4;
    const ROWS: usize = (2 + HC) * HC;
    let unsupported = |expected: String| CheckpointError::Unsupported {
        tensor: function.name.to_owned(),
        found: format!("has shape {}", shape_text(function.shape)),
        expected,
    };
    match *function.shape {
        [ROWS, width] if width > 0 && width % HC == 0 && width / HC <= LARGEST_HIDDEN => {
            Ok((HC, width))
        }
        [ROWS, _] => Err(unsupported(format!(
            "expected four streams of the same hidden size, at most {LARGEST_HIDDEN}"
        ))),
        _ => Err(unsupported(format!(
            "expected [{ROWS}, 4·hidden], for ulpdrift measures models with four residual streams"
        ))),
    }
}

/// A configured value must be the tensors' value.
pub(super) fn agree(
    key: &'static str,
    configured: Option<usize>,
    found: usize,
    tensor: Shaped<'_>,
    how: &str,
) -> Result<(), CheckpointError> {
    match configured {
        Some(configured) if configured != found => Err(CheckpointError::Contradiction {
            key,
            configured: configured.to_string(),
            tensor: tensor.name.to_owned(),
            found: format!(
                "has shape {}, whose {how} of {found}",
                shape_text(tensor.shape)
            ),
        }),
        _ => Ok(()),
    }
}
