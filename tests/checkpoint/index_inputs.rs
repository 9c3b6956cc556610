//! What an indexer starts from: drawn rows, those whose neighbours resemble each other, and recorded ones.

use half::bf16;
use ndarray::{Array2, ArrayView1, s};
use ulpdrift::{
    activations::{Activations, ActivationsError, IndexSource, Inputs},
    checkpoint::{Checkpoint, Model, Site, StoredType},
};

use crate::support::{Directory, Raw, assert_sentence, ramp};

fn model(spec: &str) -> Model {
    Checkpoint::open(spec).unwrap().model().clone()
}

fn drawn(inputs: &str, seed: u64) -> Activations {
    let inputs: Inputs = inputs.parse().unwrap();
    Activations::open(&inputs, seed, &model("synthetic:tiny")).unwrap()
}

/// The rows of x, [tokens, 4·256].
fn x(inputs: &str, tokens: std::ops::Range<usize>) -> Array2<f32> {
    drawn(inputs, 0)
        .tokens(2, Site::Attn, tokens)
        .unwrap()
        .unwrap()
}

fn cosine(a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>) -> f64 {
    let dot = |a: ArrayView1<'_, f32>, b: ArrayView1<'_, f32>| -> f64 {
        let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
        products.sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn correlated_rows_are_a_prefix_and_their_segments_can_be_had_alone() {
    let all = x("correlated", 0..140);
    for tokens in [0..9, 6..8, 60..62, 63..64, 100..140, 139..140] {
        let part = x("correlated", tokens.clone());
        assert_eq!(part, all.slice(s![tokens.clone(), ..]), "{tokens:?}");
    }
    assert!(all.iter().all(|&v| bf16::from_f32(v).to_f32() == v));
    let pool = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| x("correlated", 0..140))
    };
    assert_eq!(pool(1), all);
    assert_eq!(pool(3), all);
}

/// By ChaCha8, the ziggurat and the formula written again in Python, f32 by f32.
#[test]
fn golden_bits_of_correlated() {
    let x = x("correlated", 0..70);
    for (token, bits) in [
        (0, [0xbfb9_0000_u32, 0xbda0_0000, 0xbf8a_0000]),
        (61, [0xbf77_0000, 0x3f96_0000, 0xbf8f_0000]),
        (69, [0xbf42_0000, 0x3ea4_0000, 0xbedc_0000]),
    ] {
        let found = [0, 255, 1023].map(|k| x[[token, k]].to_bits());
        assert_eq!(found, bits, "token {token}");
    }
}

/// A cosine of n values scatters by less than 1/√n about what two rows have in common.
#[test]
fn cosines_within_a_phrase_a_passage_and_beyond() {
    let inputs = Activations::open(&Inputs::Correlated, 3, &model("synthetic:flash")).unwrap();
    let y = inputs.hidden_states(20, 0..300).unwrap();
    let tolerance = 5.0 / (4096.0_f64).sqrt();
    let mut seen = [0_u32; 4];
    for a in 0..300 {
        for b in a + 1..300 {
            let (phrase, passage) = (a / 7 == b / 7, a / 61 == b / 61);
            let (kind, expected) = match (phrase, passage) {
                (true, true) => (0, 0.8),
                (false, true) => (1, 0.45),
                (true, false) => (2, 0.35),
                (false, false) => (3, 0.0),
            };
            seen[kind] += 1;
            let found = cosine(y.row(a), y.row(b));
            assert!(
                (found - expected).abs() < tolerance,
                "{a} and {b}: {found}, expected {expected}"
            );
        }
    }
    assert!(seen.iter().all(|&pairs| pairs > 0), "{seen:?}");
    let squares: f64 = y.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    // Its five passages alone scatter it by less than √(2/n); five times that.
    let scatter = (2.0_f64 / (5.0 * 4096.0)).sqrt();
    assert!((squares / y.len() as f64 - 1.0).abs() < 5.0 * scatter);
}

/// A hidden state is the first stream of the same token's row.
#[test]
fn drawn_hidden_states_are_first_streams() {
    for name in ["normal", "outlier", "copies", "correlated", "scaled:100"] {
        let inputs = drawn(name, 0);
        let rows = x(name, 0..70);
        for tokens in [0..70, 3..20, 5..5] {
            let y = inputs.hidden_states(2, tokens.clone()).unwrap();
            assert_eq!(y, rows.slice(s![tokens, ..256]), "{name}");
        }
        let other = inputs.hidden_states(3, 0..70).unwrap();
        assert_ne!(other, rows.slice(s![.., ..256]), "{name}: layer");
        assert_eq!(
            inputs.index_source(2).unwrap(),
            Some(IndexSource {
                tokens: usize::MAX,
                normed: false,
                hidden: StoredType::Bf16,
                latent: None
            })
        );
        assert_eq!(inputs.index_latent(2, 0..3).unwrap(), None);
    }
    let far = drawn("outlier", 0).hidden_states(2, 0..2).unwrap();
    let count = |row: usize| far.row(row).iter().filter(|v| v.abs() > 900.0).count();
    assert_eq!((count(0), count(1)), (3, 0));
    let embedding = drawn("embedding", 0);
    assert_eq!(embedding.index_source(2).unwrap(), None);
    let error = embedding.hidden_states(2, 0..1).unwrap_err().to_string();
    assert_sentence(&error, &["inputs are embedding", "choose other --inputs"]);
}

fn recorded(directory: &Directory, raw: &Raw) -> Activations {
    let spec = directory.write("r.safetensors", raw.bytes());
    Activations::open(&Inputs::File(spec.into()), 0, &model("synthetic:tiny")).unwrap()
}

const HIDDEN: &str = "layers.2.indexer.hidden_states";
const LATENT: &str = "layers.2.indexer.q_residual";

fn narrow(values: &[f32]) -> Vec<u8> {
    let bytes = |&value: &f32| bf16::from_f32(value).to_le_bytes();
    values.iter().flat_map(bytes).collect()
}

#[test]
fn recorded_inputs_of_an_indexer_are_as_stored() {
    let directory = Directory::new();
    let values = ramp(5 * 256);
    let raw = Raw::default()
        .tensor(HIDDEN, "BF16", &[5, 256], &narrow(&values))
        .f32(LATENT, &[5, 128], &values[..640])
        .f32("layers.3.indexer.hidden_states", &[5, 256], &values)
        .f32("layers.1.indexer.q_residual", &[5, 128], &values[..640]);
    let inputs = recorded(&directory, &raw);
    assert_eq!(
        inputs.index_source(2).unwrap(),
        Some(IndexSource {
            tokens: 5,
            normed: true,
            hidden: StoredType::Bf16,
            latent: Some(StoredType::F32)
        })
    );
    let hidden = Array2::from_shape_vec((5, 256), values.clone()).unwrap();
    let latent = Array2::from_shape_vec((5, 128), values[..640].to_vec()).unwrap();
    assert_eq!(
        inputs.hidden_states(2, 1..4).unwrap(),
        hidden.slice(s![1..4, ..])
    );
    let read = inputs.index_latent(2, 4..5).unwrap();
    assert_eq!(read.unwrap(), latent.slice(s![4..5, ..]));
    // The low-rank query may be left out, the hidden states may not.
    assert_eq!(inputs.index_source(3).unwrap().unwrap().latent, None);
    assert_eq!(inputs.index_latent(3, 0..5).unwrap(), None);
    assert_eq!(inputs.index_source(1).unwrap(), None);
    let refuse = |outcome: Result<_, ActivationsError>, phrases: &[&str]| {
        assert_sentence(
            &outcome.map(|_: Array2<f32>| ()).unwrap_err().to_string(),
            phrases,
        );
    };
    refuse(
        inputs.hidden_states(1, 0..1),
        &["holds no \"layers.1.indexer.hidden_states\"", "record it"],
    );
    refuse(
        inputs.hidden_states(2, 0..6),
        &[HIDDEN, "holds 5 tokens, 6 are asked for", "lower --context"],
    );
    // It is no file of streams.
    assert_eq!(inputs.available(2, Site::Attn), None);
    assert_eq!(inputs.tokens(2, Site::Attn, 0..1).unwrap(), None);
}

#[test]
fn recorded_inputs_of_another_indexer() {
    let directory = Directory::new();
    let values = ramp(1024);
    let hidden = || Raw::default().f32(HIDDEN, &[4, 256], &values);
    let refuse = |raw: Raw, phrases: &[&str]| {
        let inputs = recorded(&directory, &raw);
        let error = inputs.index_source(2).unwrap_err();
        assert_sentence(&error.to_string(), phrases);
    };
    for shape in [&[8_u64, 128][..], &[1024], &[1, 4, 256]] {
        refuse(
            Raw::default().f32(HIDDEN, shape, &values),
            &[
                HIDDEN,
                &format!("{shape:?}"),
                "[tokens, 256]",
                "hidden size",
            ],
        );
    }
    refuse(
        Raw::default().f32(HIDDEN, &[0, 256], &[]),
        &[HIDDEN, "[0, 256]"],
    );
    refuse(
        hidden().f32(LATENT, &[4, 96], &values[..384]),
        &[LATENT, "[4, 96]", "[tokens, 128]", "query rank"],
    );
    refuse(
        hidden().f32(LATENT, &[3, 128], &values[..384]),
        &[LATENT, "holds 3 tokens", "hidden_states 4", "same pass"],
    );
    refuse(
        Raw::default().tensor(HIDDEN, "F8_E4M3", &[4, 256], &[0; 1024]),
        &[HIDDEN, "F8_E4M3", "BF16, F16 or F32"],
    );
}

#[test]
fn recorded_streams_need_no_indexer() {
    let directory = Directory::new();
    let spec = directory.write(
        "x.safetensors",
        Raw::default().f32("x", &[1, 4, 256], &ramp(1024)).bytes(),
    );
    let inputs = Activations::open(&Inputs::File(spec.into()), 0, &model("synthetic:tiny"));
    assert_eq!(inputs.unwrap().index_source(2).unwrap(), None);
}
