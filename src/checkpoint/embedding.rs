//! Rows of the token embedding. The tensor is the largest of all those of interest, a gigabyte in a real
//! checkpoint: only the rows asked for are read, or made. A fetched checkpoint may have some of the rows only:
//! `embed.weight.rows`, of the tokens `embed.weight.row_ids` out of `embed.weight.tokens`.

use std::collections::BTreeSet;

use ndarray::{Array2, ArrayView2};

use super::{
    Checkpoint, CheckpointError, Digests, NonFinite, StoredType,
    locate::{Located, Place},
    names::{EMBEDDING, IDS_SUFFIX, ROWS_SUFFIX, TOKENS_SUFFIX},
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

/// The embedding, as far as it is there.
struct Embedding<'a> {
    located: &'a Located,
    /// How many tokens the whole has.
    tokens: usize,
    /// The tokens whose rows are there, ascending; all of them where there is no list.
    ids: Option<Vec<u64>>,
}

impl Embedding<'_> {
    /// Which row of the tensor is a token's.
    fn row(&self, token: u64) -> Option<u64> {
        match &self.ids {
            None => Some(token),
            Some(ids) => ids.binary_search(&token).ok().map(|row| row as u64),
        }
    }
}

impl Checkpoint {
    /// How many tokens the embedding has, and how it is stored; reads none of it.
    ///
    /// # Errors
    ///
    /// If there is no embedding, or it has another width or type.
    pub fn vocabulary(&self) -> Result<Vocabulary, CheckpointError> {
        let embedding = self
            .embedding_there()?
            .ok_or_else(|| CheckpointError::Lacking {
                spec: self.source.clone(),
                missing: EMBEDDING.to_owned(),
                needed: "the chain's beginning".to_owned(),
                advice: "choose other --inputs, or complete the checkpoint",
            })?;
        Ok(Vocabulary {
            tokens: embedding.tokens,
            stored: self.check_embedding(&embedding)?,
        })
    }

    /// The type of the embedding, if it has the width of this model.
    fn check_embedding(&self, embedding: &Embedding<'_>) -> Result<StoredType, CheckpointError> {
        let located = embedding.located;
        let stored = values::plain_float(located)?;
        let rows = located.shape.first().copied().unwrap_or(0);
        values::check_shape(&self.model, located, &[rows, self.model.hidden])?;
        Ok(stored)
    }

    /// The tensor of the embedding, or of some of its rows.
    fn embedding_tensor(&self) -> Option<&Located> {
        let rows = format!("{EMBEDDING}{ROWS_SUFFIX}");
        self.tensor(EMBEDDING).or_else(|| self.tensor(&rows))
    }

    /// The embedding, or what there is of it.
    fn embedding_there(&self) -> Result<Option<Embedding<'_>>, CheckpointError> {
        let Some(located) = self.embedding_tensor() else {
            return Ok(None);
        };
        let rows = located.shape.first().copied().unwrap_or(0);
        if self.tensor(EMBEDDING).is_some() {
            return Ok(Some(Embedding {
                located,
                tokens: rows,
                ids: None,
            }));
        }
        let ids = self.whole_numbers(IDS_SUFFIX)?;
        let tokens = self.whole_numbers(TOKENS_SUFFIX)?;
        match tokens[..] {
            [tokens] if ids.len() == rows && ids.is_sorted_by(|a, b| a < b) && ids.last() < Some(&tokens) => {
                Ok(Some(Embedding {
                    located,
                    tokens: tokens as usize,
                    ids: Some(ids),
                }))
            }
            _ => Err(CheckpointError::Unsupported {
                tensor: located.stored.clone(),
                found: format!("has {rows} rows, but {IDS_SUFFIX} and {TOKENS_SUFFIX} beside it do not say of which tokens"),
                expected: "expected as many ascending ids, and a number above them: fetch the checkpoint again".to_owned(),
            }),
        }
    }

    /// The values of one of the tensors beside the rows; none if it is not there or of another type.
    fn whole_numbers(&self, suffix: &str) -> Result<Vec<u64>, CheckpointError> {
        let mut bytes = Vec::new();
        if let Some(located) = self.tensor(&format!("{EMBEDDING}{suffix}"))
            && located.dtype == "I64"
        {
            self.visit(located, &mut Vec::new(), |piece| {
                bytes.extend_from_slice(piece);
            })?;
        }
        let values = bytes.as_chunks::<8>().0.iter();
        Ok(values.map(|value| u64::from_le_bytes(*value)).collect())
    }

    /// Whether the embeddings of these tokens are there; reads none of them.
    ///
    /// # Errors
    ///
    /// If one of them is not, naming all those that are missing, or there is no embedding.
    pub fn check_embeddings(&self, tokens: &[u64]) -> Result<(), CheckpointError> {
        match self.embedding_there()? {
            Some(embedding) => self.require_rows(&embedding, tokens),
            None => self.vocabulary().map(drop),
        }
    }

    /// Notes that embeddings were read: `rows`, which `seed` has drawn.
    pub fn add_embedding_digest(
        &self,
        digests: &mut Digests,
        seed: u64,
        rows: ArrayView2<'_, f32>,
    ) {
        let stored = self.embedding_tensor().map_or("", |located| &located.dtype);
        let name = format!("{EMBEDDING} of seed {seed}");
        values::add_values(digests, &name, stored, rows.shape(), rows.iter());
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
        let Some(embedding) = self.embedding_there()? else {
            return Ok(None);
        };
        let stored = self.check_embedding(&embedding)?;
        self.require_rows(&embedding, rows)?;
        let (located, hidden) = (embedding.located, self.model.hidden);
        let mut result = Array2::zeros((rows.len(), hidden));
        let (mut bytes, mut decoded) = (vec![0; hidden * stored.bytes()], Vec::new());
        for (&token, mut result) in rows.iter().zip(result.rows_mut()) {
            let row = embedding.row(token).unwrap_or_default();
            self.read_row(located, row, &mut bytes)?;
            decoded.clear();
            stored.decode_into(&bytes, &mut decoded);
            if nonfinite == NonFinite::Refuse {
                values::refuse_nonfinite(&decoded, located, &format!("token {token}"))?;
            }
            for (value, &decoded) in result.iter_mut().zip(&decoded) {
                *value = decoded;
            }
        }
        Ok(Some(result))
    }

    /// The tokens must be of the vocabulary, and their rows here: if not, all those that are missing are named.
    fn require_rows(
        &self,
        embedding: &Embedding<'_>,
        tokens: &[u64],
    ) -> Result<(), CheckpointError> {
        let located = embedding.located;
        if let Some(&row) = tokens
            .iter()
            .find(|&&token| token >= embedding.tokens as u64)
        {
            return Err(CheckpointError::NoSuchRow {
                tensor: located.stored.clone(),
                file: located.file.clone(),
                rows: embedding.tokens,
                row,
            });
        }
        let absent: BTreeSet<u64> = tokens
            .iter()
            .copied()
            .filter(|&token| embedding.row(token).is_none())
            .collect();
        if absent.is_empty() {
            return Ok(());
        }
        let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
        Err(CheckpointError::RowsAbsent {
            spec: self.source.clone(),
            absent: absent.join(","),
        })
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
