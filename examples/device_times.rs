//! Times of the projection on a device: every recipe and cuBLAS at a few batches, K = 16384, against a
//! copy measured in the same process: `run --time` without the errors, several batches side by side.
//! `scripts/device-check` runs it.

mod common;

use std::process::ExitCode;

use ndarray::Array2;
use ulpdrift::{
    backend::{
        Backend, MixInputs,
        hardware::{Hardware, Timed},
    },
    format::{Format, Rounding, bf16},
    random::{Key, Purpose, Stream},
    recipe::{catalogue::builtin, library::LibraryProduct, splits::Launch},
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
    let Some(cuda) = common::open() else {
        return ExitCode::from(3);
    };
    let copy = cuda.copy_rate().expect("a copy");
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
    let recipes = builtin();
    let products = LibraryProduct::ALL.map(Timed::Library);
    for timed in recipes.iter().map(Timed::Recipe).chain(products) {
        let name = timed.name();
        if !names.is_empty() && !names.iter().any(|asked| asked == name) {
            continue;
        }
        let cells = BATCHES.map(|tokens| {
            let x = all.slice(ndarray::s![..tokens, ..]);
            let inputs = MixInputs {
                x,
                x_exact_in: Format::Bf16,
                function: function.view(),
                norm_eps: 1e-6,
                launch: Launch {
                    tokens,
                    sms: cuda.device().target().sms,
                },
            };
            match cuda.time(timed, &inputs) {
                Ok(timing) => format!(
                    "{:.1} ({:.2})",
                    timing.microseconds,
                    timing.gigabytes_per_second() / copy
                ),
                Err(reason) => reason.to_string(),
            }
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
    ExitCode::SUCCESS
}
