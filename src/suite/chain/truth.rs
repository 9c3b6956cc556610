//! The chain in fp64: nothing is stored, nothing is rounded but fp64 itself.

use ndarray::{Array2, ArrayView2};
use ulpdrift_reference::{
    mix::{Split, mixes, rms_factor, split_sinkhorn},
    simd::Level,
    squares::squares64,
    streams,
};

use super::{
    Order,
    link::{Link, Start},
};
use crate::suite::case::Case;

/// The fp64 chain as far as it has come.
#[derive(Clone)]
pub struct Truth {
    level: Level,
    order: Order,
    /// X [T, hc·d].
    pub x: Array2<f64>,
    /// The gates of the collapse that comes next, where they are those of the site before [T, hc].
    pub carried: Array2<f64>,
}

/// What the fp64 chain had at one site, beside the streams that it left.
pub struct Passed {
    /// The layer input [T, d].
    pub y: Array2<f64>,
}

impl Truth {
    /// The chain before its first site.
    pub(in crate::suite) fn new(level: Level, start: &Start, order: Order) -> Self {
        Self {
            level,
            order,
            x: start.x.mapv(f64::from),
            carried: first_stream(start.x.nrows(), start.hc).mapv(f64::from),
        }
    }

    /// Goes through one site.
    pub fn pass(&mut self, link: &Link) -> Passed {
        let split = split_sinkhorn(self.mixes(&link.site).view(), &link.site.split_params());
        let y = self.collapse(self.gates(&split).view());
        self.leave(link, &y, split);
        Passed { y }
    }

    /// Goes from a site's layer input to the next site.
    pub fn leave(&mut self, link: &Link, y: &Array2<f64>, split: Split) {
        let f = link.sublayer(self.level, y.view());
        self.x = self.recombine(f.view(), &split);
        self.carried = split.pre;
    }

    /// Its vector instructions.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Whether the gates of the site before collapse.
    pub fn carries(&self) -> bool {
        self.order == Order::Delayed
    }

    /// The gates that collapse here, of a site that makes these.
    pub fn gates(&self, split: &Split) -> Array2<f64> {
        match self.order {
            Order::Own => split.pre.clone(),
            Order::Delayed => self.carried.clone(),
        }
    }

    /// The streams behind a sublayer that made f.
    pub fn recombine(&self, f: ArrayView2<'_, f64>, split: &Split) -> Array2<f64> {
        let (post, comb) = (split.post.view(), split.comb.view());
        streams::recombine(self.level, self.x.view(), f, post, comb)
    }

    /// The mixes of the streams as they are.
    pub fn mixes(&self, site: &Case) -> Array2<f64> {
        let dot = streams::project(self.level, self.x.view(), site.weights.function.view());
        let squares = squares64(self.level, self.x.view());
        let factor = rms_factor(squares.view(), self.x.ncols(), site.norm_eps);
        mixes(dot.view(), factor.view())
    }

    /// Collapses the streams as they are.
    pub fn collapse(&self, pre: ArrayView2<'_, f64>) -> Array2<f64> {
        streams::collapse(self.level, pre, self.x.view())
    }
}

/// Gates that take the first stream and no other [T, hc].
pub fn first_stream(tokens: usize, hc: usize) -> Array2<f32> {
    Array2::from_shape_fn((tokens, hc), |(_, stream)| f32::from(stream == 0))
}
