//! A checkpoint written by another project's code, read as it is.

use std::path::PathBuf;

use ulpdrift::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, Family, NonFinite, Site, StoredType, WeightKind},
};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/transformers_tiny")
        .join(name)
}

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(fixture(name).to_str().unwrap()).unwrap()
}

#[test]
fn transformers_tiny() {
    let checkpoint = open("");
    let model = checkpoint.model();
    assert_eq!(checkpoint.kind(), WeightKind::Real);
    assert_eq!(checkpoint.layers(), [0, 1, 2, 3]);
    assert_eq!(
        (model.family, model.hidden, model.layers),
        (Family::Other, 256, 4)
    );
    assert_eq!(
        (model.hc_eps, model.norm_eps, model.sinkhorn_iters),
        (1e-6, 1e-6, 20)
    );
    assert_eq!(model.index_topk, Some(16));
    // Seven shards are left out of the fixture, which is one remark, not seven.
    assert_eq!(model.notes.len(), 1, "{:?}", model.notes);
    assert!(model.notes[0].contains("7 of 11 shards are absent"));
    // The first and last words of two tensors, taken from the file with Python.
    let weights = checkpoint.hc(0, Site::Attn, NonFinite::Refuse).unwrap();
    assert_eq!(weights.function.dim(), (24, 1024));
    assert_eq!(weights.dtype, StoredType::F32);
    let bits = [
        weights.function[[0, 0]],
        weights.function[[23, 1023]],
        weights.base[0],
        weights.scale[2],
    ];
    assert_eq!(
        bits.map(f32::to_bits),
        [0xbf37_6f48, 0xbc1b_04af, 0xbd1b_4ac8, 0x3f4c_cccd]
    );
}

#[test]
fn one_shard_of_it_with_its_config() {
    let checkpoint = open("model-00003-of-00011.safetensors");
    assert_eq!(
        (checkpoint.layers(), checkpoint.model().layers),
        ([1].as_slice(), 4)
    );
    let whole = open("");
    for site in Site::ALL {
        let weights = checkpoint.hc(1, site, NonFinite::Refuse).unwrap();
        assert_eq!(weights, whole.hc(1, site, NonFinite::Refuse).unwrap());
    }
}

#[test]
fn its_captured_inputs() {
    let checkpoint = open("");
    let inputs = Inputs::File(fixture("captured.safetensors"));
    let inputs = Activations::open(&inputs, 0, checkpoint.model()).unwrap();
    assert_eq!(inputs.available(0, Site::Ffn), Some(64));
    assert_eq!(inputs.exact_in(0, Site::Ffn), Some(StoredType::Bf16));
    assert_eq!(inputs.available(2, Site::Attn), None);
    assert!(inputs.tokens(2, Site::Attn, 0..1).unwrap().is_none());
    let x = inputs.tokens(0, Site::Attn, 0..64).unwrap().unwrap();
    assert_eq!(x.dim(), (64, 1024));
    // Before layer 0 the embedding is the same in all streams: stream-major order shows it.
    for row in x.rows() {
        for stream in 1..4 {
            let first = row.slice(ndarray::s![..256]);
            let other = row.slice(ndarray::s![256 * stream..256 * (stream + 1)]);
            assert_eq!(first, other);
        }
    }
}
