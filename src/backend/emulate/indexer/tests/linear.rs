use ndarray::{Array1, s};

use super::{super::*, *};
use crate::{
    backend::BackendError,
    format::{e4m3, ue8m0},
    recipe::indexer::fp8_instruction,
};

/// An FP8 weight by a rule of codes and scales, and its values.
struct Weight {
    codes: Array2<u8>,
    scales: Array2<u8>,
    values: Array2<f32>,
}

const BLOCK: usize = 128;

impl Weight {
    fn new(rows: usize, columns: usize, numbers: &mut Numbers) -> Self {
        // Every finite code.
        let codes = Array2::from_shape_fn((rows, columns), |_| {
            let code = ((numbers.next() + 1.0) * 127.0) as u8;
            if code & 0x7f == 0x7f { 0 } else { code }
        });
        let blocks = (rows.div_ceil(BLOCK), columns.div_ceil(BLOCK));
        let scales = Array2::from_shape_fn(blocks, |(row, column)| (120 + row + 2 * column) as u8);
        let values = Array2::from_shape_fn((rows, columns), |(row, column)| {
            let scale = scales[[row / BLOCK, column / BLOCK]];
            e4m3::from_bits(codes[[row, column]]) * ue8m0::from_bits(scale)
        });
        Self {
            codes,
            scales,
            values,
        }
    }

    fn linear(&self) -> Linear<'_> {
        Linear {
            values: self.values.view(),
            fp8: Some(Fp8Weight {
                codes: self.codes.view(),
                scales: self.scales.view(),
                block: [BLOCK; 2],
            }),
        }
    }

    /// An FP8 linear, one output at a time.
    fn oracle(&self, arch: Arch, x: &Array2<f32>) -> Array2<f32> {
        let depth = x.ncols();
        Array2::from_shape_fn((x.nrows(), self.codes.nrows()), |(token, output)| {
            let mut sum = 0.0;
            for start in (0..depth).step_by(BLOCK) {
                let k = start..depth.min(start + BLOCK);
                let x = x.slice(s![token, k.clone()]);
                let amax = x.iter().fold(1e-4f32, |amax, x| amax.max(x.abs()));
                let ratio = f64::from(multiply(amax, 1.0 / 448.0));
                let scale = 2f64.powi(ratio.log2().ceil() as i32) as f32;
                let to_code = |x: &f32| {
                    e4m3::round_f64(
                        f64::from(divide(*x, scale)),
                        crate::format::Rounding::NearestEven,
                    )
                };
                let a: Vec<f32> = x.iter().map(to_code).collect();
                let b = self.codes.slice(s![output, k]).mapv(e4m3::from_bits);
                let part = unit_chain(arch, fp8_instruction(arch), &a, b.as_slice().unwrap());
                let weight_scale = ue8m0::from_bits(self.scales[[output / BLOCK, start / BLOCK]]);
                sum = add(sum, multiply(part, multiply(scale, weight_scale)));
            }
            stored(sum, Storage::Bf16)
        })
    }
}

fn plain(values: &Array2<f32>) -> Linear<'_> {
    Linear {
        values: values.view(),
        fp8: None,
    }
}

fn by_chains(x: &Array2<f32>, w: &Array2<f32>, output: Storage) -> Array2<f32> {
    Array2::from_shape_fn((x.nrows(), w.nrows()), |(token, output_row)| {
        let (x, w) = (x.row(token), w.row(output_row));
        stored(
            fma_chain(x.as_slice().unwrap(), w.as_slice().unwrap()),
            output,
        )
    })
}

fn norm(rows: &Array2<f32>, weight: &Array1<f32>, eps: f64, storage: Storage) -> Array2<f32> {
    let mut result = rows.clone();
    for mut row in result.rows_mut() {
        let sum = row.iter().fold(0.0, |sum, x| add(sum, multiply(*x, *x)));
        let mean = add(divide(sum, row.len() as f32), eps as f32);
        let factor = (1.0 / f64::from(mean).sqrt()) as f32;
        for (x, weight) in row.iter_mut().zip(weight) {
            *x = stored(multiply(multiply(*x, factor), *weight), storage);
        }
    }
    result
}

/// d 200 and R 136, so that the last block of either is short, three heads of 16.
struct Layer {
    wq_a: Weight,
    wq_b: Weight,
    weights_proj: Array2<f32>,
    q_norm: Array1<f32>,
    u: Array2<f32>,
}

impl Layer {
    fn new() -> Self {
        let mut numbers = Numbers(1);
        Self {
            wq_a: Weight::new(136, 200, &mut numbers),
            wq_b: Weight::new(48, 136, &mut numbers),
            weights_proj: numbers.bf16(3, 200),
            q_norm: numbers.matrix(1, 136).row(0).to_owned(),
            u: numbers.bf16(18, 200),
        }
    }

    fn project(
        &self,
        level: Level,
        arch: Arch,
        name: &str,
        latent: Latent<'_>,
    ) -> Result<Projected, BackendError> {
        let weights = QueryWeights {
            wq_a: self.wq_a.linear(),
            q_norm: self.q_norm.as_slice().unwrap(),
            norm_eps: 1e-6,
            wq_b: self.wq_b.linear(),
            weights_proj: plain(&self.weights_proj),
        };
        project(level, arch, &recipe(name), &weights, self.u.view(), latent)
    }
}

fn heads(q: &Array2<f32>) -> Array2<f32> {
    q.clone()
        .into_shape_with_order((q.nrows() * 3, 16))
        .unwrap()
}

#[test]
fn fp8_linears_follow_the_definition_on_every_arch_that_has_them() {
    let layer = Layer::new();
    let mut seen = Vec::new();
    for arch in [Arch::Sm89, Arch::Sm90, Arch::Sm100, Arch::Sm120] {
        let latent = layer.wq_a.oracle(arch, &layer.u);
        let latent = norm(&latent, &layer.q_norm, 1e-6, Storage::Bf16);
        let q = heads(&layer.wq_b.oracle(arch, &latent));
        let weights = by_chains(&layer.u, &layer.weights_proj, Storage::Bf16);
        for level in levels() {
            let got = layer
                .project(level, arch, "fp8-f32scale", Latent::Projected)
                .unwrap();
            assert_same(&got.q, &q, &format!("q on {arch}, {level}"));
            assert_same(&got.weights, &weights, "weights");
        }
        seen.push(q);
    }
    // 13 bits of the accumulator are seen, and the two halves of sm_89's instruction; the Blackwells agree.
    assert_ne!(seen[0], seen[1]);
    assert_ne!(seen[1], seen[2]);
    assert_eq!(seen[2], seen[3]);
}

#[test]
fn plain_linears_are_fma_chains_over_dequantised_weights() {
    let layer = Layer::new();
    let latent = by_chains(&layer.u, &layer.wq_a.values, Storage::F32);
    let latent = norm(&latent, &layer.q_norm, 1e-6, Storage::F32);
    let q = heads(&by_chains(&latent, &layer.wq_b.values, Storage::F32));
    let weights = by_chains(&layer.u, &layer.weights_proj, Storage::F32);
    // An arch without FP8 will do.
    for level in levels() {
        let got = layer
            .project(level, Arch::Sm80, "fp32", Latent::Projected)
            .unwrap();
        assert_same(&got.q, &q, "q");
        assert_same(&got.weights, &weights, "weights");
    }
}

#[test]
fn a_recorded_latent_is_taken_as_it_is() {
    let layer = Layer::new();
    let latent = Numbers(2).matrix(18, 136);
    let got = layer
        .project(
            Level::detect(),
            Arch::Sm120,
            "fp8-f32scale",
            Latent::Recorded(latent.view()),
        )
        .unwrap();
    assert_same(
        &got.q,
        &heads(&layer.wq_b.oracle(Arch::Sm120, &latent)),
        "q",
    );
}

#[test]
fn an_arch_without_fp8_is_refused_by_name() {
    for arch in [Arch::Sm80, Arch::Sm86] {
        let error = Layer::new()
            .project(Level::detect(), arch, "mxfp4", Latent::Projected)
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("'mxfp4'") && text.contains(&arch.to_string()),
            "{text}"
        );
    }
}

#[test]
fn threads_change_nothing() {
    let layer = Layer::new();
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            ["fp32", "fp8-f32scale"].map(|name| {
                layer
                    .project(Level::detect(), Arch::Sm90, name, Latent::Projected)
                    .unwrap()
            })
        })
    };
    assert_eq!(run(1), run(3));
}
