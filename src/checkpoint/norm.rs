//! The weights of the RMS norms between the streams and a sublayer, and of the one at the model's end.

use super::{Checkpoint, CheckpointError, Digests, NonFinite, Site, names::norm_name, values};

impl Checkpoint {
    /// Reads the weight of the norm that a site's sublayer begins with: d values, exactly as stored.
    ///
    /// # Errors
    ///
    /// If the layer or the tensor is not there, is not of that length, cannot be read, or holds NaN or
    /// infinities and `nonfinite` refuses them.
    pub fn norm(
        &self,
        layer: u32,
        site: Site,
        nonfinite: NonFinite,
    ) -> Result<Vec<f32>, CheckpointError> {
        self.require_layer(layer)?;
        let needed = format!("layer {layer} {site}");
        self.norm_weight(Some((layer, site)), &needed, nonfinite)
    }

    /// Reads the weight of the norm behind the head: d values, exactly as stored.
    ///
    /// # Errors
    ///
    /// As [`Self::norm`].
    pub fn final_norm(&self, nonfinite: NonFinite) -> Result<Vec<f32>, CheckpointError> {
        self.norm_weight(None, "the model's end", nonfinite)
    }

    /// Notes that a site's norm was read, or the final one (`None`).
    pub fn add_norm_digest(
        &self,
        digests: &mut Digests,
        place: Option<(u32, Site)>,
        weight: &[f32],
    ) {
        let name = norm_name(place);
        let stored = self.tensor(&name).map_or("", |located| &located.dtype);
        values::add_values(digests, &name, stored, &[weight.len()], weight);
    }

    fn norm_weight(
        &self,
        place: Option<(u32, Site)>,
        needed: &str,
        nonfinite: NonFinite,
    ) -> Result<Vec<f32>, CheckpointError> {
        let name = norm_name(place);
        let located = self.tensor(&name).ok_or_else(|| CheckpointError::Lacking {
            spec: self.source.clone(),
            missing: name.clone(),
            needed: needed.to_owned(),
            advice: "complete the checkpoint",
        })?;
        values::check_shape(&self.model, located, &[self.model.hidden])?;
        Ok(values::read(self, located, needed, nonfinite)?.values)
    }
}
