//! The hyper-connection weights of one site.

use ndarray::Array2;
use sha2::{Digest, Sha256};

use super::{
    Checkpoint, CheckpointError, NonFinite, Site, StoredType,
    locate::Located,
    names::{HC_PARTS, hc_name},
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
    /// Feeds names, type, shape and values to a digest, so that two checkpoints with the same
    /// weights have the same digest whatever their spelling and shards.
    ///
    /// Values enter as little-endian f32: for F32 tensors these are the stored bytes. Feed sites
    /// in ascending order of layer, attn before ffn.
    pub fn digest_update(&self, digest: &mut Sha256, layer: u32, site: Site) {
        let mut feed = |part: &str, shape: &[usize], values: &mut dyn Iterator<Item = &f32>| {
            digest.update(format!(
                "{}\n{}\n{shape:?}\n",
                hc_name(layer, site, part),
                self.dtype
            ));
            let mut bytes = Vec::with_capacity(1 << 14);
            for value in values {
                bytes.extend_from_slice(&value.to_le_bytes());
                if bytes.len() == 1 << 14 {
                    digest.update(&bytes);
                    bytes.clear();
                }
            }
            digest.update(&bytes);
        };
        feed("fn", self.function.shape(), &mut self.function.iter());
        feed("base", &[self.base.len()], &mut self.base.iter());
        feed("scale", &[self.scale.len()], &mut self.scale.iter());
    }
}

/// The tensor's type, if hyper-connection weights may be stored so.
pub(super) fn plain_float(located: &Located) -> Result<StoredType, CheckpointError> {
    StoredType::from_name(&located.dtype)
        .filter(|stored| stored.is_plain_float())
        .ok_or_else(|| CheckpointError::WrongType {
            tensor: located.stored.clone(),
            file: located.file.clone(),
            found: located.dtype.clone(),
        })
}

/// Reads a site whose layer is known to be complete and of the right shapes.
pub(super) fn read(
    checkpoint: &Checkpoint,
    layer: u32,
    site: Site,
    nonfinite: NonFinite,
) -> Result<HcWeights, CheckpointError> {
    let mut buffer = Vec::new();
    let [function, base, scale] = HC_PARTS.map(|part| {
        let name = hc_name(layer, site, part);
        let located = checkpoint
            .tensor(&name)
            .ok_or_else(|| CheckpointError::IncompleteLayer {
                layer,
                spec: checkpoint.source.clone(),
                missing: name,
            })?;
        let stored = plain_float(located)?;
        let mut values = Vec::with_capacity(located.shape.iter().product());
        checkpoint.visit(located, &mut buffer, |bytes| {
            stored.decode_into(bytes, &mut values);
        })?;
        if nonfinite == NonFinite::Refuse {
            refuse_nonfinite(&values, located, layer, site)?;
        }
        Ok(Values {
            values,
            stored,
            located,
        })
    });
    let (function, base, scale) = (function?, base?, scale?);
    let shape = (checkpoint.model.mixes(), checkpoint.model.width());
    let mismatch = |part: &Values<'_>, expected: String| CheckpointError::WrongShape {
        tensor: part.located.stored.clone(),
        file: part.located.file.clone(),
        found: format!("of {} values", part.values.len()),
        expected,
        because: String::new(),
    };
    let scale_values = <[f32; 3]>::try_from(scale.values.as_slice())
        .map_err(|_| mismatch(&scale, "3 values".to_owned()))?;
    let dtype = function.stored;
    let too_few = mismatch(&function, format!("{shape:?}"));
    Ok(HcWeights {
        function: Array2::from_shape_vec(shape, function.values).map_err(|_| too_few)?,
        scale: scale_values,
        base: base.values,
        dtype,
    })
}

/// A decoded tensor.
struct Values<'a> {
    values: Vec<f32>,
    stored: StoredType,
    located: &'a Located,
}

fn refuse_nonfinite(
    values: &[f32],
    located: &Located,
    layer: u32,
    site: Site,
) -> Result<(), CheckpointError> {
    let Some(first) = values.iter().position(|value| !value.is_finite()) else {
        return Ok(());
    };
    Err(CheckpointError::NonFinite {
        tensor: located.stored.clone(),
        file: located.file.clone(),
        count: values.iter().filter(|value| !value.is_finite()).count(),
        total: values.len(),
        first,
        layer,
        site,
    })
}
