//! Rows of the token embedding. The tensor is the largest of all those of interest, a gigabyte in a real
//! checkpoint: only the rows asked for are read, or made.

use ndarray::{Array2, ArrayView2};
use sha2::Sha256;

use super::{
    Checkpoint, CheckpointError, NonFinite, StoredType,
    locate::{Located, Place},
    names::EMBEDDING,
    values,
};

/// What there is to be embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// How many tokens.
    pub tokens: usize,
    /// How their embeddings are stored.
    pub stored: StoredType,
}

impl Checkpoint {
    /// How many tokens the embedding has, and how it is stored; reads none of it.
    ///
    /// # Errors
    ///
    /// If there is no embedding, or it has another width or type.
    pub fn vocabulary(&self) -> Result<Vocabulary, CheckpointError> {
        let located = self
            .tensor(EMBEDDING)
            .ok_or_else(|| CheckpointError::Lacking {
                spec: self.source.clone(),
                missing: EMBEDDING.to_owned(),
                needed: "the chain's beginning".to_owned(),
                advice: "choose other --inputs, or complete the checkpoint",
            })?;
        let stored = values::plain_float(located)?;
        let tokens = located.shape.first().copied().unwrap_or(0);
        values::check_shape(&self.model, located, &[tokens, self.model.hidden])?;
        Ok(Vocabulary { tokens, stored })
    }

    /// Feeds the embeddings that were used to a digest, before all layers, as
    /// [`super::HcWeights::digest_update`] does the weights of a site.
    pub fn embedding_digest_update(&self, digest: &mut Sha256, rows: ArrayView2<'_, f32>) {
        let stored = self.tensor(EMBEDDING).map_or("", |located| &located.dtype);
        values::feed(digest, EMBEDDING, stored, rows.shape(), rows.iter());
    }

    /// The embeddings of the tokens `rows`, [rows, d], exactly as stored; `None` where the checkpoint has no
    /// embedding. A token may be asked for more than once.
    ///
    /// # Errors
    ///
    /// If there is no such row, the tensor has another width or type or cannot be read, or a row holds NaN or
    /// infinities and `nonfinite` refuses them.
    pub fn embedding(
        &self,
        rows: &[u64],
        nonfinite: NonFinite,
    ) -> Result<Option<Array2<f32>>, CheckpointError> {
        let Some(located) = self.tensor(EMBEDDING) else {
            return Ok(None);
        };
        let Vocabulary { tokens, stored } = self.vocabulary()?;
        let hidden = self.model.hidden;
        let mut result = Array2::zeros((rows.len(), hidden));
        let (mut bytes, mut decoded) = (vec![0; hidden * stored.bytes()], Vec::new());
        for (&row, mut result) in rows.iter().zip(result.rows_mut()) {
            if row >= tokens as u64 {
                return Err(CheckpointError::NoSuchRow {
                    tensor: located.stored.clone(),
                    file: located.file.clone(),
                    rows: tokens,
                    row,
                });
            }
            self.read_row(located, row, &mut bytes)?;
            decoded.clear();
            stored.decode_into(&bytes, &mut decoded);
            if nonfinite == NonFinite::Refuse {
                values::refuse_nonfinite(&decoded, located, &format!("token {row}"))?;
            }
            for (value, &decoded) in result.iter_mut().zip(&decoded) {
                *value = decoded;
            }
        }
        Ok(Some(result))
    }

    /// Fills `bytes` with a row of that many bytes.
    fn read_row(
        &self,
        located: &Located,
        row: u64,
        bytes: &mut [u8],
    ) -> Result<(), CheckpointError> {
        match (&located.place, &self.generator) {
            (Place::Synthetic(spec), Some(generator)) => {
                bytes.copy_from_slice(&generator.embedding_row(spec, row as usize));
                Ok(())
            }
            (Place::Shard(number), _) => {
                let shard = self.found.shards.get(*number);
                let entry = shard.and_then(|shard| shard.entries.get(&located.stored));
                match (shard, entry) {
                    (Some(shard), Some(entry)) => {
                        shard.read_at(&located.stored, entry, row * bytes.len() as u64, bytes)
                    }
                    // A place is made together with the shard that it names.
                    _ => Ok(()),
                }
            }
            // As above, with the generator.
            (Place::Synthetic(_), None) => Ok(()),
        }
    }
}
