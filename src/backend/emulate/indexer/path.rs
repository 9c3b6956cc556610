//! From projections to what multiplies, under a recipe: norm, rope, rotation, quantiser and the head weights.

use ndarray::{Array2, ArrayView2, Axis};
use rayon::prelude::*;

use super::{
    super::store,
    Geometry, Projected, hadamard,
    norm::norm_rows,
    rope::{self, Turn},
};
use crate::recipe::{
    Storage,
    indexer::{Fold, IndexRecipe, Operands, QueryOperands},
};

/// Keys that a thread takes at a time: those whose norms run side by side.
const KEYS: usize = 8;

/// What the steps behind the projections share.
#[derive(Clone, Copy, Debug)]
pub struct IndexPath<'a> {
    /// The recipe.
    pub recipe: &'a IndexRecipe,
    /// Radians per position of every pair of channels that rope turns.
    pub frequencies: &'a [f64],
    /// ε inside the root of the norms.
    pub norm_eps: f64,
    /// Where rope turns.
    pub geometry: Geometry,
}

impl IndexPath<'_> {
    /// q behind rope [Q·H, W], as the recipe stores it: what the truth's q compares with.
    ///
    /// # Panics
    /// Rope turns more channels than there are.
    #[must_use]
    pub fn queries(&self, projected: &Projected, positions: &[usize]) -> Array2<f32> {
        let mut q = projected.q.as_standard_layout().into_owned();
        let width = q.ncols();
        let half = self.geometry.rope_half;
        if let Some(values) = q.as_slice_mut() {
            rope::rotate(values, width, positions, self.frequencies, half);
            store(values, self.recipe.query.roped);
        }
        q
    }

    /// What multiplies of q behind rope, and the head weights with everything the recipe folds into them.
    ///
    /// # Panics
    /// The recipe rotates, and W is not a power of two.
    #[must_use]
    pub fn query_operands(
        &self,
        mut q: Array2<f32>,
        weights: ArrayView2<'_, f32>,
    ) -> QueryOperands {
        let path = &self.recipe.query;
        let width = q.ncols();
        rotate(&mut q, path.hadamard, path.rotated);
        let q = path.format.quantise(q);
        let mut weights = weights.as_standard_layout().into_owned();
        let heads = weights.ncols();
        let scales = q.row_scales(self.recipe.unit);
        for (row, weight) in weights.iter_mut().enumerate() {
            let scale = scales.map(|scales| scales[row]);
            *weight = self.folded(*weight, scale, width, heads);
        }
        let stored = self.recipe.weights.stored;
        store(weights.as_slice_mut().unwrap_or_default(), stored);
        QueryOperands { q, weights }
    }

    /// A head weight with its constants and, where a head has one, the query's scale.
    fn folded(&self, weight: f32, scale: Option<f32>, width: usize, heads: usize) -> f32 {
        let [per_width, per_head] = [width, heads].map(|count| 1.0 / (count as f64).sqrt());
        let scaled = |weight: f32| scale.map_or(weight, |scale| weight * scale);
        match self.recipe.weights.fold {
            Fold::ConstantFirst => scaled(weight * (per_width * per_head) as f32),
            Fold::ScaleFirst => scaled(weight) * per_width as f32 * per_head as f32,
            Fold::Split => scaled(weight * per_head as f32),
        }
    }

    /// k behind rope [N, W], as the recipe stores it, of pooled keys [N, W] of which the first is key `first`: what
    /// the truth's k compares with.
    ///
    /// # Panics
    /// `k_norm` is not W long, or rope turns more channels than there are.
    #[must_use]
    pub fn keys(&self, pooled: Array2<f32>, first: usize, k_norm: &[f32]) -> Array2<f32> {
        let path = &self.recipe.key;
        let width = pooled.ncols();
        assert_eq!(k_norm.len(), width, "one weight per channel");
        assert!(
            2 * self.frequencies.len() <= width,
            "rope turns channels of a key"
        );
        let mut keys = match pooled.is_standard_layout() {
            true => pooled,
            false => pooled.as_standard_layout().into_owned(),
        };
        let (stride, half) = (self.geometry.rope_stride, self.geometry.rope_half);
        keys.axis_chunks_iter_mut(Axis(0), KEYS)
            .into_par_iter()
            .enumerate()
            .for_each(|(chunk, mut keys)| {
                let values = keys.as_slice_mut().unwrap_or_default();
                store(values, path.pooled);
                norm_rows(values, k_norm, self.norm_eps as f32);
                store(values, path.normed);
                for (index, key) in values.chunks_mut(width.max(1)).enumerate() {
                    let position = stride * (first + chunk * KEYS + index);
                    let turns: Vec<Turn> = rope::turns(position, self.frequencies).collect();
                    rope::turn(key, &turns, half);
                }
                store(values, path.roped);
            });
        keys
    }

    /// What multiplies of k behind rope.
    ///
    /// # Panics
    /// The recipe rotates, and W is not a power of two.
    #[must_use]
    pub fn key_operands(&self, mut k: Array2<f32>) -> Operands {
        let path = &self.recipe.key;
        rotate(&mut k, path.hadamard, path.rotated);
        path.format.quantise(k)
    }
}

/// The rotation of every row, if there is one, and the rounding behind it.
fn rotate(rows: &mut Array2<f32>, hadamard: bool, rotated: Storage) {
    rows.axis_chunks_iter_mut(Axis(0), KEYS)
        .into_par_iter()
        .for_each(|mut rows| {
            for mut row in rows.rows_mut() {
                let row = row.as_slice_mut().unwrap_or_default();
                if hadamard {
                    hadamard::rotate(row);
                }
                store(row, rotated);
            }
        });
}
