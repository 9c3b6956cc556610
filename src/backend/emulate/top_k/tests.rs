//! Against sorting, against the kernels' own passes written out, and on the inputs that broke other top-k kernels.

use std::f64::consts::TAU;

use proptest::prelude::*;

use super::*;

const JIT_BEFORE_THE_FIX: Selector = Selector::CoarseRadix {
    key_bits: 12,
    buffer: 1024,
};
const ALL: [Selector; 6] = [
    Selector::Exact,
    Selector::Bf16Ties,
    Selector::SGLANG_FAST,
    Selector::SGLANG_JIT,
    Selector::SGLANG_JIT_CLUSTER,
    Selector::FILTERED,
];

/// Uniform in [0, 1).
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 * 2.0_f64.powi(-53)
    }

    fn normal(&mut self) -> f32 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform()));
        (radius * libm::cos(TAU * self.uniform())) as f32
    }
}

fn normal_row(seed: u64, keys: usize) -> Vec<f32> {
    let mut noise = Noise(seed << 32);
    (0..keys).map(|_| noise.normal()).collect()
}

/// Keys by descending score, then index: a stable sort of a row without NaN.
fn by_sorting(scores: &[f32], k: usize) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..scores.len() as u32).collect();
    let score = |key: u32| scores[key as usize];
    keys.sort_by(|&a, &b| score(b).partial_cmp(&score(a)).expect("no NaN"));
    keys.truncate(k);
    keys
}

/// How many of the chosen are below the true k-th score: wrong, however ties are broken.
fn wrong(chosen: &[u32], scores: &[f32], k: usize) -> usize {
    let cut = by_sorting(scores, k)
        .last()
        .map(|&key| scores[key as usize]);
    let below = |&&key: &&u32| cut.is_some_and(|cut| scores[key as usize] < cut);
    chosen.iter().filter(below).count()
}

fn is_valid(chosen: &[u32], visible: usize, k: usize) -> bool {
    let mut keys = chosen.to_vec();
    keys.sort_unstable();
    keys.dedup();
    keys.len() == k.min(visible) && keys.last().is_none_or(|&last| (last as usize) < visible)
}

fn select_all(selector: Selector, scores: &[f32], k: usize) -> Vec<u32> {
    select(selector, scores, scores.len(), k)
}

/// The passes of `fast_topk_v2` for any k, key and buffer: a coarse histogram from above, and four rounds of 8 bits over what the
/// buffer holds, in the order of the row.
fn kernel(scores: &[f32], k: usize, key_bits: u32, buffer: usize) -> Vec<u32> {
    let coarse = |score: f32| {
        let half = half::f16::from_f32(score);
        let bits = if half.is_nan() {
            0x7fff
        } else {
            half.to_bits()
        };
        let ordered = if half.is_sign_negative() && !half.is_nan() {
            !bits
        } else {
            bits | 0x8000
        };
        u32::from(ordered) >> (16 - key_bits)
    };
    let fine = |key: u32| {
        let bits = scores[key as usize].to_bits();
        bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 }
    };
    if scores.len() <= k {
        return (0..scores.len() as u32).collect();
    }
    let at_least = |bin: u32| scores.iter().filter(|&&s| coarse(s) >= bin).count();
    let cut = (0..1_u32 << key_bits).rev().find(|&bin| at_least(bin) >= k);
    let cut = cut.expect("the row has more than k");
    let keys = 0..scores.len() as u32;
    let bin = |key: &u32| coarse(scores[*key as usize]);
    let mut out: Vec<u32> = keys.clone().filter(|key| bin(key) > cut).collect();
    let mut pool: Vec<u32> = keys.filter(|key| bin(key) == cut).take(buffer).collect();
    for round in 0..4 {
        let digit = |key: &u32| (fine(*key) >> (24 - 8 * round)) & 0xff;
        let above = |at: u32| pool.iter().filter(|key| digit(key) > at).count();
        let at = (0..256)
            .find(|&at| above(at) <= k - out.len())
            .unwrap_or(255);
        out.extend(pool.iter().copied().filter(|key| digit(key) > at));
        pool.retain(|key| digit(key) == at);
    }
    out.extend(pool.into_iter().take(k - out.len()));
    out
}

fn scores() -> impl Strategy<Value = Vec<f32>> {
    let score = prop_oneof![
        4 => -4.0..4.0_f32,
        3 => 1.0..1.001_f32,
        2 => (0..4).prop_map(|x| x as f32),
        1 => prop_oneof![
            Just(f32::NAN),
            Just(f32::INFINITY),
            Just(f32::NEG_INFINITY),
            Just(-0.0_f32),
            Just(-7e4_f32),
            Just(65519.0_f32),
        ],
    ];
    proptest::collection::vec(score, 0..150)
}

proptest! {
    #[test]
    fn a_coarse_radix_does_what_the_kernels_passes_do(
        scores in scores(), k in 1..60_usize, key_bits in 1..17_u32, buffer in 1..80_usize,
    ) {
        let chosen = select_all(Selector::CoarseRadix { key_bits, buffer }, &scores, k);
        let mut expected = kernel(&scores, k, key_bits, buffer);
        let mut keys = chosen.clone();
        keys.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(keys, expected);
        if buffer >= k {
            prop_assert!(is_valid(&chosen, scores.len(), k));
        }
    }

    #[test]
    fn every_selector_takes_visible_keys_once(scores in scores(), visible in 0..160_usize, k in 1..60_usize) {
        for selector in ALL {
            let chosen = select(selector, &scores, visible, k);
            prop_assert!(is_valid(&chosen, visible.min(scores.len()), k), "{selector:?}");
        }
    }

    #[test]
    fn a_buffer_for_the_whole_row_loses_nothing(scores in scores(), k in 1..60_usize) {
        // NaN and −0 stand elsewhere there.
        let scores: Vec<f32> = scores.into_iter().filter(|s| !s.is_nan()).map(|s| s + 0.0).collect();
        let whole = Selector::CoarseRadix { key_bits: 8, buffer: scores.len().max(1) };
        prop_assert_eq!(select_all(whole, &scores, k), select_all(Selector::Exact, &scores, k));
    }

    #[test]
    fn bf16_ties_are_those_of_the_rounded_scores(scores in scores(), k in 1..60_usize) {
        let scores: Vec<f32> = scores.into_iter().filter(|s| !s.is_nan()).collect();
        let rounded: Vec<f32> = scores.iter().map(|&s| half::bf16::from_f32(s).to_f32()).collect();
        prop_assert_eq!(select_all(Selector::Bf16Ties, &scores, k), by_sorting(&rounded, k));
    }
}

/// Known fault F3 (sglang issue 36807): 64 rows of 262,144 normal scores had 6 to 42 wrong keys each, rows of 1M
/// 98 to 157, rows of 65,536 none. Eight rows, two and two here.
#[test]
fn f3_a_threshold_bin_beyond_4096_loses_what_was_reported() {
    for (keys, rows, reported) in [
        (65_536, 2, 0..=0),
        (262_144, 8, 6..=42),
        (1 << 20, 2, 98..=157),
    ] {
        for seed in 0..rows {
            let row = normal_row(seed, keys);
            let exact = select_all(Selector::Exact, &row, 2048);
            assert_eq!(exact, by_sorting(&row, 2048));
            let fast = select_all(Selector::SGLANG_FAST, &row, 2048);
            let wrong = wrong(&fast, &row, 2048);
            assert!(reported.contains(&wrong), "{keys} keys: {wrong} wrong");
            assert!(is_valid(&fast, keys, 2048));
        }
    }
}

/// Known fault F5: 100 winners and 8220 zeros at k = 2048. A tie buffer of 1024 leaves 924 slots unwritten.
#[test]
fn f5_a_tie_buffer_below_k_leaves_slots_unwritten() {
    let mut row = vec![0.0; 8320];
    for winner in 0..100 {
        row[8000 - 37 * winner] = 1.0;
    }
    let chosen = select_all(JIT_BEFORE_THE_FIX, &row, 2048);
    assert_eq!(2048 - chosen.len(), 924);
    for selector in ALL {
        let chosen = select_all(selector, &row, 2048);
        assert_eq!(chosen, by_sorting(&row, 2048), "{selector:?}");
        assert!(is_valid(&chosen, 8320, 2048));
    }
}

/// Known fault F5, its other input: +Inf, fewer and more than k.
#[test]
fn f5_infinite_scores_come_first() {
    for infinite in [1, 2047, 2048, 3000, 8320] {
        let mut row = normal_row(5, 8320);
        row[8320 - infinite..].fill(f32::INFINITY);
        for selector in ALL {
            let chosen = select_all(selector, &row, 2048);
            assert!(is_valid(&chosen, 8320, 2048), "{selector:?}");
            let found = chosen
                .iter()
                .filter(|&&key| row[key as usize].is_infinite());
            assert_eq!(found.count(), infinite.min(2048), "{selector:?}");
        }
    }
}

/// Known fault F7: a coarse bin of more than 16,384. Clean at 16,384 scores in [1, 1.245), and the first that is dropped is one more.
#[test]
fn f7_a_filtered_top_k_drops_the_16385th_of_a_bin() {
    for (keys, lost) in [
        (16_383, 0),
        (16_384, 0),
        (16_385, 1),
        (16_512, 128),
        (40_000, 512),
    ] {
        let row: Vec<f32> = (0..keys)
            .map(|key| 1.0 + 0.245 * key as f32 / keys as f32)
            .collect();
        for k in [512, 1024, 2048] {
            let exact = select_all(Selector::Exact, &row, k);
            assert_eq!(exact, by_sorting(&row, k));
            let filtered = select_all(Selector::FILTERED, &row, k);
            let expected = if lost == 512 { k } else { lost };
            assert_eq!(wrong(&filtered, &row, k), expected, "{keys} keys, k {k}");
        }
    }
}

/// Known fault F8: every score below −65,504 is −Inf as a half, so that all are in one bin.
#[test]
fn f8_scores_below_the_least_half_share_a_bin() {
    let row: Vec<f32> = (0..9000).map(|key| -7e4 - 9000.0 + key as f32).collect();
    for k in [512, 2048] {
        assert_eq!(select_all(Selector::Exact, &row, k), by_sorting(&row, k));
        assert_eq!(select_all(Selector::Bf16Ties, &row, k).len(), k);
        for selector in [Selector::SGLANG_FAST, Selector::SGLANG_JIT] {
            let chosen = select_all(selector, &row, k);
            assert!(is_valid(&chosen, 9000, k));
            assert_eq!(wrong(&chosen, &row, k), k, "{selector:?}");
        }
    }
}

/// Known fault F10: a k that was not compiled.
#[test]
fn f10_any_k_up_to_the_keys_and_beyond() {
    let row = normal_row(10, 4001);
    for k in [
        1, 2, 511, 512, 513, 1024, 1536, 2048, 4000, 4001, 4002, 100_000,
    ] {
        for selector in ALL {
            let chosen = select_all(selector, &row, k);
            assert!(is_valid(&chosen, 4001, k), "{selector:?}, k {k}");
        }
        assert_eq!(select_all(Selector::Exact, &row, k), by_sorting(&row, k));
    }
}

/// Known faults A13 and A15: indices out of range on rows of NaN.
#[test]
fn a13_a15_rows_of_nan_give_indices_in_range() {
    let row = vec![f32::NAN; 163_840];
    for selector in ALL {
        for k in (1..=50).chain([512, 2048]) {
            let chosen = select_all(selector, &row, k);
            assert!(is_valid(&chosen, row.len(), k), "{selector:?}");
            assert_eq!(chosen, (0..k as u32).collect::<Vec<_>>());
        }
    }
}

/// One NaN at the cut: exact leaves it out, the kernels' keys put it first.
#[test]
fn a_nan_is_last_here_and_first_in_the_kernels() {
    let mut row = normal_row(3, 5000);
    let at_cut = by_sorting(&row, 512)[511];
    row[at_cut as usize] = f32::NAN;
    for selector in [Selector::Exact, Selector::Bf16Ties] {
        assert!(!select_all(selector, &row, 512).contains(&at_cut));
        assert!(select_all(selector, &row, 4999).len() == 4999);
        assert_eq!(select_all(selector, &row, 5000).last(), Some(&at_cut));
    }
    for selector in [Selector::SGLANG_FAST, Selector::SGLANG_JIT] {
        assert_eq!(select_all(selector, &row, 512)[0], at_cut);
    }
}

#[test]
fn equal_scores_go_to_the_lower_indices() {
    for score in [0.0, 1.5, f32::NEG_INFINITY, f32::INFINITY] {
        let row = vec![score; 5000];
        for selector in ALL {
            let chosen = select_all(selector, &row, 2048);
            assert_eq!(chosen, (0..2048).collect::<Vec<_>>(), "{selector:?}");
        }
    }
    let row = [f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 2.0];
    assert_eq!(select_all(Selector::Exact, &row, 3), [3, 1, 0]);
    assert_eq!(select(Selector::Exact, &row, 2, 3), [1, 0]);
    assert!(select(Selector::Exact, &row, 0, 3).is_empty());
}

/// Scores 0 to 7, with and without 300 winners: a bin far beyond any buffer, of equal scores alone, loses none.
#[test]
fn integer_scores_overflow_buffers_and_lose_nothing() {
    for winners in [0, 300] {
        let mut noise = Noise(4242);
        let mut row: Vec<f32> = (0..131_072)
            .map(|_| (noise.uniform() * 8.0).floor() as f32)
            .collect();
        for _ in 0..winners {
            row[(noise.uniform() * 131_072.0) as usize] = 9.0;
        }
        let expected = by_sorting(&row, 2048);
        for selector in ALL {
            assert_eq!(select_all(selector, &row, 2048), expected, "{selector:?}");
        }
    }
}

/// More than 2048 different fp32 scores within one ulp of a half.
#[test]
fn different_scores_within_an_ulp_of_a_half_are_lost() {
    // 8192 fp32 scores to an ulp of a half at 1, of which the lower half rounds down.
    let row: Vec<f32> = (0..4090)
        .map(|key| f32::from_bits(1.0_f32.to_bits() + key))
        .collect();
    let halves: Vec<u16> = row
        .iter()
        .map(|&s| half::f16::from_f32(s).to_bits())
        .collect();
    assert!(halves.iter().all(|&bits| bits == halves[0]));
    assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
    for k in [512, 1024, 2048] {
        assert_eq!(select_all(Selector::Exact, &row, k), by_sorting(&row, k));
        assert_eq!(
            select_all(Selector::SGLANG_FAST, &row, k),
            by_sorting(&row, k)
        );
        for selector in [Selector::SGLANG_JIT, Selector::SGLANG_JIT_CLUSTER] {
            let chosen = select_all(selector, &row, k);
            let expected = by_sorting(&row[..2048], k);
            assert_eq!(chosen, expected, "{selector:?}");
            assert!(wrong(&chosen, &row, k) > 0);
        }
    }
}
