//! What a tensor's values look like, read piece by piece.

use super::{Checkpoint, CheckpointError, StoredType, locate::Located};

/// Statistics of one tensor. FP8 weights enter as codes, without their block scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorStats {
    /// How many values there are.
    pub values: u64,
    /// √(mean of squares) of the finite values, 0 if there are none.
    pub rms: f64,
    /// The largest magnitude of a finite value, 0 if there are none.
    pub abs_max: f64,
    /// How many values are NaN or infinite.
    pub nonfinite: u64,
}

/// Bytes per read; memory stays at this whatever the tensor's size.
const PIECE: usize = 1 << 20;

/// Reads a tensor once; `None` if its type is not one the tool decodes.
pub(super) fn measure(
    checkpoint: &Checkpoint,
    located: &Located,
) -> Result<Option<TensorStats>, CheckpointError> {
    let Some(stored) = StoredType::from_name(&located.dtype) else {
        return Ok(None);
    };
    let (mut values, mut nonfinite, mut squares, mut abs_max) = (0_u64, 0_u64, 0.0_f64, 0.0_f32);
    let mut decoded = Vec::new();
    checkpoint.visit(located, PIECE, |bytes| {
        decoded.clear();
        stored.decode_into(bytes, &mut decoded);
        values += decoded.len() as u64;
        for &value in &decoded {
            if value.is_finite() {
                // The square of an f32 is exact in f64 and cannot overflow it.
                squares += f64::from(value) * f64::from(value);
                abs_max = abs_max.max(value.abs());
            } else {
                nonfinite += 1;
            }
        }
    })?;
    let finite = values - nonfinite;
    let rms = if finite == 0 {
        0.0
    } else {
        (squares / finite as f64).sqrt()
    };
    Ok(Some(TensorStats {
        values,
        rms,
        abs_max: f64::from(abs_max),
        nonfinite,
    }))
}
