//! Operands that aim at the terms of an interval: for every format the numbers it holds, and nothing else.

use ndarray::{Array2, s};

use crate::{
    format::{Format, Rounding},
    recipe::indexer::{
        IndexRecipe, Quantiser, ScaleFormat,
        operands::{Operands, QueryOperands},
    },
};

/// A small generator of its own.
pub struct Noise(pub u64);

impl Noise {
    pub fn bits(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// In 0..count.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn uniform(&mut self) -> f64 {
        self.bits() as f64 / 2_147_483_648.0
    }

    pub fn sign(&mut self) -> f64 {
        if self.bits() & 4096 == 0 { 1.0 } else { -1.0 }
    }

    /// Roughly normal, variance 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// How operands are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    Normal,
    Positive,
    Wide,
    Tiny,
    Huge,
    AllEqual,
    PowersOfTwo,
    Cancelling,
    OneLarge,
    Largest,
    Sparse,
    Descending,
    /// Positive, sums among fp32's subnormals.
    Faint,
    /// Positive; one large product in 32, the others just below what alignment to it keeps.
    Undercut,
    /// Two large products that cancel behind a sum of many bits, which alignment to them cuts.
    Swallowing,
}

pub const CATEGORIES: [Category; 15] = [
    Category::Normal,
    Category::Positive,
    Category::Wide,
    Category::Tiny,
    Category::Huge,
    Category::AllEqual,
    Category::PowersOfTwo,
    Category::Cancelling,
    Category::OneLarge,
    Category::Largest,
    Category::Sparse,
    Category::Descending,
    Category::Faint,
    Category::Undercut,
    Category::Swallowing,
];

/// The exponents that a format reaches, fp32's bounded so that most products are numbers.
fn reach(format: Format) -> [i32; 2] {
    match format {
        Format::E2m1 => [-1, 2],
        Format::E4m3 => [-9, 8],
        Format::F16 => [-24, 15],
        _ => [-75, 62],
    }
}

impl Category {
    /// A value of `format`, number `k` of row `row`.
    fn value(self, format: Format, noise: &mut Noise, [row, k]: [usize; 2]) -> f32 {
        let [low, high] = reach(format);
        let scale = match format {
            Format::E4m3 => 150.0,
            Format::E2m1 => 2.0,
            _ => 1.0,
        };
        let power = |exponent: f64| 2.0_f64.powf(exponent.clamp(low.into(), f64::from(high) + 0.8));
        let (span, low) = (f64::from(high - low), f64::from(low));
        let value = match self {
            Self::Normal | Self::Cancelling | Self::Swallowing => noise.normal() * scale,
            Self::Positive => noise.normal().abs() * scale,
            Self::Wide => noise.sign() * power(low + span * noise.uniform()),
            Self::Tiny => noise.sign() * power(low + 3.0 * noise.uniform()),
            Self::Huge => noise.sign() * power(f64::from(high) + noise.uniform()),
            Self::AllEqual => scale,
            Self::PowersOfTwo => noise.sign() * power((low + span * noise.uniform()).round()),
            Self::OneLarge if k == 5 => noise.sign() * power(high.into()),
            Self::OneLarge => noise.normal() * scale / 16.0,
            Self::Largest => noise.sign() * power(f64::from(high) + 0.8),
            Self::Sparse if noise.below(8) > 0 => 0.0,
            Self::Sparse => noise.normal() * scale,
            Self::Descending => noise.sign() * power(f64::from(high) - span * k as f64 / 128.0),
            Self::Faint => power(low.max(-71.0) + 1.5 * noise.uniform()),
            Self::Undercut if k % 32 == 0 => power(8.0),
            Self::Undercut => {
                // Two of them are 2^(F+2) below the large one: F = 13, or 24 and 25.
                let below = if format == Format::E4m3 { 7.0 } else { 13.0 };
                let places = 1.0 - 2.0_f64.powi(-1 - format.fraction_bits());
                2.0 * places * power(8.0 - below - (row % 2) as f64)
            }
        };
        format.round_f64(value, Rounding::NearestEven)
    }
}

/// Sizes of a case.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub queries: usize,
    pub heads: usize,
    pub keys: usize,
    pub width: usize,
}

/// Operands as `recipe` multiplies them.
pub fn operands(
    recipe: &IndexRecipe,
    size: Size,
    [of_q, of_k]: [Category; 2],
    noise: &mut Noise,
) -> (QueryOperands, Operands) {
    let rows = size.queries * size.heads;
    let mut q = rows_of(recipe.query.format, [rows, size.width], of_q, noise);
    let mut keys = rows_of(recipe.key.format, [size.keys, size.width], of_k, noise);
    match of_q {
        Category::Cancelling => cancel(&mut q.values, &mut keys.values),
        Category::Swallowing => swallow(recipe, &mut q.values, &mut keys.values),
        _ => {}
    }
    let weight = |noise: &mut Noise| match of_k {
        Category::Positive | Category::Undercut | Category::Swallowing => 1.0,
        Category::Faint => 2.0_f64.powi(40),
        Category::Tiny => noise.normal() * 2.0_f64.powi(-20),
        Category::Wide => noise.sign() * 2.0_f64.powf(40.0 * (noise.uniform() - 0.5)),
        _ => noise.normal() / 8.0,
    };
    let stored = recipe.weights.stored.format();
    let weights = Array2::from_shape_simple_fn((size.queries, size.heads), || {
        stored.round_f64(weight(noise), Rounding::NearestEven)
    });
    (QueryOperands { q, weights }, keys)
}

fn rows_of(
    format: Quantiser,
    [rows, width]: [usize; 2],
    category: Category,
    noise: &mut Noise,
) -> Operands {
    let number = format.format();
    let values = Array2::from_shape_fn((rows, width), |(row, k)| {
        category.value(number, noise, [row, k])
    });
    let [block, power_of_two] = match format {
        Quantiser::E4m3 { block, scale, .. } => [block, usize::from(scale == ScaleFormat::Ue8m0)],
        _ => [32, 1],
    };
    let spread = match category {
        Category::Wide | Category::Descending => 40.0,
        _ => 4.0,
    };
    let scales = format.keeps_scales().then(|| {
        Array2::from_shape_simple_fn((rows, width.div_ceil(block)), || {
            let exponent = spread * (noise.uniform() - 0.5) - 6.0;
            match power_of_two {
                1 => 2.0_f32.powi(exponent as i32),
                _ => 2.0_f64.powf(exponent) as f32,
            }
        })
    });
    Operands { values, scales }
}

/// Makes the second half of every row of q undo the first, but for the last product.
fn cancel(q: &mut Array2<f32>, keys: &mut Array2<f32>) {
    let half = q.ncols() / 2;
    for k in 0..half {
        for mut row in q.rows_mut() {
            row[k + half] = -row[k];
        }
        for mut row in keys.rows_mut().into_iter().filter(|_| k + 1 < half) {
            row[k + half] = row[k];
        }
    }
}

/// Leaves of the second half two large products, which cancel.
fn swallow(recipe: &IndexRecipe, q: &mut Array2<f32>, keys: &mut Array2<f32>) {
    let half = q.ncols() / 2;
    let large = |format: Quantiser| match format.format() {
        Format::E2m1 => 4.0,
        Format::E4m3 => 256.0,
        _ => 1024.0,
    };
    for mut row in q.rows_mut() {
        row.slice_mut(s![half..]).fill(0.0);
        row[half] = large(recipe.query.format);
        row[half + 1] = -row[half];
    }
    for mut row in keys.rows_mut() {
        row[half] = large(recipe.key.format);
        row[half + 1] = row[half];
    }
}
