//! The mixing against two oracles that are not our code: 50 decimal digits, and another project's reference.
//!
//! `data/golden.safetensors` is written by `golden.py`, `data/captured.safetensors` by `captured.py`; both
//! scripts stand beside this file and say how to run them.

use std::path::Path;

use ndarray::{Array1, Array2, ArrayView2};
use safetensors::{Dtype, SafeTensors};
use ulpdrift_reference::{
    certify::{Rows, certify},
    dot::dot,
    mix::{self, Split, SplitParams, mixes, split_sinkhorn},
    simd::Level,
    squares::squares,
};

fn rms_factor(x: ArrayView2<f32>, norm_eps: f64) -> Array1<f64> {
    let squares = squares(Level::detect(), x);
    mix::rms_factor(squares.view(), x.ncols(), norm_eps)
}

fn collapse(pre: ArrayView2<f64>, x: ArrayView2<f32>) -> Array2<f64> {
    let y = mix::collapse(Level::detect(), pre, x);
    for level in Level::ALL {
        assert_eq!(mix::collapse(level, pre, x), y, "{level}");
    }
    y
}

/// A recorded file, held whole.
struct Recorded(Vec<u8>);

impl Recorded {
    fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name);
        Self(std::fs::read(path).expect("the recorded file is part of the repository"))
    }

    /// A tensor as a matrix in f64 (exact for BF16, F32 and F64); a vector becomes one row.
    fn f64(&self, name: &str) -> Array2<f64> {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let tensor = file.tensor(name).expect("the tensor is in the file");
        let values: Vec<f64> = match tensor.dtype() {
            Dtype::BF16 => {
                let wide =
                    |bytes: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                tensor
                    .data()
                    .as_chunks()
                    .0
                    .iter()
                    .map(|bytes| f64::from(wide(bytes)))
                    .collect()
            }
            Dtype::F32 => tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                .collect(),
            Dtype::F64 => tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f64::from_le_bytes(*bytes))
                .collect(),
            other => panic!("no test tensor is {other}"),
        };
        let columns = *tensor.shape().last().expect("no test tensor is a scalar");
        Array2::from_shape_vec((values.len() / columns, columns), values)
            .expect("a whole number of rows")
    }

    fn f32(&self, name: &str) -> Array2<f32> {
        self.f64(name).mapv(|value| value as f32)
    }

    fn split(&self, case: &str, params: &SplitParams) -> Split {
        split_sinkhorn(self.f64(&format!("{case}.mixes")).view(), params)
    }

    fn params(&self, case: &str) -> SplitParams {
        let constants = self.f64(&format!("{case}.constants"));
        SplitParams {
            hc: constants[[0, 0]] as usize,
            iters: constants[[0, 1]] as u32,
            eps: constants[[0, 2]],
            ..self.site_params(case)
        }
    }

    /// The site's own scale and base, with the constants of the captured checkpoint.
    fn site_params(&self, site: &str) -> SplitParams {
        let scale = self.f64(&format!("{site}.scale"));
        SplitParams {
            hc: 4,
            scale: [scale[[0, 0]], scale[[0, 1]], scale[[0, 2]]],
            base: self.f64(&format!("{site}.base")).into_iter().collect(),
            iters: 20,
            eps: 1e-6,
        }
    }
}

/// Fails unless `|got − expected| ≤ limit·|expected|` everywhere; a NaN fails.
fn assert_close(what: &str, got: &Array2<f64>, expected: &Array2<f64>, limit: f64) {
    assert_eq!(got.dim(), expected.dim(), "{what}: shape");
    for ((place, got), expected) in got.indexed_iter().zip(expected) {
        let close = (got - expected).abs() <= limit * expected.abs();
        assert!(
            close,
            "{what} at {place:?}: got {got:e}, expected {expected:e}"
        );
    }
}

/// Fails unless `max|got − expected| ≤ limit·max|expected|`, for tensors whose small elements cancel.
fn assert_close_to_scale(what: &str, got: &Array2<f64>, expected: &Array2<f64>, limit: f64) {
    assert_eq!(got.dim(), expected.dim(), "{what}: shape");
    let scale = expected
        .iter()
        .fold(0.0, |most: f64, value| most.max(value.abs()));
    for ((place, got), expected) in got.indexed_iter().zip(expected) {
        let close = (got - expected).abs() <= limit * scale;
        assert!(
            close,
            "{what} at {place:?}: got {got:e}, expected {expected:e}"
        );
    }
}

#[test]
fn split_agrees_with_fifty_digits() {
    let golden = Recorded::open("golden.safetensors");
    for case in ["flash", "hostile", "three-streams", "one-iteration"] {
        let split = golden.split(case, &golden.params(case));
        for (part, got) in [
            ("pre", &split.pre),
            ("post", &split.post),
            ("comb", &split.comb),
        ] {
            assert_close(
                &format!("{case}.{part}"),
                got,
                &golden.f64(&format!("{case}.{part}")),
                2e-14,
            );
        }
    }
}

/// The stages around the projection, from the recorded inputs.
struct Stages(Vec<(&'static str, Array2<f64>)>);

impl Stages {
    fn compute(golden: &Recorded, level: Level) -> Self {
        let (x, weights) = (golden.f32("projection.x"), golden.f32("projection.fn"));
        let product = dot(level, x.view(), weights.view());
        let factor = rms_factor(x.view(), 1e-6);
        let mixed = mixes(product.view(), factor.view());
        let y = collapse(golden.f64("projection.pre").view(), x.view());
        let factor = factor.insert_axis(ndarray::Axis(0));
        Self(vec![
            ("r", factor),
            ("dot", product),
            ("mixes", mixed),
            ("y", y),
        ])
    }
}

#[test]
fn projection_and_collapse_agree_with_fifty_digits() {
    let golden = Recorded::open("golden.safetensors");
    for (name, got) in Stages::compute(&golden, Level::detect()).0 {
        let expected = golden.f64(&format!("projection.{name}"));
        // Row by row: the hostile rows differ by 41 decades, and one scale would hide the small ones.
        for (got, expected) in got.rows().into_iter().zip(expected.rows()) {
            let row = |row: ndarray::ArrayView1<f64>| row.to_owned().insert_axis(ndarray::Axis(0));
            assert_close_to_scale(name, &row(got), &row(expected), 1e-15);
        }
    }
}

#[test]
fn projection_and_collapse_keep_the_documented_order() {
    let golden = Recorded::open("golden.safetensors");
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        for (name, got) in Stages::compute(&golden, level).0 {
            let expected = golden.f64(&format!("projection.{name}_ordered"));
            assert_eq!(
                got.mapv(f64::to_bits),
                expected.mapv(f64::to_bits),
                "{name} at {level}"
            );
        }
    }
}

#[test]
fn split_gives_the_recorded_bits() {
    let golden = Recorded::open("golden.safetensors");
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for case in ["flash", "hostile", "three-streams", "one-iteration"] {
        let split = golden.split(case, &golden.params(case));
        for value in split.pre.iter().chain(&split.post).chain(&split.comb) {
            digest = (digest ^ value.to_bits()).wrapping_mul(0x0100_0000_01b3);
        }
    }
    // Recorded from this code: it moves only if the order of operations or libm's exp does.
    assert_eq!(digest, 0xb82e_df1c_53cd_5614, "{digest:#018x}");
}

#[test]
fn every_stage_agrees_with_the_captured_reference() {
    let captured = Recorded::open("captured.safetensors");
    for site in ["attn", "ffn"] {
        let stage = |name: &str| captured.f64(&format!("{site}.{name}"));
        let (x, weights) = (
            captured.f32(&format!("{site}.x")),
            captured.f32(&format!("{site}.fn")),
        );
        let product = dot(Level::detect(), x.view(), weights.view());
        let mixed = mixes(product.view(), rms_factor(x.view(), 1e-6).view());
        let split = split_sinkhorn(mixed.view(), &captured.site_params(site));
        let y = collapse(split.pre.view(), x.view());
        for (name, got) in [
            ("mixes", &mixed),
            ("pre", &split.pre),
            ("post", &split.post),
            ("comb", &split.comb),
            ("y", &y),
        ] {
            assert_close_to_scale(&format!("{site}.{name}"), got, &stage(name), 1e-12);
        }
        let level = Level::detect();
        let (x_squares, w_squares) = (squares(level, x.view()), squares(level, weights.view()));
        let certificate = certify(
            level,
            Rows {
                values: x.view(),
                squares: x_squares.view(),
            },
            Rows {
                values: weights.view(),
                squares: w_squares.view(),
            },
            product.view(),
        );
        assert_eq!(certificate.checked, 64);
        assert!(certificate.max_rel_to_scale <= 1e-15, "{certificate:?}");
    }
}
