//! The hyper-connection weights of one site.

use ndarray::Array2;

use super::{
    Checkpoint, CheckpointError, Digests, NonFinite, Site, StoredType,
    locate::Located,
    names::{HC_PARTS, hc_name},
    values::{self, Values},
};

/// What a site mixes its streams with; every value exactly as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct HcWeights {
    /// `hc_fn`, [(2 + h)·h, h·d]: rows are h of pre, h of post, h·h of comb.
    pub function: Array2<f32>,
    /// Of pre, post and comb.
    pub scale: [f32; 3],
    /// As many as `function` has rows.
    pub base: Vec<f32>,
    /// How `function` is stored; BF16 or F16 is already a loss.
    pub dtype: StoredType,
}

impl HcWeights {
    /// Notes what was read.
    pub fn add_digests(&self, digests: &mut Digests, layer: u32, site: Site) {
        let stored = self.dtype.name();
        let mut add = |part: &str, shape: &[usize], values: &mut dyn Iterator<Item = &f32>| {
            values::add_values(digests, &hc_name(layer, site, part), stored, shape, values);
        };
        add("fn", self.function.shape(), &mut self.function.iter());
        add("base", &[self.base.len()], &mut self.base.iter());
        add("scale", &[self.scale.len()], &mut self.scale.iter());
    }
}

/// Reads a site whose layer is known to be complete and of the right shapes.
pub(super) fn read(
    checkpoint: &Checkpoint,
    layer: u32,
    site: Site,
    nonfinite: NonFinite,
) -> Result<HcWeights, CheckpointError> {
    let needed = format!("layer {layer} {site}");
    let [function, base, scale] = HC_PARTS.map(|part| {
        let name = hc_name(layer, site, part);
        let located = checkpoint
            .tensor(&name)
            .ok_or_else(|| CheckpointError::IncompleteLayer {
                layer,
                spec: checkpoint.source.clone(),
                missing: name,
            })?;
        let read = values::read(checkpoint, located, &needed, nonfinite)?;
        Ok::<_, CheckpointError>(Part { read, located })
    });
    let (function, base, scale) = (function?, base?, scale?);
    let shape = (checkpoint.model.mixes(), checkpoint.model.width());
    let mismatch = |part: &Part<'_>, expected: String| CheckpointError::WrongShape {
        tensor: part.located.stored.clone(),
        file: part.located.file.clone(),
        found: format!("of {} values", part.read.values.len()),
        expected,
    };
    let scale_values = <[f32; 3]>::try_from(scale.read.values.as_slice())
        .map_err(|_| mismatch(&scale, "3 values".to_owned()))?;
    let dtype = function.read.stored;
    let too_few = mismatch(&function, format!("{shape:?}"));
    Ok(HcWeights {
        function: Array2::from_shape_vec(shape, function.read.values).map_err(|_| too_few)?,
        scale: scale_values,
        base: base.read.values,
        dtype,
    })
}

/// A part of the site's weights and where it came from.
struct Part<'a> {
    read: Values,
    located: &'a Located,
}
