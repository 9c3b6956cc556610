//! What the recorded values cannot show: that nothing depends on blocks, levels or threads, and what a NaN does.

use ndarray::{Array2, ArrayView2, Axis, concatenate, s};

use super::{KeyStream, Queries, Rope, Scorer, Weights, keys::folded};
use crate::simd::Level;

const TOKENS: usize = 2070;
const HIDDEN: usize = 136;
const WIDTH: usize = 16;

fn filled(rows: usize, columns: usize, seed: u32) -> Array2<f32> {
    let mut state = seed;
    Array2::from_shape_simple_fn((rows, columns), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    })
}

/// Eight significant bits, as bf16 has.
fn narrow(values: Array2<f32>) -> Array2<f32> {
    values.mapv(|value| f32::from_bits(value.to_bits() & 0xffff_0000))
}

struct Layer {
    norm: Array2<f32>,
    wkv: Array2<f32>,
    wgate: Array2<f32>,
    ape: Array2<f32>,
    k_norm: Array2<f32>,
    rest: Array2<f32>,
}

impl Layer {
    fn new() -> Self {
        let weight = |rows, columns, seed| narrow(filled(rows, columns, seed));
        Self {
            norm: weight(1, HIDDEN, 1),
            wkv: weight(2 * WIDTH, HIDDEN, 2),
            wgate: weight(2 * WIDTH, HIDDEN, 3),
            ape: filled(4, 2 * WIDTH, 4),
            k_norm: weight(1, WIDTH, 5),
            rest: Array2::zeros((WIDTH, HIDDEN)),
        }
    }

    fn weights(&self) -> Weights<'_> {
        fn row(values: &Array2<f32>) -> &[f32] {
            values.as_slice().expect("a new matrix")
        }
        Weights {
            attn_norm: Some(row(&self.norm)),
            wq_a: self.rest.slice(s![..1, ..]),
            q_norm: &row(&self.rest)[..1],
            wq_b: self.rest.slice(s![.., ..1]),
            weights_proj: self.rest.slice(s![..1, ..]),
            wkv: self.wkv.view(),
            wgate: self.wgate.view(),
            ape: self.ape.view(),
            k_norm: row(&self.k_norm),
            norm_eps: 1e-6,
        }
    }
}

fn rope() -> Rope {
    Rope::new(160_000.0, 8, None)
}

fn bits(values: &Array2<f64>) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn keys(level: Level, weights: &Weights, y: ArrayView2<f32>) -> Array2<f64> {
    KeyStream::new(level, weights, &rope()).push(y)
}

fn in_pool<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("a pool of a few threads").install(work)
}

#[test]
fn keys_depend_on_neither_blocks_nor_levels_nor_threads() {
    let (layer, y) = (Layer::new(), filled(TOKENS, HIDDEN, 6));
    let weights = layer.weights();
    let whole = keys(Level::detect(), &weights, y.view());
    assert_eq!(whole.dim(), (TOKENS / 4, WIDTH));
    for level in Level::ALL {
        for threads in [1, 3] {
            let again = in_pool(threads, || keys(level, &weights, y.view()));
            assert_eq!(bits(&again), bits(&whole), "{level}, {threads} threads");
        }
    }
    for block in [1, 3, 4, 5, 2047] {
        let rope = rope();
        let mut stream = KeyStream::new(Level::detect(), &weights, &rope);
        let blocks: Vec<_> = y
            .axis_chunks_iter(Axis(0), block)
            .take(40)
            .map(|y| stream.push(y))
            .collect();
        let blocks: Vec<_> = blocks.iter().map(|keys| keys.view()).collect();
        let joined = concatenate(Axis(0), &blocks).expect("keys of one width");
        assert_eq!(
            joined.nrows(),
            TOKENS.min(40 * block) / 4,
            "blocks of {block}"
        );
        let first = whole.slice(s![..joined.nrows(), ..]).to_owned();
        assert_eq!(bits(&joined), bits(&first), "blocks of {block}");
    }
}

/// The recorded layers of narrow and of wide weights rest on it.
#[test]
fn the_norm_is_in_the_weights_only_where_no_product_is_rounded() {
    let (narrow, wide) = (narrow(filled(3, 5, 7)), filled(3, 5, 8));
    let norm = [1.0, 0.75, -255.0 / 128.0, 0.0, 1.5];
    let expected = Array2::from_shape_fn((3, 5), |(n, k)| narrow[[n, k]] * norm[k]);
    assert_eq!(folded(narrow.view(), &norm), Some(expected));
    assert_eq!(folded(wide.view(), &norm), None);
    assert_eq!(folded(narrow.view(), &[f32::NAN; 5]), None);
    let tiny = [f32::from_bits(1); 5];
    assert_eq!(folded(narrow.view(), &tiny), None, "below the smallest f32");
}

#[test]
fn a_nan_reaches_the_keys_that_pool_it_and_no_other() {
    let (layer, mut y) = (Layer::new(), filled(24, HIDDEN, 9));
    y[[9, 17]] = f32::NAN;
    let keys = keys(Level::detect(), &layer.weights(), y.view());
    // Token 9 is of window 2, which window 3 overlaps.
    for (i, key) in keys.rows().into_iter().enumerate() {
        let expected = i == 2 || i == 3;
        assert!(
            key.iter().all(|value| value.is_nan() == expected),
            "key {i}"
        );
    }
}

fn some_queries() -> Queries {
    let wide = |values: Array2<f32>| values.mapv(f64::from);
    let q = wide(filled(3 * 11, WIDTH, 10));
    Queries {
        q: q.into_shape_with_order((3, 11, WIDTH)).expect("33 rows"),
        weights: wide(filled(3, 11, 11)),
        visible: vec![0, 2, 300],
    }
}

#[test]
fn logits_depend_on_neither_blocks_nor_levels_nor_threads() {
    let (queries, keys) = (some_queries(), filled(300, WIDTH, 12).mapv(f64::from));
    let whole = Scorer::new(Level::Portable, &queries).score(keys.view(), 0);
    assert_eq!(whole.signs.dots, 11 * 302);
    for level in Level::ALL {
        for threads in [1, 3] {
            let again = in_pool(threads, || {
                Scorer::new(level, &queries).score(keys.view(), 0)
            });
            assert_eq!(bits(&again.logits), bits(&whole.logits), "{level}");
            assert_eq!(again.signs, whole.signs);
        }
    }
    let scorer = Scorer::new(Level::detect(), &queries);
    let [first, second] =
        [0..7, 7..300].map(|range| scorer.score(keys.slice(s![range.clone(), ..]), range.start));
    let joined = concatenate![Axis(1), first.logits, second.logits];
    assert_eq!(bits(&joined), bits(&whole.logits));
    assert_eq!(first.signs.merge(second.signs), whole.signs);
}

#[test]
fn a_nan_dot_is_not_dropped() {
    let (mut queries, keys) = (some_queries(), filled(5, WIDTH, 12).mapv(f64::from));
    queries.q[[1, 4, 3]] = f64::NAN;
    let logits = Scorer::new(Level::detect(), &queries)
        .score(keys.view(), 0)
        .logits;
    for (query, logits) in logits.rows().into_iter().enumerate() {
        assert!(logits.iter().all(|logit| logit.is_nan() == (query == 1)));
    }
}
