//! A tensor of plain floats, read whole: its type, its shape and its values are checked here.

use sha2::Digest;

use super::{
    Checkpoint, CheckpointError, Digests, Model, NonFinite, StoredType, error::shape_text,
    locate::Located,
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

/// A group of tensors being read whole, whose digests are noted.
pub(super) struct Reading<'a> {
    checkpoint: &'a Checkpoint,
    /// Where, for a sentence that ends in "needed at".
    needed: String,
    nonfinite: NonFinite,
    digests: Digests,
}

impl<'a> Reading<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, needed: String, nonfinite: NonFinite) -> Self {
        Self {
            checkpoint,
            needed,
            nonfinite,
            digests: Digests::default(),
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
        self.digests
            .add(name, &located.dtype, &located.shape, |digest| {
                digest.update(&bytes);
            });
        Ok(bytes)
    }

    /// The values of a tensor of plain floats, exactly as stored.
    pub(super) fn plain(
        &mut self,
        located: &Located,
        name: &str,
    ) -> Result<Vec<f32>, CheckpointError> {
        let Values { values, stored } =
            read(self.checkpoint, located, &self.needed, self.nonfinite)?;
        add_values(
            &mut self.digests,
            name,
            stored.name(),
            &located.shape,
            &values,
        );
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

    /// The digests of all that was read.
    pub(super) fn digests(self) -> Digests {
        self.digests
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
        expected: format!("{} for {because}", shape_text(expected)),
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

/// Adds the digest of a tensor of plain floats, which enter it as little-endian f32: for F32 these are the stored bytes.
pub(super) fn add_values<'a>(
    digests: &mut Digests,
    name: &str,
    stored: &str,
    shape: &[usize],
    values: impl IntoIterator<Item = &'a f32>,
) {
    digests.add(name, stored, shape, |digest| {
        let mut bytes = Vec::with_capacity(1 << 14);
        for value in values {
            bytes.extend_from_slice(&value.to_le_bytes());
            if bytes.len() == 1 << 14 {
                digest.update(&bytes);
                bytes.clear();
            }
        }
        digest.update(&bytes);
    });
}
