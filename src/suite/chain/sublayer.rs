//! What stands in for attention and experts, in the fp64 chain and in those of the candidates.
//!
//! It is not under test, so its arithmetic is fp64 everywhere. The fp64 chain rounds nothing; a candidate's y, u
//! and f are each rounded once to fp32 and then as layer-io says.
//!
//! | stand-in | f |
//! |---|---|
//! | `rms-norm` | u = RMSNorm(y)·weight, the layer's own |
//! | `shared-expert` | at an ffn site the layer's own shared expert of u: w2·( silu(min(w1·u, limit)) · clamp(w3·u, ±limit) ); attention has nothing of the kind, so that its sites keep u |
//! | `file` | what was recorded at that site; y has no part in it |
//!
//! `limit` is the configuration's `swiglu_limit`: the published code clamps the shared expert as it does the routed
//! ones, and so do the engines; an early copy of it and transformers do not, which a limit of 0 is.
//!
//! A recorded f is the same for every chain: the fp64 chain takes it as it was recorded, and a candidate as layer-io
//! stores it, for that cast is a part of what is deployed. (The f of a model that runs in bf16 is not changed by it.)
//! So an error of y ends there and does not come back; what grows is that of the streams and of their weights.

use std::{fmt, ops::Range};

use ndarray::{Array2, ArrayView2, s};
use ulpdrift_reference::{
    expert::{Expert, Weights},
    simd::Level,
    streams::rms_norm,
};

use super::{candidate::rounded, link::Link};
use crate::{
    activations::Activations,
    checkpoint::{Checkpoint, Digests, Site},
    format::{Format, Rounding},
    suite::{Plan, SuiteError},
};

/// A stand-in for attention and experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sublayer {
    /// f = u: nothing after the layer's norm.
    RmsNorm,
    /// The layer's shared expert at ffn sites, u at the others.
    SharedExpert,
    /// Recorded outputs.
    File,
}

impl fmt::Display for Sublayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RmsNorm => "rms-norm",
            Self::SharedExpert => "shared-expert",
            Self::File => "file",
        })
    }
}

impl Sublayer {
    /// Whether all that it needs in these layers is there, before anything is computed. Weights are looked at,
    /// recorded outputs read.
    ///
    /// # Errors
    /// The first tensor that is missing or not as it should be.
    pub fn check(
        self,
        checkpoint: &Checkpoint,
        activations: &Activations,
        layers: &[u32],
        tokens: usize,
    ) -> Result<(), SuiteError> {
        for &layer in layers {
            match self {
                Self::RmsNorm => {}
                Self::SharedExpert => checkpoint.check_shared_expert(layer)?,
                Self::File => {
                    for site in Site::ALL {
                        activations.output(layer, site, tokens)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The stand-in of one site, ready to run.
pub enum StandIn {
    /// u itself.
    Norm,
    /// The layer's shared expert.
    Expert {
        /// In the form that runs.
        expert: Box<Expert>,
        /// Of what it was made from.
        digests: Digests,
    },
    /// What was recorded [T, d].
    Recorded(Array2<f32>),
}

impl StandIn {
    /// Reads what a site needs.
    ///
    /// # Errors
    /// Weights or outputs that are missing or cannot be read.
    pub fn load(
        plan: &Plan<'_>,
        sublayer: Sublayer,
        (layer, site): (u32, Site),
        tokens: usize,
    ) -> Result<Self, SuiteError> {
        Ok(match (sublayer, site) {
            (Sublayer::RmsNorm, _) | (Sublayer::SharedExpert, Site::Attn) => Self::Norm,
            (Sublayer::SharedExpert, Site::Ffn) => {
                let stored = plan.checkpoint.shared_expert(layer, plan.nonfinite)?;
                let weights = Weights {
                    gate: stored.gate.view(),
                    up: stored.up.view(),
                    down: stored.down.view(),
                };
                let limit = plan.checkpoint.model().swiglu_limit;
                Self::Expert {
                    expert: Box::new(Expert::new(weights, limit)),
                    digests: stored.digests,
                }
            }
            (Sublayer::File, _) => Self::Recorded(plan.activations.output(layer, site, tokens)?),
        })
    }

    /// That of some tokens.
    #[must_use]
    pub fn tokens(self, tokens: Range<usize>) -> Self {
        match self {
            Self::Recorded(f) => Self::Recorded(f.slice(s![tokens, ..]).to_owned()),
            other => other,
        }
    }

    /// Notes its weights; recorded outputs are inputs, which have no part in it.
    pub fn add_digests(&self, digests: &mut Digests) {
        if let Self::Expert { digests: own, .. } = self {
            digests.extend(own);
        }
    }
}

impl Link {
    /// f in the fp64 chain: nothing is rounded.
    pub fn sublayer(&self, level: Level, y: ArrayView2<'_, f64>) -> Array2<f64> {
        let u = || rms_norm(y, &self.norm, self.site.norm_eps);
        match &self.stand_in {
            StandIn::Norm => u(),
            StandIn::Expert { expert, .. } => expert.run(level, u().view()),
            StandIn::Recorded(f) => f.mapv(f64::from),
        }
    }

    /// f in an fp64 chain that layer-io alone rounds. What is stored as fp32 was made in it: y is not rounded once more.
    pub fn rounded_sublayer(
        &self,
        level: Level,
        y: ArrayView2<'_, f64>,
        io: Format,
    ) -> Array2<f64> {
        let round = |values: ArrayView2<'_, f64>| {
            values.mapv(|value| f64::from(io.round_f64(value, Rounding::NearestEven)))
        };
        let u = || {
            let y = match io {
                Format::F32 => y.to_owned(),
                _ => round(y),
            };
            round(rms_norm(y.view(), &self.norm, self.site.norm_eps).view())
        };
        match &self.stand_in {
            StandIn::Norm => u(),
            StandIn::Expert { expert, .. } => round(expert.run(level, u().view()).view()),
            StandIn::Recorded(f) => rounded(f.view(), io).mapv(f64::from),
        }
    }

    /// f in a candidate's chain: y, u and f are each rounded once to fp32, then as `io` says.
    pub fn stored_sublayer(&self, level: Level, y: ArrayView2<'_, f32>, io: Format) -> Array2<f32> {
        let stored = |values: Array2<f64>| rounded(values.mapv(|value| value as f32).view(), io);
        let u = || {
            let y = rounded(y, io).mapv(f64::from);
            stored(rms_norm(y.view(), &self.norm, self.site.norm_eps))
        };
        match &self.stand_in {
            StandIn::Norm => u(),
            StandIn::Expert { expert, .. } => stored(expert.run_f32(level, u().view())),
            StandIn::Recorded(f) => rounded(f.view(), io),
        }
    }
}
