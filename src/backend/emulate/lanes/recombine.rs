//! The streams after the sublayer, one token.

use ulpdrift_reference::simd::Level;

use super::{Task, Vector, run};
use crate::{
    format::{Rounding, bf16},
    recipe::{Contraction, Recombine, RecombineOrder, Storage},
};

/// One token's operands, hc streams of d columns: post and comb as they multiply.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    /// Streams `[hc·d]`.
    pub x: &'a [f32],
    /// The sublayer's output `[d]`.
    pub f: &'a [f32],
    /// `[hc]`.
    pub post: &'a [f32],
    /// `[hc·hc]`, row-major.
    pub comb: &'a [f32],
}

/// `next[k·d + c] = post[k]·f[c] + Σ_j comb[j·hc + k]·x[j·d + c]`, in the order of `recombine`.
pub fn recombine(level: Level, recombine: Recombine, token: Token<'_>, next: &mut [f32]) {
    let streams = Streams {
        recombine,
        token,
        next,
    };
    run(level, streams);
}

/// Elements of a stream at a time.
const STRETCH: usize = 1024;

struct Streams<'a> {
    recombine: Recombine,
    token: Token<'a>,
    next: &'a mut [f32],
}

impl Task for Streams<'_> {
    type Output = ();

    /// Plain loops over stretches that stay in cache: the compiler makes vectors of them.
    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        let width = self.token.f.len();
        for first in (0..width).step_by(STRETCH) {
            for (k, stream) in self.next.chunks_mut(width).enumerate() {
                let last = (first + STRETCH).min(width);
                let output = Output {
                    recombine: self.recombine,
                    token: self.token,
                    k,
                    first,
                };
                output.fill(&mut stream[first..last]);
            }
        }
    }
}

/// The columns from `first` on of stream k of X'.
struct Output<'a> {
    recombine: Recombine,
    token: Token<'a>,
    k: usize,
    first: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn fill(&self, sums: &mut [f32]) {
        match self.recombine.order {
            RecombineOrder::PostFirst => {
                self.start_with(self.spread(), sums);
                for j in 0..self.token.post.len() {
                    self.add(self.stream(j), sums);
                }
            }
            RecombineOrder::StreamFirst => {
                self.start_with(self.stream(0), sums);
                self.add(self.spread(), sums);
                for j in 1..self.token.post.len() {
                    self.add(self.stream(j), sums);
                }
            }
            RecombineOrder::Apart { terms } => {
                self.start_with(self.stream(0), sums);
                for j in 1..self.token.post.len() {
                    self.add(self.stream(j), sums);
                }
                self.join(terms, sums);
            }
        }
    }

    /// post·f.
    #[inline(always)]
    fn spread(&self) -> Product<'_> {
        Product {
            weight: self.token.post[self.k],
            values: &self.token.f[self.first..],
        }
    }

    /// comb·X of stream j: row j of comb, column k.
    #[inline(always)]
    fn stream(&self, j: usize) -> Product<'_> {
        let (hc, width) = (self.token.post.len(), self.token.f.len());
        Product {
            weight: self.token.comb[j * hc + self.k],
            values: &self.token.x[j * width + self.first..],
        }
    }

    #[inline(always)]
    fn start_with(&self, product: Product<'_>, sums: &mut [f32]) {
        for (sum, value) in sums.iter_mut().zip(product.values) {
            *sum = product.weight * value;
        }
    }

    #[inline(always)]
    fn add(&self, product: Product<'_>, sums: &mut [f32]) {
        let terms = sums.iter_mut().zip(product.values);
        match self.recombine.contraction {
            Contraction::Fma => {
                for (sum, value) in terms {
                    *sum = value.mul_add(product.weight, *sum);
                }
            }
            Contraction::MulAdd => {
                for (sum, value) in terms {
                    *sum += product.weight * value;
                }
            }
        }
    }

    /// Adds post·f to the sum over the streams, each stored first.
    #[inline(always)]
    fn join(&self, storage: Storage, sums: &mut [f32]) {
        let Product { weight, values } = self.spread();
        let terms = sums.iter_mut().zip(values);
        match storage {
            Storage::F32 => {
                for (sum, value) in terms {
                    *sum += weight * value;
                }
            }
            Storage::Bf16 => {
                for (sum, value) in terms {
                    *sum = round(weight * value) + round(*sum);
                }
            }
        }
    }
}

/// A weight and what it multiplies.
#[derive(Clone, Copy)]
struct Product<'a> {
    weight: f32,
    values: &'a [f32],
}

#[inline(always)]
fn round(value: f32) -> f32 {
    bf16::round_f32(value, Rounding::NearestEven)
}
