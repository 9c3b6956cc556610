//! Checkpoints and inputs, good and bad, and the commands that write and show them.

use std::{borrow::Cow, collections::BTreeMap, fs};

use half::bf16;
use safetensors::{Dtype, SafeTensors, View};

use crate::scene::Scene;

/// A tensor to be written.
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for &Tensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn serialized(tensors: &BTreeMap<String, Tensor>) -> Vec<u8> {
    safetensors::serialize(tensors, None).unwrap()
}

fn f32_tensor(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|index| (index % 37) as f32 / 16.0 - 1.0);
    Tensor {
        dtype: Dtype::F32,
        shape: shape.to_vec(),
        bytes: values.flat_map(f32::to_le_bytes).collect(),
    }
}

/// A file of weights of another kind of model.
pub fn without_hyper_connections() -> Vec<u8> {
    serialized(&BTreeMap::from([
        ("embed.weight".to_owned(), f32_tensor(&[8, 4])),
        ("norm.weight".to_owned(), f32_tensor(&[4])),
    ]))
}

/// A file of recorded activations: [tokens, 4, hidden] under each name.
pub fn inputs(names: &[&str], tokens: usize, hidden: usize) -> Vec<u8> {
    let tensor = |name: &&str| ((*name).to_owned(), f32_tensor(&[tokens, 4, hidden]));
    serialized(&names.iter().map(tensor).collect())
}

/// A file of recorded sublayer outputs, [tokens, hidden] under each name, and of the streams before layer 0.
pub fn outputs(names: &[&str], tokens: usize, hidden: usize) -> Vec<u8> {
    let output = |name: &&str| ((*name).to_owned(), f32_tensor(&[tokens, hidden]));
    let mut tensors: BTreeMap<String, Tensor> = names.iter().map(output).collect();
    tensors.insert("layers.0.attn.x".to_owned(), f32_tensor(&[9, 4, 256]));
    serialized(&tensors)
}

/// A checkpoint of the hyper-connections and norms of one layer.
pub fn without_embedding(scene: &Scene, name: &str) {
    scene
        .ulpdrift("synth whole --model tiny --layers 1")
        .exits_with(0);
    let shard = shard_of(scene, "whole", "layers.0.hc_attn_fn");
    scene.put(name, fs::read(scene.path(&shard)).unwrap());
}

/// The shard of a checkpoint that holds a tensor.
fn shard_of(scene: &Scene, checkpoint: &str, tensor: &str) -> String {
    let index = scene.json(&format!("{checkpoint}/model.safetensors.index.json"));
    let shard = index["weight_map"][tensor].as_str().unwrap();
    format!("{checkpoint}/{shard}")
}

/// Overwrites one F32 value of a tensor with NaN.
pub fn poke_nan(scene: &Scene, checkpoint: &str, tensor: &str, index: usize) {
    let shard = shard_of(scene, checkpoint, tensor);
    let mut bytes = fs::read(scene.path(&shard)).unwrap();
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let begin = metadata.info(tensor).unwrap().data_offsets.0;
    let at = 8 + header + begin + 4 * index;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    scene.put(&shard, bytes);
}

/// One shard as a file of its own, its hc_fn rounded to bf16.
fn bf16_functions(scene: &Scene, shard: &str) -> Vec<u8> {
    let bytes = fs::read(scene.path(shard)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let converted = tensors.iter().map(|(name, view)| {
        let mut tensor = Tensor {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        if name.ends_with("_fn") {
            let values = view.data().chunks_exact(4);
            let values = values.map(|word| f32::from_le_bytes(word.try_into().unwrap()));
            tensor.dtype = Dtype::BF16;
            tensor.bytes = values
                .flat_map(|value| bf16::from_f32(value).to_le_bytes())
                .collect();
        }
        (name.to_owned(), tensor)
    });
    serialized(&converted.collect())
}

#[test]
fn a_synthetic_checkpoint_says_so_wherever_it_goes() {
    let scene = Scene::new();
    let made = scene
        .ulpdrift("synth ckpt --layers 1,3 --seed 5")
        .exits_with(0);
    made.prints("SYNTHETIC tiny checkpoint: 2 of 4 layers")
        .remarks_nothing();
    let run = scene.ulpdrift("run ckpt --variants tf32 --out out --dump dump");
    let run = run.exits_with(0).fits_80_columns();
    assert!(run.stdout.starts_with("SYNTHETIC weights"), "{run}");
    run.prints("Note: of the model's 4 layers these are not here: 0, 2");
    let report = scene.json("out/report.json");
    assert_eq!(report["run"]["checkpoint"]["kind"], "synthetic");
    for site in ["L1.attn", "L1.ffn", "L3.attn", "L3.ffn"] {
        let bytes = fs::read(scene.path(&format!("dump/{site}.safetensors"))).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        let said = ["kind", "source", "seed", "inputs"].map(|key| metadata[key].as_str());
        assert_eq!(said, ["SYNTHETIC", "ckpt", "0", "normal"]);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let name = format!("{site}.mixes.tf32");
        assert_eq!(tensors.tensor(&name).unwrap().shape(), [64, 24]);
    }
    let seen = scene.ulpdrift("inspect ckpt --only hc").exits_with(0);
    seen.prints("ckpt: SYNTHETIC weights").fits_80_columns();
    let gate = "gate out/report.json --baseline out/report.json";
    let gate = scene.ulpdrift(gate).exits_with(0);
    assert!(gate.stdout.starts_with("SYNTHETIC weights"), "{gate}");
}

#[test]
fn the_same_weights_on_disk_and_in_memory_give_the_same_figures() {
    let scene = Scene::new();
    scene.ulpdrift("synth ckpt").exits_with(0);
    scene
        .ulpdrift("run ckpt --suite mix,chain --format csv")
        .exits_with(0);
    let disk = scene
        .ulpdrift("run ckpt --suite mix,chain --format csv")
        .stdout;
    let memory = scene
        .ulpdrift("run synthetic:tiny --suite mix,chain --format csv")
        .stdout;
    assert!(disk == memory && disk.lines().count() == 1 + 6 * (8 * 7 + 8 * 3 + 1));
}

#[test]
fn a_directory_in_use_is_not_written_to() {
    let scene = Scene::new()
        .file("used/notes.txt", "keep me")
        .file("file", "");
    let line = "synth used";
    scene
        .ulpdrift(line)
        .must_be_refused_saying(&["'used'", "not empty", "choose a new or empty"]);
    scene
        .ulpdrift("synth file")
        .must_be_refused_saying(&["'file'", "choose another directory"]);
    scene
        .ulpdrift("synth file/below")
        .must_be_refused_saying(&["'file/below'"]);
    scene
        .ulpdrift("synth /proc/ulpdrift")
        .must_be_refused_saying(&["'/proc/ulpdrift'"]);
    let parts = ["--layers '9'", "1 to 4"];
    scene
        .ulpdrift("synth new --layers 9")
        .must_be_refused_saying(&parts);
    scene
        .ulpdrift("synth new --layers 2-9")
        .must_be_refused_saying(&["--layers", "0-3"]);
    scene
        .ulpdrift("synth new --seed -1")
        .must_be_refused_saying(&["--seed", "whole number"]);
}

#[test]
fn weights_stored_in_bf16_are_called_a_loss() {
    let scene = Scene::new();
    scene.ulpdrift("synth ckpt --layers 1").exits_with(0);
    let shard = shard_of(&scene, "ckpt", "layers.0.hc_attn_fn");
    scene.put("bf16.safetensors", bf16_functions(&scene, &shard));
    let run = scene
        .ulpdrift("run bf16.safetensors --variants fp32,bf16")
        .exits_with(0);
    run.prints("hc_fn is stored as BF16, which is already a loss")
        .fits_80_columns();
    let seen = scene
        .ulpdrift("inspect bf16.safetensors --only hc")
        .exits_with(0);
    seen.prints("2 hc_fn are stored as BF16: already a loss")
        .fits_80_columns();
}

#[test]
fn inspect_shows_what_a_broken_checkpoint_still_has() {
    let scene = Scene::new();
    scene.ulpdrift("synth ckpt").exits_with(0);
    let shard = shard_of(&scene, "ckpt", "layers.2.hc_attn_fn");
    let whole = fs::read(scene.path(&shard)).unwrap();
    let name = shard.strip_prefix("ckpt/").unwrap();

    scene.put(&shard, &whole[..whole.len() / 2]);
    scene
        .ulpdrift("run ckpt --out out")
        .must_be_refused_saying(&[name, "truncated", "again"]);
    let seen = scene
        .ulpdrift("inspect ckpt")
        .exits_with(0)
        .fits_80_columns();
    seen.prints("3 of 4 layers")
        .prints("truncated")
        .prints("\nlayer 3 ");

    fs::remove_file(scene.path(&shard)).unwrap();
    let parts = [name, "1 of 5 shards are absent", "finish the download"];
    scene
        .ulpdrift("run ckpt --layers 0 --out out")
        .must_be_refused_saying(&parts);
    let seen = scene
        .ulpdrift("inspect ckpt")
        .exits_with(0)
        .fits_80_columns();
    seen.prints("there is no such file")
        .prints("missing in the layers that are here: nothing")
        .prints("\nlayer 3 ");
}

#[test]
fn vectors_are_verified_with_the_right_exit_codes() {
    let fixture = |name: &str| format!("{}/fixtures/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let good = fixture("model_sm_80_bf16.safetensors");
    let scene = Scene::new()
        .file("text.safetensors", "no vectors at all")
        .file("other.safetensors", without_hyper_connections());
    let verify = |arguments: &str| scene.ulpdrift(&format!("mma verify {arguments}"));
    verify(&good)
        .exits_with(0)
        .prints("0 of 26624 outputs differ")
        .remarks_nothing();
    let differs = verify(&format!("{good} --arch sm_120")).exits_with(1);
    differs
        .prints("5594 of 26624 outputs differ")
        .remarks_nothing();
    verify(&format!("{good} text.safetensors")).must_be_refused_saying(&["text.safetensors"]);
    verify("other.safetensors").must_be_refused_saying(&["other.safetensors", "metadata"]);
    verify("absent").must_be_refused_saying(&["absent", "check the path"]);
    verify(&format!("{good} --arch sm_75")).must_be_refused_saying(&["--arch", "sm_80, sm_86"]);
    let fp8 = fixture("h200_sm_90_e4m3.safetensors");
    verify(&format!("{fp8} --arch sm_80")).must_be_refused_saying(&["sm_80 has no"]);
}
