use std::{collections::HashMap, path::PathBuf};

use safetensors::{Dtype, serialize, tensor::TensorView};

use super::*;

/// One tile of ones times ones plus zero, as a vector file that tests spoil.
struct Recording {
    tensors: Vec<(&'static str, Dtype, Vec<usize>, Vec<u8>)>,
    metadata: Option<HashMap<String, String>>,
}

impl Recording {
    fn good() -> Self {
        let words = |word: u32, n| word.to_le_bytes().repeat(n);
        let halves = |half: u16, n| half.to_le_bytes().repeat(n);
        let metadata = [
            ("arch", "sm_90"),
            (
                "instruction",
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            ),
            ("categories", r#"["ones"]"#),
            ("source", "test"),
        ];
        Self {
            tensors: vec![
                ("a", Dtype::U16, vec![1, 16, 16], halves(0x3f80, 256)),
                ("b", Dtype::U16, vec![1, 16, 8], halves(0x3f80, 128)),
                ("c", Dtype::U32, vec![1, 16, 8], words(0, 128)),
                ("d", Dtype::U32, vec![1, 16, 8], words(0x4180_0000, 128)),
                ("category", Dtype::U8, vec![1], vec![0]),
            ],
            metadata: Some(
                metadata
                    .map(|(key, text)| (key.to_owned(), text.to_owned()))
                    .into(),
            ),
        }
    }

    /// One tile of ones in fp4, under scales of two and of one.
    fn block_scaled() -> Self {
        let words = |word: u32| word.to_le_bytes().repeat(128);
        let mut recording = Self::good()
            .with_metadata("arch", "sm_120")
            .with_metadata(
                "instruction",
                "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
            )
            .with_tensor("a", Dtype::U8, &[1, 16, 64], vec![2; 1024])
            .with_tensor("b", Dtype::U8, &[1, 64, 8], vec![2; 512])
            .with_tensor("d", Dtype::U32, &[1, 16, 8], words(0x4300_0000));
        let scales = [
            ("scale_a", Dtype::U8, vec![1, 16, 2], vec![128; 32]),
            ("scale_b", Dtype::U8, vec![1, 2, 8], vec![127; 16]),
        ];
        recording.tensors.extend(scales);
        recording
    }

    fn with_metadata(mut self, key: &str, text: &str) -> Self {
        self.metadata
            .get_or_insert_default()
            .insert(key.to_owned(), text.to_owned());
        self
    }

    fn without_metadata(mut self, key: &str) -> Self {
        self.metadata.get_or_insert_default().remove(key);
        self
    }

    fn with_tensor(mut self, name: &str, dtype: Dtype, shape: &[usize], data: Vec<u8>) -> Self {
        let tensor = self
            .tensors
            .iter_mut()
            .find(|tensor| tensor.0 == name)
            .unwrap();
        (tensor.1, tensor.2, tensor.3) = (dtype, shape.to_vec(), data);
        self
    }

    fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.0 != name);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, dtype, shape, data)| {
            (*name, TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        serialize(views, self.metadata.clone()).unwrap()
    }

    fn replay(&self) -> Result<Replay, VectorError> {
        replay(&self.bytes(), None, &Level::ALL)
    }

    fn message(&self) -> String {
        self.replay().unwrap_err().to_string()
    }
}

#[test]
fn a_good_recording_is_replayed() {
    let replay = Recording::good().replay().unwrap();
    assert_eq!((replay.outputs(), replay.mismatches()), (128, 0));
    assert_eq!(replay.arch, Some(Arch::Sm90));
    assert_eq!(replay.source.as_deref(), Some("test"));
    assert_eq!(replay.categories[0].name, "ones");
}

#[test]
fn the_first_wrong_output_is_located() {
    let mut recording = Recording::good();
    recording.tensors[3].3[4 * (3 * 8 + 5)] ^= 1;
    let replay = recording.replay().unwrap();
    assert_eq!(replay.mismatches(), 1);
    let first = Mismatch {
        tile: 0,
        row: 3,
        col: 5,
        form: Form::Scalar,
        got: 0x4180_0000,
        want: 0x4180_0001,
    };
    assert_eq!(replay.categories[0].first, Some(first));
}

/// The unit returns one NaN; a recording with another is a mismatch, not a match of NaN with NaN.
#[test]
fn nan_compares_by_its_bits() {
    let nan = |word: u32| {
        let recording = Recording::good()
            .with_tensor(
                "a",
                Dtype::U16,
                &[1, 16, 16],
                0x7fc0_u16.to_le_bytes().repeat(256),
            )
            .with_tensor("d", Dtype::U32, &[1, 16, 8], word.to_le_bytes().repeat(128));
        recording.replay().unwrap().mismatches()
    };
    assert_eq!(nan(0x7fff_ffff), 0);
    assert_eq!(nan(0x7fc0_0000), 128);
}

#[test]
fn hostile_files_get_one_clear_sentence() {
    let good = Recording::good;
    let cases = [
        (
            good().without_metadata("arch"),
            "no metadata entry 'arch': expected an architecture such as sm_90; --arch names one instead",
        ),
        (
            good().without_metadata("instruction"),
            "no metadata entry 'instruction': expected the PTX name of what was recorded",
        ),
        (
            good().without_metadata("categories"),
            "no metadata entry 'categories': expected a JSON list of names",
        ),
        (
            good().with_metadata("categories", "ones"),
            "metadata entry 'categories' is \"ones\": expected a JSON list of names",
        ),
        (
            good().with_metadata("arch", "sm_75"),
            "metadata entry 'arch': architecture 'sm_75' is not one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120",
        ),
        (
            good().without_tensor("b"),
            "no tensor 'b': expected a, b, c, d and category, with scale_a and scale_b if the instruction is block-scaled, or x, rna_tf32 and rn_bf16",
        ),
        (
            good().with_tensor("a", Dtype::F16, &[1, 16, 16], vec![0; 512]),
            "tensor 'a' is F16: expected U16, the operand's raw bits",
        ),
        (
            good().with_tensor("a", Dtype::U16, &[1, 16, 8], vec![0; 256]),
            "tensor 'a' has shape [1, 16, 8]: expected [1, 16, 16]",
        ),
        (
            good().with_tensor("a", Dtype::U16, &[256], vec![0; 512]),
            "tensor 'a' has shape [256]: expected [tiles, m, k]",
        ),
        (
            good().with_tensor("d", Dtype::U32, &[1, 8, 16], vec![0; 512]),
            "tensor 'd' has shape [1, 8, 16]: expected [1, 16, 8]",
        ),
        (
            good().with_tensor("category", Dtype::U8, &[2], vec![0; 2]),
            "tensor 'a' has shape [1, 16, 16]: expected [2, 16, 16]",
        ),
        (
            good().with_tensor("category", Dtype::U8, &[1], vec![1]),
            "tile 0 has category 1, but the metadata name only 1: one of the two is wrong",
        ),
        (
            Recording {
                metadata: None,
                ..good()
            },
            "no metadata entry 'instruction': expected the PTX name of what was recorded",
        ),
    ];
    for (recording, want) in cases {
        assert_eq!(recording.message(), want);
    }
    let message = good()
        .with_metadata("instruction", "mma.m16n8k16.f32.int4")
        .message();
    assert!(
        message.contains("'mma.m16n8k16.f32.int4' is not a known matrix instruction"),
        "{message}"
    );
    let wgmma = good().with_metadata("instruction", "wgmma.m64n8k16.f32.bf16.bf16");
    let message = wgmma.with_metadata("arch", "sm_120").message();
    assert!(
        message.starts_with("sm_120 has no wgmma bf16 k16 instruction"),
        "{message}"
    );
}

#[test]
fn files_that_are_none_or_cut_off_say_so() {
    let bytes = Recording::good().bytes();
    let cut_off = [0, 7, 100, bytes.len() - 1].map(|len| bytes[..len].to_vec());
    let pickle = b"PK\x03\x04 not safetensors at all".to_vec();
    for bytes in cut_off.into_iter().chain([pickle]) {
        let message = replay(&bytes, None, &[]).unwrap_err().to_string();
        assert!(
            message.starts_with("is not a whole safetensors file ("),
            "{message}"
        );
    }
    let path = PathBuf::from("no such file");
    let message = replay_file(&path, None, &[]).unwrap_err().to_string();
    assert!(message.starts_with("cannot be read ("), "{message}");
}

#[test]
fn empty_recordings_and_empty_shapes_are_no_panic() {
    let empty = Recording::good()
        .with_tensor("a", Dtype::U16, &[0, 16, 16], vec![])
        .with_tensor("b", Dtype::U16, &[0, 16, 8], vec![])
        .with_tensor("c", Dtype::U32, &[0, 16, 8], vec![])
        .with_tensor("d", Dtype::U32, &[0, 16, 8], vec![])
        .with_tensor("category", Dtype::U8, &[0], vec![]);
    assert_eq!(
        empty.message(),
        "holds no tiles: there is nothing to verify"
    );
    let no_rows = Recording::good()
        .with_tensor("a", Dtype::U16, &[1, 0, 16], vec![])
        .with_tensor("c", Dtype::U32, &[1, 0, 8], vec![])
        .with_tensor("d", Dtype::U32, &[1, 0, 8], vec![]);
    assert_eq!(
        no_rows.message(),
        "holds no tiles: there is nothing to verify"
    );
    let scalar = Recording::good().with_tensor("category", Dtype::U8, &[], vec![0]);
    assert_eq!(
        scalar.message(),
        "tensor 'category' has shape []: expected [0]"
    );
}

#[test]
fn conversions_are_compared_word_by_word() {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut recording = Recording::good();
    recording.tensors = vec![
        ("x", Dtype::U32, vec![2], words(&[0x3f80_1000, 0x7fc1_2345])),
        (
            "rna_tf32",
            Dtype::U32,
            vec![2],
            words(&[0x3f80_2000, 0x7fc1_2000]),
        ),
        ("rn_bf16", Dtype::U16, vec![2], vec![0x80, 0x3f, 0xc1, 0x7f]),
    ];
    let replay = recording.replay().unwrap();
    assert_eq!(
        replay
            .categories
            .iter()
            .map(|c| c.mismatches)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(
        replay.categories[1].first.map(|first| first.got),
        Some(0x7fff)
    );
    recording.tensors[2].2 = vec![1, 2];
    assert_eq!(
        recording.message(),
        "tensor 'rn_bf16' has shape [1, 2]: expected [2]"
    );
}

#[test]
fn a_block_scaled_recording_is_replayed() {
    let good = Recording::block_scaled().replay().unwrap();
    assert_eq!((good.outputs(), good.mismatches()), (128, 0));
    let other_scale = Recording::block_scaled()
        .with_tensor(
            "scale_b",
            Dtype::U8,
            &[1, 2, 8],
            [vec![127; 15], vec![126]].concat(),
        )
        .replay()
        .unwrap();
    // The last scale is that of the last column's second half.
    assert_eq!(other_scale.mismatches(), 16);
    let first = other_scale.categories[0].first.unwrap();
    assert_eq!((first.row, first.col, first.got), (0, 7, 0x42c0_0000));
}

#[test]
fn hostile_block_scaled_files_get_one_clear_sentence() {
    let good = Recording::block_scaled;
    let cases = [
        (
            good().without_tensor("scale_b"),
            "no tensor 'scale_b': expected a, b, c, d and category, with scale_a and scale_b if the instruction is block-scaled, or x, rna_tf32 and rn_bf16",
        ),
        (
            good().with_tensor("scale_a", Dtype::U8, &[1, 16, 4], vec![127; 64]),
            "tensor 'scale_a' has shape [1, 16, 4]: expected [1, 16, 2]",
        ),
        (
            good().with_tensor("a", Dtype::U8, &[1, 16, 64], vec![0x22; 1024]),
            "tensor 'a' holds the byte 0x22: expected one e2m1 code per byte, in its low bits",
        ),
        (
            good().with_metadata("arch", "sm_90"),
            "sm_90 has no block-scaled mma.sync mxf4 k64 instruction: emulate sm_100 (tcgen05) or sm_120 (mma.sync)",
        ),
        (
            good().with_metadata("arch", "sm_100"),
            "sm_100 has no block-scaled mma.sync mxf4 k64 instruction; for mxf4 use tcgen05 mxf4",
        ),
    ];
    for (recording, want) in cases {
        assert_eq!(recording.message(), want);
    }
    let message = good()
        .with_metadata(
            "instruction",
            "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e4m3.f32.ue8m0",
        )
        .message();
    assert!(
        message.contains("is not a known matrix instruction"),
        "{message}"
    );
}
