//! One site of the chain: its weights, and the streams that the chain starts with.

use std::sync::Arc;

use ndarray::{ArcArray2, Array2};
use sha2::Sha256;
use ulpdrift_reference::mix::SplitParams;

use crate::{
    checkpoint::{HcWeights, Site, StoredType},
    format::Format,
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

/// The streams of the first layer: recorded ones as they are, drawn ones one row copied to all streams.
///
/// # Errors
/// Inputs that cannot be read or lack the site.
pub fn start(plan: &Plan<'_>) -> Result<Start, SuiteError> {
    let first = plan.layers.first().copied().unwrap_or_default();
    let tokens = plan.tokens_at(first, Site::Attn);
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

/// One site.
pub struct Link {
    /// Layer of the model.
    pub layer: u32,
    /// Which of its sites.
    pub site: Site,
    /// The weight of the norm before the sublayer `[d]`.
    pub norm: Vec<f32>,
    /// ε inside the roots.
    pub norm_eps: f64,
    weights: Arc<HcWeights>,
    hc: usize,
    hc_eps: f64,
    iters: u32,
}

impl Link {
    /// Reads the weights of a site.
    ///
    /// # Errors
    /// A tensor that is missing or cannot be read.
    pub fn load(plan: &Plan<'_>, layer: u32, site: Site) -> Result<Self, SuiteError> {
        let model = plan.checkpoint.model();
        Ok(Self {
            layer,
            site,
            norm: plan.checkpoint.norm(layer, site, plan.nonfinite)?,
            norm_eps: model.norm_eps,
            weights: Arc::new(plan.checkpoint.hc(layer, site, plan.nonfinite)?),
            hc: model.hc,
            hc_eps: model.hc_eps,
            iters: model.sinkhorn_iters,
        })
    }

    /// The head, whose weights are those of a site, behind the last layer.
    pub fn of_head(plan: &Plan<'_>, weights: HcWeights) -> Self {
        let model = plan.checkpoint.model();
        Self {
            layer: plan.layers.last().copied().unwrap_or_default(),
            site: Site::Ffn,
            norm: Vec::new(),
            norm_eps: model.norm_eps,
            weights: Arc::new(weights),
            hc: model.hc,
            hc_eps: model.hc_eps,
            iters: model.sinkhorn_iters,
        }
    }

    /// The mixing case of one candidate's streams.
    pub fn case(&self, x: &ArcArray2<f32>, exact_in: Format) -> Case {
        Case {
            layer: self.layer,
            site: self.site,
            x: x.clone(),
            x_exact_in: exact_in,
            weights: self.weights.clone(),
            function_squares: ndarray::ArcArray1::zeros(0),
            hc: self.hc,
            norm_eps: self.norm_eps,
            hc_eps: self.hc_eps,
            iters: self.iters,
        }
    }

    /// `hc_fn`.
    pub fn function(&self) -> ndarray::ArrayView2<'_, f32> {
        self.weights.function.view()
    }

    /// The split's constants.
    pub fn split_params(&self) -> SplitParams {
        SplitParams {
            hc: self.hc,
            scale: self.weights.scale.map(f64::from),
            base: self.weights.base.iter().copied().map(f64::from).collect(),
            iters: self.iters,
            eps: self.hc_eps,
        }
    }

    /// Layers completed behind this site.
    pub fn depth(&self) -> u32 {
        self.layer + u32::from(self.site == Site::Ffn)
    }

    /// `L17.ffn`.
    pub fn place(&self) -> String {
        self.site.of(self.layer)
    }

    /// How `hc_fn` is stored.
    pub fn stored_type(&self) -> String {
        self.weights.dtype.to_string()
    }

    /// Feeds the weights to a digest.
    pub fn digest_update(&self, plan: &Plan<'_>, digest: &mut Sha256) {
        self.weights.digest_update(digest, self.layer, self.site);
        let place = Some((self.layer, self.site));
        plan.checkpoint
            .norm_digest_update(digest, place, &self.norm);
    }
}
