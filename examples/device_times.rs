//! Times of the projection on a device: every recipe and cuBLAS at a few batches, K = 16384, against a
//! copy measured in the same process. `scripts/device-check` runs it.

use std::process::ExitCode;

use ndarray::Array2;
use ulpdrift::{
    backend::{
        Backend, MixInputs,
        cuda::{
            Cuda,
            blas::Product,
            options::Stored,
            source::Sources,
            time::{self, Timing},
        },
    },
    format::{Format, Rounding, bf16},
    random::{Key, Purpose, Stream},
    recipe::{catalogue::builtin, splits::Launch},
};

const DEPTH: usize = 16384;
const OUTPUTS: usize = 24;
const BATCHES: [usize; 4] = [64, 512, 4096, 8192];

fn normals(rows: usize, item: u64) -> Array2<f32> {
    let mut stream = Stream::new(Key {
        seed: 5,
        purpose: Purpose::Activations,
        layer: 0,
        token: item,
    });
    let mut values = vec![0.0; rows * DEPTH];
    stream.fill_normal(&mut values);
    Array2::from_shape_vec((rows, DEPTH), values).expect("of this size")
}

fn main() -> ExitCode {
    let nvrtc = std::env::var_os("ULPDRIFT_NVRTC").map(std::path::PathBuf::from);
    let cuda = match Cuda::open(0, nvrtc.as_deref(), Sources::default()) {
        Ok(cuda) => cuda,
        Err(reason) => {
            println!("skipped: no device ({reason})");
            return ExitCode::from(3);
        }
    };
    let device = cuda.device();
    device.bind().expect("the device is there");
    let copy = time::copy_rate(device).expect("a copy");
    println!(
        "{:?}\ncopy: {copy:.0} GB/s, read and written\n",
        cuda.info()
    );
    let names = std::env::args().skip(1).collect::<Vec<_>>();
    let function = normals(OUTPUTS, 1 << 40);
    let all = normals(8192, 0).mapv(|x| bf16::round_f32(x, Rounding::NearestEven));
    println!(
        "Microseconds of projection and sum of the splits, and the share of the limit (x and fp32 weight read once):\n"
    );
    println!(
        "| variant | {} |",
        BATCHES.map(|tokens| format!("{tokens} tokens")).join(" | ")
    );
    println!("|---{}|", "|---".repeat(BATCHES.len()));
    let row = |name: &str, time: &dyn Fn(&MixInputs<'_>) -> Result<Timing, String>| {
        if !names.is_empty() && !names.iter().any(|asked| asked == name) {
            return;
        }
        let cells = BATCHES.map(|tokens| {
            let x = all.slice(ndarray::s![..tokens, ..]);
            let inputs = MixInputs {
                x,
                x_exact_in: Format::Bf16,
                function: function.view(),
                norm_eps: 1e-6,
                launch: Launch { tokens, sms: 188 },
            };
            let limit = (x.len() * 2 + function.len() * 4) as f64 / copy / 1e3;
            match time(&inputs) {
                Ok(timing) => format!(
                    "{:.1} ({:.2})",
                    timing.microseconds,
                    limit / timing.microseconds
                ),
                Err(reason) => reason,
            }
        });
        println!("| {name} | {} |", cells.join(" | "));
    };
    for recipe in builtin() {
        row(&recipe.name, &|inputs| {
            time::recipe(device, &recipe, inputs, Stored::Bf16).map_err(|error| error.to_string())
        });
    }
    for product in Product::ALL {
        row(product.name(), &|inputs| {
            time::cublas(device, product, inputs).map_err(|error| error.to_string())
        });
    }
    ExitCode::SUCCESS
}
