//! Bytes per second of the checkpoint reader: one full-size layer's hyper-connection tensors in F32, BF16
//! and F16, beside a plain read of the same bytes into a reused buffer; and opening a checkpoint.

use std::{
    fs::File,
    hint::black_box,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use ulpdrift::checkpoint::{
    Checkpoint, NonFinite, ReadBuffers, Site, StoredType, SyntheticModel, write_synthetic,
};

/// A checkpoint of layer 0 alone, its hyper-connection tensors stored in a given type.
struct Written {
    folder: tempfile::TempDir,
    shard: PathBuf,
}

impl Written {
    fn new(model: SyntheticModel, stored: StoredType) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("checkpoint");
        write_synthetic(&target, model, &[0], 0).expect("a folder of our own");
        let files = std::fs::read_dir(&target).expect("written just now");
        let paths = files.flatten().map(|file| file.path());
        let shard = paths.filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
        let shard = shard.last().expect("one shard");
        keep_hc(&shard, stored);
        let index = target.join("model.safetensors.index.json");
        let _ = std::fs::remove_file(index);
        let alone = target.join("model.safetensors");
        std::fs::rename(&shard, &alone).expect("a folder of our own");
        Self {
            folder,
            shard: alone,
        }
    }

    fn spec(&self) -> String {
        let target = self.folder.path().join("checkpoint");
        target.to_string_lossy().into_owned()
    }
}

/// Rewrites a shard of F32 tensors with the hyper-connection ones alone, in another type.
fn keep_hc(shard: &Path, stored: StoredType) {
    let bytes = std::fs::read(shard).expect("written just now");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let (dtype, convert): (Dtype, fn(f32) -> Vec<u8>) = match stored {
        StoredType::Bf16 => (Dtype::BF16, |x| bf16::from_f32(x).to_le_bytes().to_vec()),
        StoredType::F16 => (Dtype::F16, |x| f16::from_f32(x).to_le_bytes().to_vec()),
        _ => (Dtype::F32, |x| x.to_le_bytes().to_vec()),
    };
    let converted: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .filter(|(name, _)| name.contains("hc_"))
        .map(|(name, view)| {
            let words = view.data().as_chunks::<4>().0.iter();
            let data = words.flat_map(|word| convert(f32::from_le_bytes(*word)));
            (name.to_owned(), view.shape().to_vec(), data.collect())
        })
        .collect();
    let views = converted.iter().map(|(name, shape, data)| {
        let view = TensorView::new(dtype, shape.clone(), data).expect("data of that shape");
        (name, view)
    });
    safetensors::serialize_to_file(views, None, shard).expect("a folder of our own");
}

fn layers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one layer");
    group.sample_size(20);
    for stored in [StoredType::F32, StoredType::Bf16, StoredType::F16] {
        let written = Written::new(SyntheticModel::Flash, stored);
        let file = File::open(&written.shard).expect("written just now");
        let length = file.metadata().expect("it is there").len();
        group.throughput(Throughput::Bytes(length));
        let mut buffer = vec![0; 1 << 18];
        group.bench_function(format!("plain read, {stored}"), |bencher| {
            bencher.iter(|| read_plainly(&file, length, &mut buffer));
        });
        let checkpoint = Checkpoint::open(&written.spec()).expect("written just now");
        group.bench_function(format!("decode, {stored}"), |bencher| {
            bencher.iter(|| {
                for site in Site::ALL {
                    let weights = checkpoint.hc(0, site, NonFinite::Refuse);
                    black_box(weights.expect("readable"));
                }
            });
        });
        let inventory = checkpoint.inventory();
        let mut buffers = ReadBuffers::default();
        group.bench_function(format!("statistics, {stored}"), |bencher| {
            bencher.iter(|| {
                for item in &inventory.items {
                    black_box(checkpoint.stats(item, &mut buffers)).expect("readable");
                }
            });
        });
    }
    group.finish();
}

fn read_plainly(file: &File, length: u64, buffer: &mut [u8]) {
    for start in (0..length).step_by(buffer.len()) {
        let take = (length - start).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..take], start)
            .expect("readable");
        black_box(&buffer[..take]);
    }
}

fn open(criterion: &mut Criterion) {
    let written = Written::new(SyntheticModel::Tiny, StoredType::F32);
    let spec = written.spec();
    criterion.bench_function("open, tiny", |bencher| {
        bencher.iter(|| black_box(Checkpoint::open(&spec)).is_ok());
    });
}

criterion_group!(benches, layers, open);
criterion_main!(benches);
