//! Generated and recorded inputs.

use std::str::FromStr;

use half::{bf16, f16};
use ndarray::{Array2, s};
use ulpdrift::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, Model, Site, StoredType},
};

use crate::support::{Directory, Raw, assert_sentence, ramp};

fn tiny() -> Model {
    Checkpoint::open("synthetic:tiny").unwrap().model().clone()
}

fn rows(inputs: &str, seed: u64, layer: u32, tokens: std::ops::Range<usize>) -> Array2<f32> {
    let inputs = Activations::open(&Inputs::from_str(inputs).unwrap(), seed, &tiny()).unwrap();
    inputs.tokens(layer, Site::Attn, tokens).unwrap().unwrap()
}

fn rms(x: &Array2<f32>) -> f64 {
    (x.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / x.len() as f64).sqrt()
}

#[test]
fn names_and_their_errors() {
    for name in [
        "normal",
        "outlier",
        "copies",
        "correlated",
        "scaled:0.001",
        "scaled:70000",
        "embedding",
        "file:/a b/c:d",
    ] {
        assert_eq!(Inputs::from_str(name).unwrap().to_string(), name);
    }
    assert_eq!(Inputs::from_str("scaled:7e4").unwrap(), Inputs::Scaled(7e4));
    for name in ["", "Normal", "scaled", "file:", "normal:1"] {
        let error = Inputs::from_str(name).unwrap_err().to_string();
        assert_sentence(&error, &[name, "choose normal, outlier"]);
    }
    for name in [
        "scaled:",
        "scaled:nan",
        "scaled:inf",
        "scaled:0",
        "scaled:-1",
        "scaled:7.1e4",
    ] {
        let error = Inputs::from_str(name).unwrap_err().to_string();
        assert_sentence(&error, &[name, "1e-3 to 7e4"]);
    }
}

#[test]
fn fewer_tokens_are_a_prefix_and_sites_share() {
    for name in ["normal", "outlier", "copies", "correlated", "scaled:100"] {
        let all = rows(name, 5, 2, 0..40);
        assert_eq!(rows(name, 5, 2, 0..7), all.slice(s![..7, ..]), "{name}");
        assert_eq!(rows(name, 5, 2, 33..40), all.slice(s![33.., ..]), "{name}");
        assert_ne!(rows(name, 6, 2, 0..40), all, "{name}: seed");
        assert_ne!(rows(name, 5, 3, 0..40), all, "{name}: layer");
        assert_eq!(rows(name, 5, 2, 4..4).dim(), (0, 1024), "{name}");
        let inputs = Activations::open(&Inputs::from_str(name).unwrap(), 5, &tiny()).unwrap();
        assert_eq!(
            inputs.tokens(2, Site::Ffn, 0..40).unwrap().unwrap(),
            all,
            "{name}"
        );
        assert!(
            all.iter().all(|&v| bf16::from_f32(v).to_f32() == v),
            "{name}: exact in bf16"
        );
        assert_eq!(inputs.exact_in(2, Site::Ffn), Some(StoredType::Bf16));
    }
}

#[test]
fn thread_count_changes_nothing() {
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    };
    let one = pool(1).install(|| rows("outlier", 0, 0, 0..33));
    assert_eq!(pool(3).install(|| rows("outlier", 0, 0, 0..33)), one);
}

#[test]
fn golden_bits_of_normal() {
    let x = rows("normal", 0, 0, 0..2);
    let bits = [x[[0, 0]], x[[0, 1023]], x[[1, 0]], x[[1, 1023]]].map(f32::to_bits);
    assert_eq!(bits, [0x3ea0_0000, 0x3eed_0000, 0xbff3_0000, 0xbf44_0000]);
}

#[test]
fn scales() {
    assert!((rms(&rows("normal", 0, 0, 0..64)) - 1.0).abs() < 0.01);
    assert!((rms(&rows("scaled:0.001", 0, 0, 0..64)) / 1e-3 - 1.0).abs() < 0.01);
    assert!((rms(&rows("scaled:70000", 0, 0, 0..64)) / 7e4 - 1.0).abs() < 0.01);
}

#[test]
fn outliers_are_three_channels_of_the_first_row() {
    let x = rows("outlier", 0, 1, 0..16);
    let far = |row: usize, stream: usize| -> Vec<usize> {
        let channels = (0..256).filter(|c| x[[row, stream * 256 + c]].abs() > 900.0);
        channels.collect()
    };
    let channels = far(0, 0);
    assert_eq!(channels.len(), 3);
    for stream in 0..4 {
        assert_eq!(far(0, stream), channels);
        for &channel in &channels {
            let value = f64::from(x[[0, stream * 256 + channel]]);
            assert!((1e3..=7e4).contains(&value.abs()), "{value}");
            assert!((value / f64::from(x[[0, channel]]) - 1.0).abs() < 0.04);
        }
    }
    assert!((1..16).all(|row| far(row, 0).is_empty()));
    let normal = rows("normal", 0, 1, 0..16);
    assert_eq!(x.slice(s![1.., ..]), normal.slice(s![1.., ..]));
}

#[test]
fn copies_are_near() {
    let x = rows("copies", 0, 0, 0..64);
    for stream in 1..4 {
        let first = x.slice(s![.., ..256]).to_owned();
        let other = x.slice(s![.., 256 * stream..256 * (stream + 1)]).to_owned();
        let distance = rms(&(&other - &first)) / rms(&first);
        // √2 · 0.01, and bf16 rounding on top.
        assert!((0.013..0.016).contains(&distance), "{distance}");
    }
}

#[test]
fn recorded_inputs_of_every_type() {
    let directory = Directory::new();
    let values = ramp(3 * 1024);
    let f16s: Vec<u8> = values
        .iter()
        .flat_map(|&v| f16::from_f32(v).to_le_bytes())
        .collect();
    let bf16s: Vec<u8> = values
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect();
    let spec = directory.write(
        "x.safetensors",
        Raw::default()
            .tensor("layers.0.attn.x", "F16", &[3, 4, 256], &f16s)
            .tensor("layers.0.ffn.x", "BF16", &[3, 4, 256], &bf16s)
            .f32("x", &[2, 4, 256], &values[..2048])
            .f32("layers.0.indexer.hidden_states", &[3, 256], &values[..768])
            .bytes(),
    );
    let inputs = Activations::open(&Inputs::File(spec.into()), 0, &tiny()).unwrap();
    let expected = Array2::from_shape_vec((3, 1024), values).unwrap();
    for (layer, site, stored, tokens) in [
        (0, Site::Attn, StoredType::F16, 3),
        (0, Site::Ffn, StoredType::Bf16, 3),
        (1, Site::Attn, StoredType::F32, 2),
    ] {
        assert_eq!(inputs.exact_in(layer, site), Some(stored));
        assert_eq!(inputs.available(layer, site), Some(tokens));
        let x = inputs.tokens(layer, site, 1..tokens).unwrap().unwrap();
        assert_eq!(x, expected.slice(s![1..tokens, ..]));
    }
    let error = inputs.tokens(1, Site::Ffn, 0..3).unwrap_err().to_string();
    assert_sentence(&error, &["holds 2 tokens, 3 are asked for", "--tokens"]);
}

#[test]
fn recorded_inputs_that_do_not_fit() {
    let directory = Directory::new();
    let refuse = |raw: Raw, phrases: &[&str]| {
        let spec = directory.write("x.safetensors", raw.bytes());
        let outcome = Activations::open(&Inputs::File(spec.into()), 0, &tiny());
        assert_sentence(&outcome.unwrap_err().to_string(), phrases);
    };
    let x = |shape: &[u64]| {
        let count = shape.iter().product::<u64>() as usize;
        Raw::default().f32("layers.0.attn.x", shape, &ramp(count))
    };
    refuse(x(&[2, 4, 128]), &["[2, 4, 128]", "[tokens, 4, 256]"]);
    refuse(x(&[2, 2, 256]), &["[2, 2, 256]", "[tokens, 4, 256]"]);
    refuse(x(&[2, 1024]), &["[2, 1024]", "[tokens, 4, 256]"]);
    refuse(
        Raw::default().f32("y", &[1], &[0.0]),
        &["no layers.N.attn.x", "1 tensors"],
    );
    let raw = Raw::default().tensor("x", "F8_E4M3", &[1, 4, 256], &[0; 1024]);
    refuse(raw, &["F8_E4M3", "BF16, F16 or F32"]);
    let missing = Activations::open(&Inputs::File("/no/such/file".into()), 0, &tiny());
    assert_sentence(
        &missing.unwrap_err().to_string(),
        &["/no/such/file", "does not exist"],
    );
}

#[test]
fn recorded_outputs() {
    let directory = Directory::new();
    let values = ramp(3 * 256);
    let raw = |outputs: Raw| {
        let spec = directory.write("f.safetensors", outputs.bytes());
        Activations::open(&Inputs::File(spec.into()), 0, &tiny()).unwrap()
    };
    let x = || Raw::default().f32("x", &[3, 4, 256], &ramp(3 * 1024));
    let bf16s: Vec<u8> = values
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect();
    let inputs = raw(x().f32("layers.1.attn.f", &[3, 256], &values).tensor(
        "layers.1.ffn.f",
        "BF16",
        &[3, 256],
        &bf16s,
    ));
    let expected = Array2::from_shape_vec((3, 256), values.clone()).unwrap();
    for site in Site::ALL {
        assert_eq!(inputs.output(1, site, 3).unwrap(), expected);
        assert_eq!(
            inputs.output(1, site, 2).unwrap(),
            expected.slice(s![..2, ..])
        );
    }
    let refuse = |inputs: &Activations, tokens: usize, phrases: &[&str]| {
        let error = inputs.output(1, Site::Attn, tokens).unwrap_err();
        assert_sentence(&error.to_string(), phrases);
    };
    refuse(
        &inputs,
        4,
        &["layers.1.attn.f", "holds 3 tokens, 4 are asked for"],
    );
    refuse(
        &raw(x()),
        1,
        &["holds no \"layers.1.attn.f\"", "record it", "--sublayer"],
    );
    for shape in [&[3, 4, 64][..], &[768], &[6, 128]] {
        let odd = raw(x().f32("layers.1.attn.f", shape, &values));
        refuse(&odd, 1, &["layers.1.attn.f", "expected [tokens, 256]"]);
    }
    let odd = x().tensor("layers.1.attn.f", "F8_E4M3", &[3, 256], &[0; 768]);
    refuse(&raw(odd), 1, &["F8_E4M3", "BF16, F16 or F32"]);
    let mut late = values;
    late[2 * 256 + 7] = f32::INFINITY;
    let odd = raw(x().f32("layers.1.attn.f", &[3, 256], &late));
    refuse(&odd, 3, &["holds inf at token 2", "lower --tokens to 2"]);
    assert!(odd.output(1, Site::Attn, 2).is_ok());
    for name in ["normal", "embedding"] {
        let drawn = Activations::open(&name.parse().unwrap(), 0, &tiny()).unwrap();
        refuse(
            &drawn,
            1,
            &[&format!("the inputs are {name}"), "--inputs file:PATH"],
        );
    }
}

#[test]
fn token_ids_are_uniform_and_a_prefix_of_more() {
    let ids = |seed, tokens| {
        let inputs = Activations::open(&Inputs::Embedding, seed, &tiny()).unwrap();
        inputs.token_ids(1000, tokens)
    };
    let all = ids(3, 0..20_000);
    assert_eq!(all[..7], ids(3, 0..7));
    assert_eq!(all[5..9], ids(3, 5..9));
    assert_ne!(all[..7], ids(4, 0..7));
    let mut counts = [0_u32; 10];
    for &id in &all {
        counts[id as usize / 100] += 1;
    }
    // Five standard deviations of a binomial.
    assert!(
        counts.iter().all(|count| (1788..=2212).contains(count)),
        "{counts:?}"
    );
    // By ChaCha8 in Python; a change here changes every chain that began with an embedding.
    assert_eq!(ids(0, 0..4), [128, 590, 108, 719]);
    let inputs = Activations::open(&Inputs::Embedding, 0, &tiny()).unwrap();
    assert_eq!(
        inputs.tokens(0, Site::Attn, 0..1).unwrap(),
        None,
        "it is no site's x"
    );
}
