//! Whose the names on the command line are. The mixing kernel, which suites mix, chain, budget and gains run, the
//! recombination, which suite recombine runs, and the indexer, which suites indexer and needle run, have variants of
//! their own; `fp32` is one of each.
//!
//! A suite takes the names that it knows. A name that no suite asked for knows is an error, and so is a suite named on
//! the command line that is left without any; a suite that does not know `--against` compares with its own `fp32`.

use anyhow::{bail, ensure};
use wildmatch::WildMatch;

use crate::{
    cli::run::{args::RunArgs, suite::Suite},
    recipe::{
        RecombineRecipe, catalogue,
        indexer::{self, IndexRecipe},
        library::LibraryProduct,
        user::Recipes,
    },
    report::Kernel,
    suite::recombine::Variants,
};

/// The names, shared out.
#[derive(Debug)]
pub struct Names {
    /// Whether a suite of the mixing kernel is asked for.
    pub mixes: bool,
    /// Patterns for the variants of the mixing kernel.
    pub mixing: Vec<String>,
    /// What those are compared with.
    pub against: String,
    /// The recombinations.
    pub recombinations: Variants,
    /// The indexer's.
    pub indexers: Indexers,
}

/// The variants of the indexer.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexers {
    /// Those asked for.
    pub recipes: Vec<IndexRecipe>,
    /// The one that all are compared with besides the truth.
    pub against: IndexRecipe,
}

/// The suites that run a kernel, in words.
fn whose_it_is(kernel: Kernel) -> String {
    let names: Vec<&str> = Suite::of(kernel).map(Suite::name).collect();
    match names.as_slice() {
        [one] => format!("suite {one} has"),
        [first @ .., last] => format!("suites {} and {last} have", first.join(", ")),
        [] => String::new(),
    }
}

/// What a pattern matches, kernel by kernel.
struct Matches {
    mixing: bool,
    recombinations: Vec<RecombineRecipe>,
    indexers: Vec<IndexRecipe>,
}

impl Matches {
    fn has(&self, kernel: Kernel) -> bool {
        match kernel {
            Kernel::Mixing => self.mixing,
            Kernel::Recombination => !self.recombinations.is_empty(),
            Kernel::Indexer => !self.indexers.is_empty(),
        }
    }
}

/// The suites asked for, by what they vary.
struct Asked<'a> {
    /// The first suite of each kernel that was asked for, in the order they were.
    suites: Vec<(Kernel, &'static str)>,
    /// Whether they were named, and not there by default.
    named: bool,
    known: &'a Recipes,
}

impl Names {
    /// Shares out `--variants` and `--against`.
    pub fn share_out(args: &RunArgs, known: &Recipes) -> anyhow::Result<Self> {
        let asked = Asked::new(args, known);
        let mut names = Self {
            mixes: asked.runs(Kernel::Mixing),
            mixing: Vec::new(),
            against: catalogue::DEFAULT_AGAINST.to_owned(),
            recombinations: Variants {
                recipes: Vec::new(),
                against: RecombineRecipe::FP32,
            },
            indexers: Indexers {
                recipes: Vec::new(),
                against: indexer::catalogue::fp32(),
            },
        };
        for pattern in &args.variants {
            names.take(pattern, asked.whose("--variants", pattern)?);
        }
        names.fill(args, &asked)?;
        names.compare_with(args, asked.whose("--against", &args.against)?)?;
        Ok(names)
    }

    fn take(&mut self, pattern: &str, matches: Matches) {
        if matches.mixing {
            self.mixing.push(pattern.to_owned());
        }
        for recipe in matches.recombinations {
            if !self.recombinations.recipes.contains(&recipe) {
                self.recombinations.recipes.push(recipe);
            }
        }
        for recipe in matches.indexers {
            if !self.indexers.recipes.contains(&recipe) {
                self.indexers.recipes.push(recipe);
            }
        }
    }

    fn compare_with(&mut self, args: &RunArgs, matches: Matches) -> anyhow::Result<()> {
        let ambiguous = |count: usize, suite: &str| {
            anyhow::anyhow!(
                "--against '{}' matches {count} variants of suite {suite}; name exactly one",
                args.against
            )
        };
        if matches.mixing {
            self.against.clone_from(&args.against);
        }
        match matches.recombinations.as_slice() {
            [] => {}
            [one] => self.recombinations.against = *one,
            several => bail!(ambiguous(several.len(), "recombine")),
        }
        match matches.indexers.as_slice() {
            [] => {}
            [one] => self.indexers.against = one.clone(),
            several => bail!(ambiguous(several.len(), "indexer")),
        }
        Ok(())
    }

    /// The default where none is named, and no suite without a variant.
    fn fill(&mut self, args: &RunArgs, asked: &Asked<'_>) -> anyhow::Result<()> {
        if args.variants.is_empty() {
            if asked.runs(Kernel::Recombination) {
                self.recombinations.recipes = RecombineRecipe::ALL.to_vec();
            }
            if asked.runs(Kernel::Indexer) {
                self.indexers.recipes = indexer::catalogue::defaults();
                let own = indexer::catalogue::builtin().len();
                let brought = asked.known.indexer.iter().skip(own);
                self.indexers.recipes.extend(brought.cloned());
            }
            return Ok(());
        }
        for &(kernel, suite) in &asked.suites {
            let lacks = match kernel {
                Kernel::Mixing => self.mixing.is_empty(),
                Kernel::Recombination => self.recombinations.recipes.is_empty(),
                Kernel::Indexer => self.indexers.recipes.is_empty(),
            };
            ensure!(
                !lacks || !asked.named,
                "--variants {}: none of these is a variant of suite {suite}; name one, or leave the suite out",
                args.variants.join(",")
            );
        }
        Ok(())
    }
}

impl<'a> Asked<'a> {
    fn new(args: &RunArgs, known: &'a Recipes) -> Self {
        let mut suites: Vec<(Kernel, &'static str)> = Vec::new();
        for suite in args.suites() {
            let kernel = suite.kernel();
            if suites.iter().all(|(known, _)| *known != kernel) {
                suites.push((kernel, suite.name()));
            }
        }
        Self {
            suites,
            named: !args.suite.is_empty(),
            known,
        }
    }

    fn runs(&self, kernel: Kernel) -> bool {
        self.suites.iter().any(|(own, _)| *own == kernel)
    }

    /// What the suites asked for take of a pattern.
    fn whose(&self, flag: &str, pattern: &str) -> anyhow::Result<Matches> {
        let glob = WildMatch::new(pattern);
        let of_mix = self.known.mix.iter();
        let of_indexer = self.known.indexer.iter();
        let mut matches = Matches {
            mixing: of_mix.clone().any(|recipe| glob.matches(&recipe.name))
                || !LibraryProduct::matching(pattern).is_empty(),
            recombinations: RecombineRecipe::matching(pattern),
            indexers: of_indexer
                .filter(|recipe| glob.matches(&recipe.name))
                .cloned()
                .collect(),
        };
        let owner = Kernel::ALL.into_iter().find(|&kernel| matches.has(kernel));
        let is_taken = self.suites.iter().any(|&(kernel, _)| matches.has(kernel));
        // What nobody has at all is for the mixing kernel's own message, where it alone was asked for or nobody was.
        let is_its_own = !self.named
            || self
                .suites
                .iter()
                .all(|&(kernel, _)| kernel == Kernel::Mixing);
        let is_passed_on = owner.is_none() && is_its_own;
        if !is_taken && !is_passed_on {
            let suites: Vec<&str> = self.suites.iter().map(|&(_, suite)| suite).collect();
            let elsewhere =
                owner.map_or_else(String::new, |kernel| format!(" ({})", whose_it_is(kernel)));
            bail!(
                "{flag}: suite {} has no variant '{pattern}'{elsewhere}; `ulpdrift variants` lists them",
                suites.join(", ")
            );
        }
        matches.mixing = self.runs(Kernel::Mixing) && (matches.mixing || owner.is_none());
        if !self.runs(Kernel::Recombination) {
            matches.recombinations.clear();
        }
        if !self.runs(Kernel::Indexer) {
            matches.indexers.clear();
        }
        Ok(matches)
    }
}

/// Whether the flags go together.
pub fn check(args: &RunArgs) -> anyhow::Result<()> {
    let suites = args.suites();
    let asks = |suite| suites.contains(&suite);
    if !asks(Suite::Recombine) {
        return Ok(());
    }
    if let Some(flag) = args.own_table() {
        bail!(
            "--suite recombine does not go with {flag}, which has a table of its own; drop one of the two"
        );
    }
    ensure!(
        !args.time || asks(Suite::Mix),
        "--time times what suite mix measures, which is not asked for; add it to --suite, or leave --time out"
    );
    ensure!(
        args.recipes.is_none()
            || suites
                .iter()
                .any(|suite| suite.kernel() != Kernel::Recombination),
        "--recipes holds variants of the mixing kernel and of the indexer, of which suite recombine runs fp32 alone; add --suite mix, or leave --recipes out"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn names(flags: &str) -> anyhow::Result<Names> {
        let line = format!("run synthetic:tiny {flags}");
        let args = Line::try_parse_from(line.split(' '))?.run;
        Names::share_out(&args, &Recipes::builtin())
    }

    fn of(names: &Names) -> (Vec<&str>, Vec<&str>) {
        let recombinations = names.recombinations.recipes.iter();
        (
            names.mixing.iter().map(String::as_str).collect(),
            recombinations.map(|recipe| recipe.name).collect(),
        )
    }

    #[test]
    fn a_suite_takes_the_names_that_it_knows() {
        for (flags, mixing, recombinations) in [
            ("--variants tf32", vec!["tf32"], vec![]),
            (
                "--suite recombine",
                vec![],
                vec!["fp32", "mul-add", "stream-first", "transformers"],
            ),
            (
                "--suite recombine --variants *-*",
                vec![],
                vec!["mul-add", "stream-first"],
            ),
            (
                "--suite mix,recombine --variants tf32,transformers",
                vec!["tf32"],
                vec!["transformers"],
            ),
            (
                "--suite chain,recombine --variants fp32",
                vec!["fp32"],
                vec!["fp32"],
            ),
            (
                "--suite mix,recombine --variants cublas-*,f*32",
                vec!["cublas-*", "f*32"],
                vec!["fp32"],
            ),
            ("--suite budget --variants bf16", vec!["bf16"], vec![]),
            (
                "--suite gains,recombine --variants tf32,mul-add",
                vec!["tf32"],
                vec!["mul-add"],
            ),
            ("--variants no-such", vec!["no-such"], vec![]),
        ] {
            let names = names(flags).expect(flags);
            assert_eq!(of(&names), (mixing, recombinations), "{flags}");
        }
    }

    #[test]
    fn what_is_compared_with_is_each_suites_own() {
        for (flags, mixing, recombination) in [
            ("--suite mix,recombine", "fp32", "fp32"),
            ("--suite mix,recombine --against tf32", "tf32", "fp32"),
            ("--suite mix,recombine --against mul-add", "fp32", "mul-add"),
            ("--suite recombine --against trans*", "fp32", "transformers"),
            ("--against tf32", "tf32", "fp32"),
        ] {
            let names = names(flags).expect(flags);
            let against = (names.against.as_str(), names.recombinations.against.name);
            assert_eq!(against, (mixing, recombination), "{flags}");
        }
    }

    #[test]
    fn a_name_that_no_suite_asked_for_knows_is_an_error() {
        for (flags, said) in [
            (
                "--suite mix --variants transformers",
                "suite mix has no variant 'transformers' (suite recombine has)",
            ),
            (
                "--suite mix --variants mxfp4",
                "suite mix has no variant 'mxfp4' (suites indexer and needle have)",
            ),
            (
                "--suite indexer --variants bf16-patch",
                "suite indexer has no variant 'bf16-patch' (suites mix, chain, budget and gains have)",
            ),
            (
                "--suite recombine --variants tf32",
                "suite recombine has no variant 'tf32' (suites mix, chain, budget and gains have)",
            ),
            (
                "--suite mix,recombine --variants nosuch",
                "suite mix, recombine has no variant 'nosuch';",
            ),
            (
                "--suite chain,recombine --variants fp32,nosuch",
                "suite chain, recombine has no variant 'nosuch';",
            ),
            (
                "--suite recombine --against tf32",
                "--against: suite recombine has no variant 'tf32'",
            ),
            (
                "--suite chain --against mul-add",
                "--against: suite chain has no variant 'mul-add' (suite recombine has)",
            ),
            (
                "--suite recombine --against *",
                "matches 4 variants of suite recombine",
            ),
            (
                "--suite mix,recombine --variants tf32",
                "none of these is a variant of suite recombine",
            ),
            (
                "--suite mix,recombine --variants mul-add",
                "none of these is a variant of suite mix",
            ),
        ] {
            let error = names(flags).expect_err(flags).to_string();
            assert!(error.contains(said), "{flags}: {error}");
        }
    }
}
