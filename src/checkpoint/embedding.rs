//! Rows of the token embedding. The tensor is the largest of all those of interest, a gigabyte in a real
//! checkpoint: only the rows asked for are read, or made.

use ndarray::Array2;

use super::{
    Checkpoint, CheckpointError,
    locate::{Located, Place},
    names::EMBEDDING,
    values,
};

impl Checkpoint {
    /// The embeddings of the tokens `rows`, [rows, d], exactly as stored, be they finite or not; `None`
    /// where the checkpoint has no embedding. A token may be asked for more than once.
    ///
    /// # Errors
    ///
    /// If there is no such row, or the tensor has another width or type or cannot be read.
    pub fn embedding(&self, rows: &[u64]) -> Result<Option<Array2<f32>>, CheckpointError> {
        let Some(located) = self.tensor(EMBEDDING) else {
            return Ok(None);
        };
        let stored = values::plain_float(located)?;
        let vocabulary = located.shape.first().copied().unwrap_or(0);
        let hidden = self.model.hidden;
        values::check_shape(&self.model, located, &[vocabulary, hidden])?;
        let mut result = Array2::zeros((rows.len(), hidden));
        let (mut bytes, mut decoded) = (vec![0; hidden * stored.bytes()], Vec::new());
        for (&row, mut result) in rows.iter().zip(result.rows_mut()) {
            if row >= vocabulary as u64 {
                return Err(CheckpointError::NoSuchRow {
                    tensor: located.stored.clone(),
                    file: located.file.clone(),
                    rows: vocabulary,
                    row,
                });
            }
            self.read_row(located, row, &mut bytes)?;
            decoded.clear();
            stored.decode_into(&bytes, &mut decoded);
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
