//! The command line as typed: what of it a report records, and what of it decides the numbers.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::cli::Cli;

/// Flags that say what is written where, how much of it is shown, and how much of the run this is: a run in parts, or
/// taken up again, is the same run.
const PLACES: [&str; 7] = [
    "out", "format", "dump", "part", "resume", "verbose", "quiet",
];
/// Flags that change no row: what the rows are held to afterwards, and which of several like devices runs.
const AFTERWARDS: [&str; 7] = [
    "step-summary",
    "gate",
    "baseline",
    "color",
    "device",
    "nvrtc",
    "help",
];

/// Words that belong together: a flag with its value, or a word that is no flag.
struct Words {
    /// The flag's long name.
    flag: Option<String>,
    value: String,
    typed: Vec<String>,
}

/// The command line of `run`.
pub struct Typed(Vec<Words>);

impl Typed {
    /// That of this process. Where the program is installed is the machine's business, so that its name stands for it.
    pub fn here() -> Self {
        let words = std::env::args_os().skip(1);
        Self::of(words.map(|word| word.to_string_lossy().into_owned()))
    }

    fn of(words: impl IntoIterator<Item = String>) -> Self {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").cloned().unwrap_or(cli);
        let mut typed = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) if word.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let argument = argument(&run, name);
            let takes_value = argument.is_some_and(|flag| flag.get_action().takes_values());
            let next = (takes_value && inline.is_none())
                .then(|| words.next())
                .flatten();
            typed.push(Words {
                flag: argument.and_then(Arg::get_long).map(str::to_owned),
                value: inline.or_else(|| next.clone()).unwrap_or_default(),
                typed: std::iter::once(word.clone()).chain(next).collect(),
            });
        }
        Self(typed)
    }

    /// What a report records, program name first.
    pub fn recorded(&self) -> Vec<String> {
        let kept = self.0.iter().filter(|words| !words.is_one_of(&PLACES));
        std::iter::once(env!("CARGO_PKG_NAME").to_owned())
            .chain(kept.flat_map(|words| words.typed.clone()))
            .collect()
    }

    /// The flags that decide the numbers, with their values.
    pub fn deciding(&self) -> BTreeMap<String, String> {
        let mut flags: BTreeMap<String, String> = BTreeMap::new();
        for words in &self.0 {
            let Some(flag) = &words.flag else { continue };
            if words.is_one_of(&PLACES) || words.is_one_of(&AFTERWARDS) {
                continue;
            }
            let values = flags.entry(format!("--{flag}")).or_default();
            if !values.is_empty() {
                values.push(',');
            }
            values.push_str(&words.value);
        }
        flags
    }
}

impl Words {
    fn is_one_of(&self, flags: &[&str]) -> bool {
        let is_named = |flag: &String| flags.contains(&flag.as_str());
        self.flag.as_ref().is_some_and(is_named)
    }
}

/// The flag of this name, `--long` or `-s`; of short ones written together the first, which take no values.
fn argument<'a>(run: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut arguments = run.get_arguments();
    if let Some(long) = name.strip_prefix("--") {
        return arguments.find(|argument| argument.get_long() == Some(long));
    }
    let short = name.strip_prefix('-').and_then(|rest| rest.chars().next());
    arguments.find(|argument| {
        let is_flag = matches!(argument.get_action(), ArgAction::SetTrue);
        is_flag && short.is_some() && argument.get_short() == short
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Typed {
        Typed::of(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn what_says_where_is_not_recorded() {
        let line =
            "run ckpt --out=a --format json --layers 0-3 -v --part 2/4 --resume --seed=3 --out b";
        let recorded = typed(line).recorded().join(" ");
        assert_eq!(recorded, "ulpdrift run ckpt --layers 0-3 --seed=3");
    }

    #[test]
    fn what_decides_does_not_depend_on_how_it_is_typed() {
        let one =
            typed("run ckpt --seed=3 --variants a --variants b,c --out x --allow-nonfinite -q");
        let other = typed(
            "--color never run ckpt --allow-nonfinite --variants a,b,c --seed 3 -v --format html",
        );
        assert_eq!(one.deciding(), other.deciding());
        let flags = [
            ("--allow-nonfinite", ""),
            ("--seed", "3"),
            ("--variants", "a,b,c"),
        ];
        let flags = flags.map(|(flag, value)| (flag.to_owned(), value.to_owned()));
        assert_eq!(one.deciding(), BTreeMap::from(flags));
        // What looks like a flag is the value of the one before it.
        let negative = typed("run --layers -1 --tokens -q");
        assert_eq!(negative.deciding()["--tokens"], "-q");
    }

    #[test]
    fn every_flag_that_is_set_apart_is_one() {
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").expect("run");
        for flag in PLACES.iter().chain(&AFTERWARDS) {
            assert!(argument(run, &format!("--{flag}")).is_some(), "{flag}");
        }
    }
}
