//! The shared expert of a layer: three matrices.

use ndarray::Array2;

use super::{
    Checkpoint, CheckpointError, Digests, NonFinite,
    error::quoted,
    matrix::{Accepted, Matrices, Matrix},
    names::{EXPERT_PARTS, expert_name},
    values::Reading,
};

/// What a layer's shared expert multiplies with.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpert {
    /// w1, [inter, d].
    pub gate: Array2<f32>,
    /// w2, [d, inter].
    pub down: Array2<f32>,
    /// w3, [inter, d].
    pub up: Array2<f32>,
    /// Of all that was read.
    pub digests: Digests,
}

impl Checkpoint {
    /// Whether a layer's shared expert is there, of types and shapes that can be read; reads none of it.
    ///
    /// # Errors
    ///
    /// The first tensor that is not.
    pub fn check_shared_expert(&self, layer: u32) -> Result<(), CheckpointError> {
        self.expert_matrices(layer).map(drop)
    }

    /// Reads a layer's shared expert.
    ///
    /// # Errors
    ///
    /// As [`Self::check_shared_expert`], and if a tensor cannot be read or holds NaN or infinities and
    /// `nonfinite` refuses them.
    pub fn shared_expert(
        &self,
        layer: u32,
        nonfinite: NonFinite,
    ) -> Result<SharedExpert, CheckpointError> {
        let [gate, down, up] = self.expert_matrices(layer)?;
        let mut reading = Reading::new(self, format!("layer {layer} ffn"), nonfinite);
        Ok(SharedExpert {
            gate: gate.read(&mut reading)?.values,
            down: down.read(&mut reading)?.values,
            up: up.read(&mut reading)?.values,
            digests: reading.digests(),
        })
    }

    fn expert_matrices(&self, layer: u32) -> Result<[Matrix<'_>; 3], CheckpointError> {
        self.require_layer(layer)?;
        let absent = |name: &str| self.no_shared_expert(layer, name);
        let matrices = Matrices {
            checkpoint: self,
            accepted: Accepted::UpToFp4,
            absent: &absent,
            advice: "choose --sublayer rms-norm, or convert it",
        };
        let hidden = self.model.hidden;
        let [gate, down, up] = EXPERT_PARTS.map(|part| expert_name(layer, part));
        // The gate's rows say how wide the hidden layer is.
        let inter = matrices.tensor(&format!("{gate}.weight"))?.shape.first();
        let inter = inter.copied().unwrap_or(0).max(1);
        let because = format!("hidden size {hidden} and as many hidden units as w1 has rows");
        Ok([
            matrices.find(gate, [inter, hidden], &because)?,
            matrices.find(down, [hidden, inter], &because)?,
            matrices.find(up, [inter, hidden], &because)?,
        ])
    }

    fn no_shared_expert(&self, layer: u32, name: &str) -> CheckpointError {
        let known = self.found.absent_experts.get(&layer).cloned();
        CheckpointError::NoSharedExpert {
            found: known.unwrap_or_else(|| format!("{} lacks {name}", quoted(&self.source))),
            layer,
        }
    }
}
