//! The shared expert: the one SwiGLU feed-forward network of a MoE layer that every token goes through.
//!
//! ```text
//! g = u·w1ᵀ      [T, inter]        gate
//! v = u·w3ᵀ      [T, inter]        up
//! h = silu(min(g, limit)) · min(max(v, −limit), limit)          silu(z) = z/(1 + exp(−z))
//! f = h·w2ᵀ      [T, d]            down
//! ```
//! with u `[T, d]`, w1 and w3 `[inter, d]`, w2 `[d, inter]`; a limit of infinity does not clamp. Only the gate's
//! upper side is clamped. Dimensionless but for u and f, which share their unit as far as the limit does not act.
//! Projections in the order of [`crate::dot`]; the same bits at every vector level and thread count. NaN propagates.
//! Source: the published model definition.

use ndarray::{Array2, ArrayView2, Zip};

use crate::{dot::Packed, kernel::Input, mix::sigmoid, simd::Level};

/// A shared expert, its weights widened once for all that goes through it.
pub struct Expert {
    gate: Packed,
    up: Packed,
    down: Packed,
    limit: f64,
}

/// The weights of an expert, as stored or dequantised.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    /// w1 `[inter, d]`.
    pub gate: ArrayView2<'a, f32>,
    /// w3 `[inter, d]`.
    pub up: ArrayView2<'a, f32>,
    /// w2 `[d, inter]`.
    pub down: ArrayView2<'a, f32>,
}

impl Expert {
    /// An expert with these weights, clamped at `limit`.
    ///
    /// # Panics
    /// If the weights' shapes do not belong together.
    #[must_use]
    pub fn new(weights: Weights<'_>, limit: f64) -> Self {
        let Weights { gate, up, down } = weights;
        assert_eq!(
            [up.dim(), (down.ncols(), down.nrows())],
            [gate.dim(); 2],
            "w1 and w3 must be [inter, d], w2 [d, inter]"
        );
        Self {
            gate: Packed::new(gate),
            up: Packed::new(up),
            down: Packed::new(down),
            limit,
        }
    }

    /// f of u; both `[T, d]`.
    ///
    /// # Panics
    /// If a row of u is not as long as one of w1.
    #[must_use]
    pub fn run(&self, level: Level, u: ArrayView2<f64>) -> Array2<f64> {
        self.forward(level, u)
    }

    /// The same of a u that f32 holds: the same bits as if it were widened first, and sooner.
    ///
    /// # Panics
    /// As [`Self::run`].
    #[must_use]
    pub fn run_f32(&self, level: Level, u: ArrayView2<f32>) -> Array2<f64> {
        self.forward(level, u)
    }

    fn forward<U: Input>(&self, level: Level, u: ArrayView2<U>) -> Array2<f64> {
        let mut hidden = self.gate.project(level, u);
        let up = self.up.project(level, u);
        Zip::from(&mut hidden)
            .and(&up)
            .par_for_each(|gate, &up| *gate = swiglu(*gate, up, self.limit));
        self.down.project(level, hidden.view())
    }
}

/// One unit of the hidden layer. Clamps by comparison: `f64::min` would turn NaN into the limit.
fn swiglu(gate: f64, up: f64, limit: f64) -> f64 {
    let gate = if gate > limit { limit } else { gate };
    let up = if up > limit { limit } else { up };
    let up = if up < -limit { -limit } else { up };
    gate * sigmoid(gate) * up
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    /// Values with 50 digits from Python's `decimal`, rounded to f64.
    #[test]
    fn units_against_decimal() {
        for (gate, up, limit, wanted) in [
            (0.0, 3.0, 10.0, 0.0),
            (1.0, 1.0, 10.0, 0.731_058_578_630_004_9),
            (-1.0, 2.0, 10.0, -0.537_882_842_739_990_2),
            (12.0, 1.0, 10.0, 9.999_546_021_312_975),
            (12.0, 1.0, f64::INFINITY, 11.999_926_269_904_773),
            (-12.0, 1.0, 10.0, -7.373_009_522_657_661e-5),
            (10.0, -11.0, 10.0, -99.995_460_213_129_76),
        ] {
            let got = swiglu(gate, up, limit);
            assert!(
                (got - wanted).abs() <= 4.0 * f64::EPSILON * wanted.abs(),
                "{gate} {up} {limit}: {got} instead of {wanted}"
            );
        }
    }

    #[test]
    fn nan_is_not_clamped_away() {
        assert!(swiglu(f64::NAN, 1.0, 10.0).is_nan());
        assert!(swiglu(1.0, f64::NAN, 10.0).is_nan());
        assert_eq!(swiglu(1.0, 0.0, f64::INFINITY), 0.0);
    }

    /// u = (1, 2, −½): g = (1, −1), v = (2, −2), h = (2·silu(1), −2·silu(−1)), each product followed by hand.
    #[test]
    fn a_worked_example() {
        let gate = array![[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]];
        let up = array![[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]];
        let down = array![[1.0, 0.0], [0.0, 4.0], [0.5, 0.5]];
        let expert = Expert::new(
            Weights {
                gate: gate.view(),
                up: up.view(),
                down: down.view(),
            },
            10.0,
        );
        let f = expert.run(Level::detect(), array![[1.0, 2.0, -0.5]].view());
        for (got, wanted) in f
            .iter()
            .zip([1.462_117_157_260_01, 2.151_531_370_959_961, 1.0])
        {
            assert!((got - wanted).abs() <= 1e-15, "{got} instead of {wanted}");
        }
    }

    #[test]
    fn every_level_and_batch_gives_the_same_bits() {
        let fill = |rows: usize, columns: usize, step: f64| {
            Array2::from_shape_fn((rows, columns), |(row, column)| {
                ((row * columns + column) as f64 * step).sin()
            })
        };
        let weights = |rows, columns, step| fill(rows, columns, step).mapv(|value| value as f32);
        let (gate, up, down) = (
            weights(9, 130, 0.7),
            weights(9, 130, 1.3),
            weights(130, 9, 2.1),
        );
        let expert = Expert::new(
            Weights {
                gate: gate.view(),
                up: up.view(),
                down: down.view(),
            },
            2.0,
        );
        let u = fill(11, 130, 0.37).mapv(|value| value as f32);
        let narrow = u.view();
        let u = u.mapv(f64::from);
        let whole = expert.run(Level::Portable, u.view());
        for level in [Level::Avx2, Level::Avx512] {
            assert_eq!(expert.run(level, u.view()), whole, "{level}");
            assert_eq!(expert.run_f32(level, narrow), whole, "{level}");
        }
        let alone = expert.run(Level::detect(), u.slice(ndarray::s![7..8, ..]));
        assert_eq!(alone.row(0), whole.row(7));
    }
}
