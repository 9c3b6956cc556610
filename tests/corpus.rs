//! Every input that the fuzzer kept, held against its law once more (`fuzz/README.md`).

#[path = "../fuzz/src/laws/mod.rs"]
mod laws;

use std::{
    fs,
    path::{Path, PathBuf},
};

use laws::{LAWS, Law, Outcome};

/// Fewer files than this are no corpus.
const FEWEST: usize = 20;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn names(folder: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Replays one target's files; says how many were accepted and how many refused.
fn replay(name: &str, law: Law) {
    let folder = corpus().join(name);
    let (mut accepted, mut refused) = (0, 0);
    for file in names(&folder) {
        let bytes = fs::read(folder.join(&file)).unwrap();
        // A panic's message does not say which input it was.
        let outcome = std::panic::catch_unwind(|| law(&bytes));
        match outcome.unwrap_or_else(|_| panic!("fuzz/corpus/{name}/{file} breaks the law")) {
            Outcome::Accepted => accepted += 1,
            Outcome::Refused => refused += 1,
        }
    }
    println!("{name}: {accepted} accepted, {refused} refused");
    assert!(accepted + refused >= FEWEST, "{name} has no corpus");
    assert!(
        accepted > 0 && refused > 0,
        "{name}: a corpus of one kind: {accepted} accepted, {refused} refused"
    );
}

macro_rules! replays {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name), laws::$name);
            }
        )*

        /// No target is without a replay, and no corpus without a target.
        #[test]
        fn every_corpus_is_replayed() {
            let mut replayed = vec![$(stringify!($name)),*];
            replayed.sort_unstable();
            let mut targets: Vec<&str> = LAWS.iter().map(|(name, _)| *name).collect();
            targets.sort_unstable();
            assert_eq!(replayed, targets);
            assert_eq!(names(&corpus()), replayed);
        }
    };
}

replays!(
    safetensors_header,
    checkpoint_index,
    model_config,
    recipe_toml,
    thresholds,
    report_json
);
