//! A tensor of plain floats, read whole: its type, its shape and its values are checked here.

use sha2::{Digest, Sha256};

use super::{
    Checkpoint, CheckpointError, Model, NonFinite, StoredType, error::shape_text, locate::Located,
};

/// A decoded tensor.
pub(super) struct Values {
    /// Exactly as stored, row-major.
    pub(super) values: Vec<f32>,
    /// How they are stored.
    pub(super) stored: StoredType,
}

/// Reads `located`; `needed` says where, for a sentence that ends in "needed at".
pub(super) fn read(
    checkpoint: &Checkpoint,
    located: &Located,
    needed: &str,
    nonfinite: NonFinite,
) -> Result<Values, CheckpointError> {
    let stored = plain_float(located)?;
    let mut values = Vec::with_capacity(located.shape.iter().product());
    checkpoint.visit(located, &mut Vec::new(), |bytes| {
        stored.decode_into(bytes, &mut values);
    })?;
    if nonfinite == NonFinite::Refuse {
        refuse_nonfinite(&values, located, needed)?;
    }
    Ok(Values { values, stored })
}

/// The tensor's type, if it holds plain floats.
pub(super) fn plain_float(located: &Located) -> Result<StoredType, CheckpointError> {
    StoredType::from_name(&located.dtype)
        .filter(|stored| stored.is_plain_float())
        .ok_or_else(|| CheckpointError::WrongType {
            tensor: located.stored.clone(),
            file: located.file.clone(),
            found: located.dtype.clone(),
        })
}

/// A group of tensors being read whole, whose official names, types, shapes and stored bytes enter a digest.
pub(super) struct Reading<'a> {
    checkpoint: &'a Checkpoint,
    /// Where, for a sentence that ends in "needed at".
    needed: String,
    nonfinite: NonFinite,
    digest: Sha256,
}

impl<'a> Reading<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, needed: String, nonfinite: NonFinite) -> Self {
        Self {
            checkpoint,
            needed,
            nonfinite,
            digest: Sha256::new(),
        }
    }

    /// All bytes of a tensor of this official name.
    pub(super) fn bytes(
        &mut self,
        located: &Located,
        name: &str,
    ) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::new();
        self.checkpoint.visit(located, &mut Vec::new(), |piece| {
            bytes.extend_from_slice(piece);
        })?;
        self.digest
            .update(format!("{name}\n{}\n{:?}\n", located.dtype, located.shape));
        self.digest.update(&bytes);
        Ok(bytes)
    }

    /// The values of a tensor of plain floats, exactly as stored.
    pub(super) fn plain(
        &mut self,
        located: &Located,
        name: &str,
    ) -> Result<Vec<f32>, CheckpointError> {
        let stored = plain_float(located)?;
        let bytes = self.bytes(located, name)?;
        let mut values = Vec::with_capacity(bytes.len() / stored.bytes());
        stored.decode_into(&bytes, &mut values);
        self.refuse_nonfinite(&values, located)?;
        Ok(values)
    }

    /// An error if there are such values and they are not allowed.
    pub(super) fn refuse_nonfinite(
        &self,
        values: &[f32],
        located: &Located,
    ) -> Result<(), CheckpointError> {
        match self.nonfinite {
            NonFinite::Refuse => refuse_nonfinite(values, located, &self.needed),
            NonFinite::Allow => Ok(()),
        }
    }

    /// The digest of all that was read, in that order.
    pub(super) fn digest(self) -> [u8; 32] {
        self.digest.finalize().into()
    }
}

/// The tensor must have the shape that the model calls for.
pub(super) fn check_shape(
    model: &Model,
    located: &Located,
    expected: &[usize],
) -> Result<(), CheckpointError> {
    if located.shape == expected {
        Ok(())
    } else {
        Err(wrong_shape(model, located, expected))
    }
}

/// The sentence of a tensor that has not the shape that the model calls for.
pub(super) fn wrong_shape(model: &Model, located: &Located, expected: &[usize]) -> CheckpointError {
    let because = format!("hidden size {} and {} streams", model.hidden, model.hc);
    wrong_shape_for(located, expected, &because)
}

/// The tensor must have a shape; `because` says what that follows from.
pub(super) fn check_shape_for(
    located: &Located,
    expected: &[usize],
    because: &str,
) -> Result<(), CheckpointError> {
    if located.shape == expected {
        Ok(())
    } else {
        Err(wrong_shape_for(located, expected, because))
    }
}

fn wrong_shape_for(located: &Located, expected: &[usize], because: &str) -> CheckpointError {
    CheckpointError::WrongShape {
        tensor: located.stored.clone(),
        file: located.file.clone(),
        found: shape_text(&located.shape),
        expected: shape_text(expected),
        because: format!(" for {because}"),
    }
}

/// The sentence of a tensor that holds NaN or infinities.
pub(super) fn refuse_nonfinite(
    values: &[f32],
    located: &Located,
    needed: &str,
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
        needed: needed.to_owned(),
    })
}

/// Feeds a tensor's official name, type, shape and values to a digest, the values as little-endian f32.
pub(super) fn feed<'a>(
    digest: &mut Sha256,
    name: &str,
    stored: &str,
    shape: &[usize],
    values: impl IntoIterator<Item = &'a f32>,
) {
    digest.update(format!("{name}\n{stored}\n{shape:?}\n"));
    let mut bytes = Vec::with_capacity(1 << 14);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
        if bytes.len() == 1 << 14 {
            digest.update(&bytes);
            bytes.clear();
        }
    }
    digest.update(&bytes);
}
