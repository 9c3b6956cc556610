//! Whatever the bytes are, opening a checkpoint ends in a checkpoint or a sentence.

use proptest::prelude::*;
use ulpdrift::{
    checkpoint::{Checkpoint, NonFinite, Site},
    cli::inspect::{InspectArgs, render},
};

use crate::support::{Directory, Raw, assert_sentence};

/// Opens, reads and inspects; errors are sentences, panics fail the test.
fn survive(spec: &str) {
    match Checkpoint::open(spec) {
        Ok(checkpoint) => {
            for &layer in checkpoint.layers() {
                for site in Site::ALL {
                    let weights = checkpoint.hc(layer, site, NonFinite::Allow).unwrap();
                    assert_eq!(weights.function.dim(), (24, checkpoint.model().width()));
                    assert_eq!(weights.base.len(), 24);
                }
            }
        }
        Err(error) => assert_sentence(&error.to_string(), &[]),
    }
    if let Err(error) = render(&InspectArgs {
        checkpoint: spec.to_owned(),
        only: None,
        against: None,
    }) {
        assert_sentence(&error.to_string(), &[]);
    }
}

fn whole() -> Vec<u8> {
    Raw::default().layer("layers.0.").bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn flipped_bytes(flips in prop::collection::vec((0_usize..900, any::<u8>()), 1..4)) {
        let mut bytes = whole();
        for (position, value) in flips {
            bytes[position] = value;
        }
        let directory = Directory::new();
        survive(&directory.write("a.safetensors", bytes));
    }

    #[test]
    fn swapped_digits(from in "[0-9]{1,3}", to in "-?[0-9]{1,20}", once in any::<bool>()) {
        let raw = Raw::default().layer("layers.0.");
        let count = if once { 1 } else { usize::MAX };
        let header = raw.header_text().replacen(&from, &to, count);
        let directory = Directory::new();
        survive(&directory.write("a.safetensors", raw.bytes_with_header(&header)));
    }

    #[test]
    fn cut_files(length in 0_usize..8000) {
        let mut bytes = whole();
        bytes.truncate(length);
        let directory = Directory::new();
        survive(&directory.write("a.safetensors", bytes));
    }

    #[test]
    fn random_index_and_config(index in "\\PC{0,80}", config in "\\PC{0,80}") {
        let directory = Directory::new();
        directory.write("a/model.safetensors", whole());
        directory.write("a/config.json", config);
        survive(&directory.spec("a"));
        directory.write("a/model.safetensors.index.json", index);
        survive(&directory.spec("a"));
    }
}
