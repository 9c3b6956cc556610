//! The stored weights of one indexer layer, and the dimensions they imply.

use ndarray::ArrayView2;

/// The weights of one layer, as stored: f32 holds every storage format, block scales multiplied in.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Of the norm before attention, `[d]`; none where the hidden states have passed it already.
    pub attn_norm: Option<&'a [f32]>,
    /// `[R, d]`.
    pub wq_a: ArrayView2<'a, f32>,
    /// `[R]`.
    pub q_norm: &'a [f32],
    /// `[H·W, R]`.
    pub wq_b: ArrayView2<'a, f32>,
    /// `[H, d]`.
    pub weights_proj: ArrayView2<'a, f32>,
    /// `[2W, d]`.
    pub wkv: ArrayView2<'a, f32>,
    /// `[2W, d]`.
    pub wgate: ArrayView2<'a, f32>,
    /// Added to the gates by a token's place in its window, `[ratio, 2W]`.
    pub ape: ArrayView2<'a, f32>,
    /// `[W]`.
    pub k_norm: &'a [f32],
    /// Of every norm (`rms_norm_eps`), as its decimal value.
    pub norm_eps: f64,
}

/// What the weights' shapes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Width of the hidden states, d.
    pub hidden: usize,
    /// Width of the query's latent, R.
    pub rank: usize,
    /// Index heads, H.
    pub heads: usize,
    /// Width of a head and of a key, W.
    pub width: usize,
    /// Tokens of a window.
    pub ratio: usize,
}

impl Weights<'_> {
    /// The dimensions.
    ///
    /// # Panics
    /// If the shapes do not belong together.
    #[must_use]
    pub fn dimensions(&self) -> Dimensions {
        let (rank, hidden) = self.wq_a.dim();
        let size = Dimensions {
            hidden,
            rank,
            heads: self.weights_proj.nrows(),
            width: self.k_norm.len(),
            ratio: self.ape.nrows(),
        };
        assert_eq!(
            [
                self.wq_b.dim(),
                self.weights_proj.dim(),
                self.wkv.dim(),
                self.wgate.dim(),
                self.ape.dim(),
            ],
            [
                (size.heads * size.width, rank),
                (size.heads, hidden),
                (2 * size.width, hidden),
                (2 * size.width, hidden),
                (size.ratio, 2 * size.width),
            ],
            "wq_b, weights_proj, wkv, wgate and ape must fit wq_a, k_norm and one another"
        );
        assert_eq!(self.q_norm.len(), rank, "q_norm must be as wide as wq_a");
        let norm = self.attn_norm.map_or(hidden, <[f32]>::len);
        assert_eq!(norm, hidden, "attn_norm must be as wide as the input");
        size
    }
}
