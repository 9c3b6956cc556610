//! A tensor of the inventory as the values that it stands for, to compare it with another checkpoint's.

use sha2::{Digest, Sha256};

use super::{
    Checkpoint, CheckpointError, Item, NonFinite, StoredType,
    locate::Located,
    matrix::{Accepted, Matrices},
    values::{self, Reading},
};

/// What a tensor holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The values, block scales multiplied in.
    Values(Vec<f32>),
    /// A digest of the bytes of a tensor that the tool does not decode, or that lacks its block scales.
    Bytes([u8; 32]),
}

impl Checkpoint {
    /// Whether a tensor of the inventory is the block scales of another one, which [`Self::content`] multiplies in.
    #[must_use]
    pub fn is_scale(&self, item: &Item) -> bool {
        let stem = item.official.strip_suffix(".scale");
        stem.is_some_and(|stem| self.tensor(&format!("{stem}.weight")).is_some())
    }

    /// Reads a tensor of the inventory; NaN and infinities are taken as they are.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or its block scales are none.
    pub fn content(&self, item: &Item) -> Result<Content, CheckpointError> {
        let Some(located) = self.tensor(&item.official) else {
            return Ok(Content::Values(Vec::new()));
        };
        match StoredType::from_name(&located.dtype) {
            Some(StoredType::F8E4M3) => self.dequantised(item, located),
            Some(StoredType::F8E8M0) | None => self.hashed(located),
            Some(_) => {
                let read = values::read(self, located, "a comparison", NonFinite::Allow)?;
                Ok(Content::Values(read.values))
            }
        }
    }

    fn dequantised(&self, item: &Item, located: &Located) -> Result<Content, CheckpointError> {
        let stem = item.official.strip_suffix(".weight");
        let scaled = stem.filter(|stem| self.tensor(&format!("{stem}.scale")).is_some());
        let (Some(stem), &[rows, columns]) = (scaled, &located.shape[..]) else {
            return self.hashed(located);
        };
        let absent = |name: &str| CheckpointError::Lacking {
            spec: self.source.clone(),
            missing: name.to_owned(),
            needed: "a comparison".to_owned(),
            advice: "complete the checkpoint",
        };
        let matrices = Matrices {
            checkpoint: self,
            accepted: Accepted::UpToFp8,
            absent: &absent,
            advice: "convert it",
        };
        let matrix = matrices.find(stem.to_owned(), [rows, columns], "its own shape")?;
        let mut reading = Reading::new(self, "a comparison".to_owned(), NonFinite::Allow);
        let values = matrix.read(&mut reading)?.values;
        Ok(Content::Values(values.into_iter().collect()))
    }

    fn hashed(&self, located: &Located) -> Result<Content, CheckpointError> {
        let mut digest = Sha256::new();
        self.visit(located, &mut Vec::new(), |bytes| digest.update(bytes))?;
        Ok(Content::Bytes(digest.finalize().into()))
    }
}
