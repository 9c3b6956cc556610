#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use ulpdrift_fuzz::{laws, mutate};

fuzz_target!(|data: &[u8]| {
    laws::thresholds(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::toml(data, size, max_size, seed)
});
