//! One site of the chain: its weights, and the streams that the chain starts with.

use std::{ops::Range, sync::Arc};

use ndarray::{ArcArray2, Array2, s};
use ulpdrift_reference::squares::squares;

use super::sublayer::StandIn;
use crate::{
    activations::Inputs,
    checkpoint::{Digests, HcWeights, Site, StoredType},
    format::Format,
    report::Read,
    suite::{Plan, SuiteError, case::Case},
};

/// What the chain starts with: x [T, hc·d] exactly as stored.
pub struct Start {
    /// The streams.
    pub x: Array2<f32>,
    /// A format that holds every value.
    pub exact_in: Format,
    /// Streams.
    pub hc: usize,
}

impl Start {
    /// Some of the tokens.
    pub fn tokens(&self, tokens: Range<usize>) -> Self {
        Self {
            x: self.x.slice(s![tokens, ..]).to_owned(),
            ..*self
        }
    }

    /// Notes the weights among it, which are embeddings.
    pub fn add_digests(&self, plan: &Plan<'_>, digests: &mut Digests) {
        if *plan.inputs == Inputs::Embedding {
            let rows = self.x.slice(s![.., ..self.x.ncols() / self.hc]);
            plan.checkpoint
                .add_embedding_digest(digests, plan.seed, rows);
        }
    }
}

/// The streams of the first layer: recorded ones as they are, drawn ones and embeddings one row copied to all
/// streams.
///
/// # Errors
/// Inputs that cannot be read or lack the site.
pub fn start(plan: &Plan<'_>) -> Result<Start, SuiteError> {
    let first = plan.layers.first().copied().unwrap_or_default();
    let tokens = plan.tokens_at(first, Site::Attn);
    if *plan.inputs == Inputs::Embedding {
        return embedded(plan, tokens);
    }
    let streams = plan.activations.first_streams(first, 0..tokens)?;
    let x = streams.ok_or_else(|| {
        SuiteError::NothingToRun(format!(
            "{} has no x for L{first}.attn, where suite chain begins; record that site or choose other --inputs",
            plan.inputs
        ))
    })?;
    let stored = plan.activations.exact_in(first, Site::Attn);
    Ok(Start {
        x,
        exact_in: stored.map_or(Format::F32, StoredType::format),
        hc: plan.checkpoint.model().hc,
    })
}

/// The embeddings of tokens drawn from the whole vocabulary.
fn embedded(plan: &Plan<'_>, tokens: usize) -> Result<Start, SuiteError> {
    let vocabulary = plan.checkpoint.vocabulary()?;
    let ids = plan.activations.token_ids(vocabulary.tokens, 0..tokens);
    let rows = plan.checkpoint.embedding(&ids, plan.nonfinite)?;
    let rows = rows.unwrap_or_default();
    let hc = plan.checkpoint.model().hc;
    let (tokens, d) = rows.dim();
    Ok(Start {
        x: Array2::from_shape_fn((tokens, hc * d), |(token, index)| rows[[token, index % d]]),
        exact_in: vocabulary.stored.format(),
        hc,
    })
}

/// One site.
pub struct Link {
    /// The weight of the norm before the sublayer `[d]`.
    pub norm: Vec<f32>,
    /// What stands in for the sublayer.
    pub stand_in: StandIn,
    /// The site, without inputs.
    pub site: Case,
}

impl Link {
    /// Reads the weights of a site.
    ///
    /// # Errors
    /// A tensor that is missing or cannot be read.
    pub fn load(
        plan: &Plan<'_>,
        layer: u32,
        site: Site,
        stand_in: StandIn,
    ) -> Result<Self, SuiteError> {
        Ok(Self {
            stand_in,
            norm: plan.checkpoint.norm(layer, site, plan.nonfinite)?,
            site: Case::with_inputs(plan, layer, site, ArcArray2::zeros((0, 0)))?,
        })
    }

    /// The head, whose weights are those of a site, behind the last layer.
    pub fn of_head(plan: &Plan<'_>, weights: HcWeights) -> Self {
        let model = plan.checkpoint.model();
        Self {
            norm: Vec::new(),
            stand_in: StandIn::Norm,
            site: Case {
                layer: plan.layers.last().copied().unwrap_or_default(),
                site: Site::Ffn,
                x: ArcArray2::zeros((0, 0)),
                x_exact_in: Format::F32,
                function_squares: squares(plan.level, weights.function.view()).into_shared(),
                weights: Arc::new(weights),
                hc: model.hc,
                norm_eps: model.norm_eps,
                hc_eps: model.hc_eps,
                iters: model.sinkhorn_iters,
            },
        }
    }

    /// The mixing case of one candidate's streams.
    pub fn case(&self, x: &ArcArray2<f32>, exact_in: Format) -> Case {
        Case {
            x: x.clone(),
            x_exact_in: exact_in,
            ..self.site.clone()
        }
    }

    /// Layers completed behind this site.
    pub fn depth(&self) -> u32 {
        self.site.layer + u32::from(self.site.site == Site::Ffn)
    }

    /// `L17.ffn`.
    pub fn place(&self) -> String {
        self.site.place()
    }

    /// How `hc_fn` is stored.
    pub fn stored_type(&self) -> String {
        self.site.weights.dtype.to_string()
    }

    /// Notes the weights.
    pub fn note(&self, plan: &Plan<'_>, read: &mut Read) {
        self.site.note(read);
        let place = Some((self.site.layer, self.site.site));
        plan.checkpoint
            .add_norm_digest(&mut read.digests, place, &self.norm);
        self.stand_in.add_digests(&mut read.digests);
    }
}
