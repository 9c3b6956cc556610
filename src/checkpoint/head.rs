//! The weights that collapse the streams at the end of the model.

use ndarray::Array2;

use super::{
    Checkpoint, CheckpointError, Digests, Family, NonFinite, StoredType,
    locate::Located,
    names::{HC_PARTS, head_name},
    values,
};

/// Where the head stands, for messages.
const NEEDED: &str = "the head";

/// What the head weighs the streams with; every value exactly as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadWeights {
    /// `hc_head_fn`, [h, h·d].
    pub function: Array2<f32>,
    /// One per stream.
    pub base: Vec<f32>,
    /// One for all of them.
    pub scale: f32,
    /// How `function` is stored; BF16 or F16 is already a loss.
    pub dtype: StoredType,
}

impl HeadWeights {
    /// Notes what was read.
    pub fn add_digests(&self, digests: &mut Digests) {
        let stored = self.dtype.name();
        let mut add = |part: &str, shape: &[usize], values: &mut dyn Iterator<Item = &f32>| {
            values::add_values(digests, &head_name(part), stored, shape, values);
        };
        add("fn", self.function.shape(), &mut self.function.iter());
        add("base", &[self.base.len()], &mut self.base.iter());
        add("scale", &[1], &mut [self.scale].iter());
    }
}

impl Checkpoint {
    /// Reads the head's weights; `None` for V4.1, whose last sites leave the weights of the streams behind.
    ///
    /// # Errors
    ///
    /// If a tensor is not there, has another shape, cannot be read, or holds NaN or infinities and
    /// `nonfinite` refuses them.
    pub fn head(&self, nonfinite: NonFinite) -> Result<Option<HeadWeights>, CheckpointError> {
        if self.model.family == Family::V41Flash {
            return Ok(None);
        }
        let [function, base, scale] = self.head_parts()?;
        let shape = [self.model.hc, self.model.width()];
        values::check_shape(&self.model, function, &shape)?;
        values::check_shape(&self.model, base, &shape[..1])?;
        // Some writers store one value as a scalar.
        if !scale.shape.is_empty() {
            values::check_shape(&self.model, scale, &[1])?;
        }
        let read = |part| values::read(self, part, NEEDED, nonfinite);
        let (read_function, base, scale) = (read(function)?, read(base)?, read(scale)?);
        Ok(Some(HeadWeights {
            function: Array2::from_shape_vec(shape, read_function.values)
                .map_err(|_| values::wrong_shape(&self.model, function, &shape))?,
            base: base.values,
            scale: scale.values.first().copied().unwrap_or(f32::NAN),
            dtype: read_function.stored,
        }))
    }

    /// The tensors of fn, base and scale, all or a sentence that names those that are missing.
    fn head_parts(&self) -> Result<[&Located; 3], CheckpointError> {
        let parts = HC_PARTS.map(|part| self.tensor(&head_name(part)));
        if let [Some(function), Some(base), Some(scale)] = parts {
            return Ok([function, base, scale]);
        }
        let missing = HC_PARTS.map(head_name);
        let missing = missing.iter().filter(|name| self.tensor(name).is_none());
        Err(CheckpointError::Lacking {
            spec: self.source.clone(),
            missing: missing.cloned().collect::<Vec<_>>().join(", "),
            needed: NEEDED.to_owned(),
            advice: "complete the checkpoint; a head without weights, such as the mean of the \
                     streams, is not covered",
        })
    }
}
