//! Split and Sinkhorn against fp64, and what each switch of the epilogue is for.

use ndarray::array;
use ulpdrift_reference::mix::{self, SplitParams};

use super::*;
use crate::random::{Key, Purpose, Stream};

const HC: usize = 4;
const WIDTH: usize = (2 + HC) * HC;
const EPS: f64 = 1e-6;

/// Mixes, scale and base of a site; comb logits are the mixes themselves unless a test says otherwise.
struct Site {
    mixes: Array2<f32>,
    scale: [f32; 3],
    base: Vec<f32>,
    eps: f64,
}

impl Site {
    /// Logits of the spread that near-permutation combs have.
    fn random(tokens: usize) -> Self {
        let mut stream = Stream::new(Key {
            seed: 3,
            purpose: Purpose::Weight,
            layer: 0,
            token: 0,
        });
        let mixes = Array2::from_shape_fn((tokens, WIDTH), |_| 5.0 * stream.normal() as f32);
        let base = (0..WIDTH).map(|_| stream.normal() as f32).collect();
        Self {
            mixes,
            scale: [0.1, 0.15, 0.7],
            base,
            eps: EPS,
        }
    }

    /// One token whose comb logits are given, row by row.
    fn comb(logits: &[[f32; HC]; HC]) -> Self {
        let mut mixes = Array2::zeros((1, WIDTH));
        for (to, &from) in mixes.iter_mut().skip(2 * HC).zip(logits.as_flattened()) {
            *to = from;
        }
        Self {
            mixes,
            scale: [1.0; 3],
            base: vec![0.0; WIDTH],
            eps: EPS,
        }
    }

    /// The split, which must be the same at every level.
    fn fp32(&self, epilogue: Epilogue) -> Split {
        let inputs = SplitInputs {
            mixes: self.mixes.view(),
            scale: self.scale,
            base: &self.base,
            hc: HC,
            iters: 20,
            eps: self.eps,
        };
        let split = split_sinkhorn(Level::Portable, &epilogue, &inputs);
        for level in Level::ALL {
            let other = split_sinkhorn(level, &epilogue, &inputs);
            for (got, want) in [
                (&other.pre, &split.pre),
                (&other.post, &split.post),
                (&other.comb, &split.comb),
            ] {
                let same =
                    |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                assert!(got.iter().zip(want).all(same), "{level}");
            }
        }
        split
    }

    fn fp64(&self) -> mix::Split {
        let params = SplitParams {
            hc: HC,
            scale: self.scale.map(f64::from),
            base: self.base.iter().copied().map(f64::from).collect(),
            iters: 20,
            eps: self.eps,
        };
        mix::split_sinkhorn(self.mixes.mapv(f64::from).view(), &params)
    }

    /// The largest distance to fp64 over pre, post and comb, all of order 1; NaN if any is.
    fn distance(&self, epilogue: Epilogue) -> f64 {
        let (got, truth) = (self.fp32(epilogue), self.fp64());
        [
            (got.pre, truth.pre),
            (got.post, truth.post),
            (got.comb, truth.comb),
        ]
        .iter()
        .flat_map(|(got, truth)| got.iter().zip(truth))
        .map(|(&got, truth)| (f64::from(got) - truth).abs())
        .fold(0.0, |most, gap| {
            if gap > most || gap.is_nan() {
                gap
            } else {
                most
            }
        })
    }
}

fn with(change: impl Fn(&mut Epilogue)) -> Epilogue {
    let mut epilogue = Epilogue::default();
    change(&mut epilogue);
    epilogue
}

fn column_sums(comb: &Array2<f32>) -> [f64; HC] {
    std::array::from_fn(|column| {
        (0..HC)
            .map(|row| f64::from(comb[[0, row * HC + column]]))
            .sum()
    })
}

#[test]
fn the_default_is_fp64_but_for_fp32_rounding() {
    let distance = Site::random(500).distance(Epilogue::default());
    assert!(distance < 2e-6 && distance > 1e-8, "{distance}");
}

#[test]
fn every_switch_changes_bits_and_only_as_much_as_it_must() {
    let site = Site::random(500);
    let default = site.fp32(Epilogue::default());
    let bits = |split: &Split| -> Vec<u32> {
        let parts = split.pre.iter().chain(&split.post).chain(&split.comb);
        parts.map(|value| value.to_bits()).collect()
    };
    let switches: [(&str, Epilogue, f64); 6] = [
        ("affine", with(|e| e.affine = Contraction::MulAdd), 3e-6),
        ("sigmoid", with(|e| e.sigmoid = Sigmoid::Exp2), 3e-6),
        (
            "division",
            with(|e| e.division = SinkhornDivision::Reciprocal),
            3e-6,
        ),
        (
            "eps starts the sum",
            with(|e| e.eps = SinkhornEps::StartSum),
            3e-6,
        ),
        // Leaves eps out of every sum: that is eps a time, twenty times over.
        ("eps clamps", with(|e| e.eps = SinkhornEps::Clamp), 4e-5),
        ("row maximum", with(|e| e.skip_row_max = true), 3e-6),
    ];
    for (name, epilogue, limit) in switches {
        assert_ne!(bits(&site.fp32(epilogue)), bits(&default), "{name}");
        let distance = site.distance(epilogue);
        assert!(distance < limit, "{name}: {distance}");
    }
}

/// Known fault E2: where eps goes decides what a column sums to.
#[test]
fn e2_clamp_and_plus_eps_differ_by_eps() {
    let far_below = [
        [1.0, 2.0, 0.5, -1.0],
        [-90.0, -91.0, -89.5, -90.0],
        [0.0; 4],
        [3.0, 0.0, 1.0, 1.0],
    ];
    for logits in [[[0.7; HC]; HC], far_below] {
        let site = Site::comb(&logits);
        let clamp = column_sums(&site.fp32(with(|e| e.eps = SinkhornEps::Clamp)).comb);
        for eps in [SinkhornEps::AddAfterSum, SinkhornEps::StartSum] {
            let plus = site.fp32(with(|e| e.eps = eps));
            let sums = column_sums(&plus.comb);
            for (plus, clamp) in sums.iter().zip(clamp) {
                assert!((clamp - 1.0).abs() < 2e-7, "{clamp}");
                assert!((plus - (1.0 - EPS)).abs() < 3e-7, "{plus}");
            }
            assert!(site.distance(with(|e| e.eps = eps)) < 1e-6);
        }
    }
}

/// Known fault E3: a symmetric comb would hide a transposition.
#[test]
fn e3_comb_is_row_major_and_not_its_transpose() {
    let logits: [[f32; HC]; HC] =
        std::array::from_fn(|j| std::array::from_fn(|k| ((j * j + 3 * k) % 7) as f32));
    let site = Site::comb(&logits);
    let (got, truth) = (site.fp32(Epilogue::default()).comb, site.fp64().comb);
    let mut transposed = 0.0f64;
    for j in 0..HC {
        for k in 0..HC {
            let value = f64::from(got[[0, j * HC + k]]);
            assert!((value - truth[[0, j * HC + k]]).abs() < 1e-6);
            transposed = transposed.max((value - truth[[0, k * HC + j]]).abs());
        }
    }
    assert!(transposed > 0.1, "{transposed}");
    // j·4 + k, the catalogue's example, is the same row four times after the softmax.
    let ramp = std::array::from_fn(|j| std::array::from_fn(|k| (j * HC + k) as f32));
    let comb = Site::comb(&ramp).fp32(Epilogue::default()).comb;
    assert!(
        comb.iter().all(|value| (value - 0.25).abs() < 1e-6),
        "{comb}"
    );
}

/// Known fault E5: exp of the raw logits. With the row maximum every magnitude is right; without it
/// a row becomes zeros or NaN, and neither may look like a result.
#[test]
fn e5_logits_beyond_the_range_of_exp() {
    let logits = |size: f32| {
        [
            [size, -size, size / 2.0, 0.0],
            [-size; 4],
            [size; 4],
            [0.0, size, -size, 1.0],
        ]
    };
    let unshifted = with(|e| e.skip_row_max = true);
    for size in [86.0, 88.7, 100.0, 1e4] {
        let distance = Site::comb(&logits(size)).distance(Epilogue::default());
        assert!(distance < 2e-6, "{size}: {distance}");
    }
    assert!(Site::comb(&logits(86.0)).distance(unshifted) < 1e-4);
    // The sum of four e^88.7 is infinite: the whole row is 0 + eps, and its comb is visibly wrong.
    let flooded = Site::comb(&[
        [88.7; 4],
        [0.0, 8.0, 0.0, 0.0],
        [0.0, 0.0, 8.0, 0.0],
        [8.0, 0.0, 0.0, 0.0],
    ]);
    assert!(flooded.distance(Epilogue::default()) < 2e-6);
    assert!(flooded.distance(unshifted) > 1e-3);
    for size in [100.0, 1e4] {
        let site = Site::comb(&logits(size));
        let distance = site.distance(unshifted);
        assert!(distance.is_nan() || distance > 1e-3, "{size}: {distance}");
    }
    assert!(Site::comb(&logits(1e4)).distance(unshifted).is_nan());
}

/// Known fault E7: NaN from equal or very large scores, at batch 1.
#[test]
fn e7_equal_and_huge_scores_stay_finite() {
    for score in [0.0, 1.0, -1.0, 88.0, 1e4, -1e4, 3e38, -3e38] {
        let site = Site::comb(&[[score; HC]; HC]);
        let comb = site.fp32(Epilogue::default()).comb;
        assert!(
            comb.iter().all(|value| (value - 0.25).abs() < 1e-6),
            "{score}: {comb}"
        );
    }
    let mut spread = [[-3e38; HC]; HC];
    (0..HC).for_each(|j| spread[j][j] = 3e38);
    let site = Site::comb(&spread);
    assert!(site.distance(Epilogue::default()) < 2e-6);
}

/// Known fault E8: a column that underflows to zero everywhere. eps keeps it finite, at 1e-5 as at
/// 1e-6; without eps fp64 has no answer either.
#[test]
fn e8_columns_that_underflow() {
    let logits = [[0.0, 1.0, 2.0, -1e4]; HC];
    for eps in [1e-5, 1e-6] {
        let site = Site {
            eps,
            ..Site::comb(&logits)
        };
        let distance = site.distance(Epilogue::default());
        assert!(distance < 3e-6, "{eps}: {distance}");
    }
    let site = Site {
        eps: 0.0,
        ..Site::comb(&logits)
    };
    let nan = |comb: &mut dyn Iterator<Item = bool>| comb.filter(|nan| *nan).count();
    let (got, truth) = (site.fp32(Epilogue::default()).comb, site.fp64().comb);
    assert!(nan(&mut truth.iter().map(|v| v.is_nan())) > 0);
    assert!(nan(&mut got.iter().map(|v| v.is_nan())) > 0);
}

#[test]
fn a_nan_mix_comes_out_of_every_gate_it_enters() {
    for index in 0..WIDTH {
        let mut site = Site::random(1);
        site.mixes[[0, index]] = f32::NAN;
        let split = site.fp32(Epilogue::default());
        let nan = |values: &Array2<f32>| values.iter().any(|value| value.is_nan());
        let parts = [nan(&split.pre), nan(&split.post), nan(&split.comb)];
        let expected = [index < HC, (HC..2 * HC).contains(&index), index >= 2 * HC];
        assert_eq!(parts, expected, "mix {index}");
    }
}

#[test]
fn gates_saturate_without_nan() {
    let mut site = Site::comb(&[[0.0; HC]; HC]);
    for (mix, value) in site
        .mixes
        .iter_mut()
        .zip([200.0, -200.0, 3e38, -3e38, 200.0, -200.0, 3e38, -3e38])
    {
        *mix = value;
    }
    let split = site.fp32(Epilogue::default());
    let eps = EPS as f32;
    assert_eq!(split.pre, array![[1.0 + eps, eps, 1.0 + eps, eps]]);
    assert_eq!(split.post, array![[2.0, 0.0, 2.0, 0.0]]);
}

/// Arguments whose true result lies within 8 fp64 ulps of a boundary between two fp32 numbers, out
/// of all fp32 arguments, with the correctly rounded result (from 300-bit arithmetic).
const HARD_EXP: [[u32; 2]; 21] = [
    [0xc169_12cd, 0x34fd_331b],
    [0xbbf0_edf1, 0x3f7e_1fe9],
    [0x377e_ff81, 0x3f80_0080],
    [0x38e6_9cc1, 0x3f80_039a],
    [0x39c6_be5b, 0x3f80_0c6d],
    [0xb300_0000, 0x3f80_0000],
    [0xbae0_e25c, 0x3f7f_8fa7],
    [0x383a_3ef1, 0x3f80_0175],
    [0x3d1a_274e, 0x3f84_e8ba],
    [0x4001_b249, 0x40f2_cd14],
    [0x4031_5b33, 0x417f_a47d],
    [0x36fd_ffc1, 0x3f80_0040],
    [0x39e5_bb1d, 0x3f80_0e5d],
    [0x337f_ffff, 0x3f80_0000],
    [0x3380_0000, 0x3f80_0001],
    [0x343f_ffff, 0x3f80_0002],
    [0x34df_fffd, 0x3f80_0004],
    [0x356f_fff9, 0x3f80_0008],
    [0x35f7_fff1, 0x3f80_0010],
    [0x367b_ffe1, 0x3f80_0020],
    [0x4288_942b, 0x70b7_a4c5],
];
const HARD_EXP2: [[u32; 2]; 14] = [
    [0x3b42_9d37, 0x3f80_4385],
    [0xb52d_1f9a, 0x3f7f_fff8],
    [0xbcf3_a937, 0x3f7a_c6b1],
    [0x3a07_857c, 0x3f80_0bbe],
    [0xb8d3_d026, 0x3f7f_fb69],
    [0xbaec_2b40, 0x3f7f_ae34],
    [0x3c02_a9ad, 0x3f80_b5a3],
    [0x3687_9cf7, 0x3f80_0018],
    [0xbe1f_29de, 0x3f65_da56],
    [0x33b8_aa3b, 0x3f80_0001],
    [0x3dc9_abe2, 0x3f89_0ab5],
    [0xb466_d4cb, 0x3f7f_fffe],
    [0xb338_aa3b, 0x3f80_0000],
    [0xb8bb_d3a2, 0x3f7f_fbee],
];

#[test]
fn exp_is_correctly_rounded_where_it_is_hardest() {
    for [argument, result] in HARD_EXP {
        let got = exp(f32::from_bits(argument));
        assert_eq!(got.to_bits(), result, "exp of {argument:08x}");
    }
}

/// Two of them round to the wrong side in fp64: by one ulp, on every machine.
#[test]
fn exp2_is_correctly_rounded_but_for_two_arguments() {
    for [argument, result] in HARD_EXP2 {
        let got = exp2(f32::from_bits(argument)).to_bits();
        let apart = u32::from([0x3b42_9d37, 0xbcf3_a937].contains(&argument));
        assert_eq!(
            got.abs_diff(result),
            apart,
            "exp2 of {argument:08x}: {got:08x}"
        );
    }
}
