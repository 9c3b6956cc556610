//! Whose the names on the command line are. The mixing kernel, which suites mix, chain, budget and gains run, and the
//! recombination, which suite recombine runs, have variants of their own; `fp32` is one of each.
//!
//! A suite takes the names that it knows. A name that no suite asked for knows is an error, and so is a suite that is
//! left without any; a suite that does not know `--against` compares with its own `fp32`.

use anyhow::{bail, ensure};
use wildmatch::WildMatch;

use crate::{
    cli::run::args::{RunArgs, Suite},
    recipe::{MixRecipe, RecombineRecipe, catalogue, library::LibraryProduct},
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
}

impl Names {
    /// Shares out `--variants` and `--against`; `known` are the mixing kernel's recipes.
    pub fn share_out(args: &RunArgs, known: &[MixRecipe]) -> anyhow::Result<Self> {
        let asked = Asked::new(args, known);
        let mut names = Self {
            mixes: asked.mixing.is_some(),
            mixing: Vec::new(),
            against: catalogue::DEFAULT_AGAINST.to_owned(),
            recombinations: Variants {
                recipes: Vec::new(),
                against: RecombineRecipe::FP32,
            },
        };
        for pattern in &args.variants {
            let (mixing, recombinations) = asked.whose("--variants", pattern)?;
            if mixing {
                names.mixing.push(pattern.clone());
            }
            for recipe in recombinations {
                if !names.recombinations.recipes.contains(&recipe) {
                    names.recombinations.recipes.push(recipe);
                }
            }
        }
        names.fill(args, &asked)?;
        let (mixing, recombinations) = asked.whose("--against", &args.against)?;
        if mixing {
            names.against.clone_from(&args.against);
        }
        match recombinations.as_slice() {
            [] => {}
            [one] => names.recombinations.against = *one,
            several => bail!(
                "--against '{}' matches {} variants of suite recombine; name exactly one",
                args.against,
                several.len()
            ),
        }
        Ok(names)
    }

    /// The default where none is named, and no suite without a variant.
    fn fill(&mut self, args: &RunArgs, asked: &Asked<'_>) -> anyhow::Result<()> {
        if args.variants.is_empty() {
            if asked.recombines {
                self.recombinations.recipes = RecombineRecipe::ALL.to_vec();
            }
            return Ok(());
        }
        for (suite, lacks) in [
            (asked.mixing, self.mixing.is_empty()),
            (
                asked.recombines.then_some("recombine"),
                self.recombinations.recipes.is_empty(),
            ),
        ] {
            let Some(suite) = suite else { continue };
            ensure!(
                !lacks,
                "--variants {}: none of these is a variant of suite {suite}; name one, or leave the suite out",
                args.variants.join(",")
            );
        }
        Ok(())
    }
}

/// The suites that run the mixing kernel.
const MIXING: [(Suite, &str); 4] = [
    (Suite::Mix, "mix"),
    (Suite::Chain, "chain"),
    (Suite::Budget, "budget"),
    (Suite::Gains, "gains"),
];

/// The suites asked for, by what they vary.
struct Asked<'a> {
    /// The first that runs the mixing kernel.
    mixing: Option<&'static str>,
    recombines: bool,
    known: &'a [MixRecipe],
}

impl<'a> Asked<'a> {
    fn new(args: &RunArgs, known: &'a [MixRecipe]) -> Self {
        let suites = args.suites();
        let asks = |suite| suites.contains(&suite);
        let mixing = MIXING.into_iter().find(|(suite, _)| asks(*suite));
        Self {
            mixing: mixing.map(|(_, name)| name),
            recombines: asks(Suite::Recombine),
            known,
        }
    }

    /// Whether suites of the mixing kernel take a pattern, and the recombinations that it matches.
    fn whose(&self, flag: &str, pattern: &str) -> anyhow::Result<(bool, Vec<RecombineRecipe>)> {
        let glob = WildMatch::new(pattern);
        let is_mixing = self.known.iter().any(|recipe| glob.matches(&recipe.name))
            || !LibraryProduct::matching(pattern).is_empty();
        let recombinations = RecombineRecipe::matching(pattern);
        let mixes = self.mixing.is_some();
        let taken = (mixes && is_mixing) || (self.recombines && !recombinations.is_empty());
        // What nobody has at all is for the mixing kernel's own message, where it alone was asked.
        let is_unheard_of = !is_mixing && recombinations.is_empty();
        if !taken && (self.recombines || !is_unheard_of) {
            let suites = match (self.mixing, self.recombines) {
                (Some(mixing), true) => format!("{mixing}, recombine"),
                (Some(mixing), false) => mixing.to_owned(),
                (None, _) => "recombine".to_owned(),
            };
            let elsewhere = match (is_mixing, recombinations.is_empty()) {
                (true, _) => " (suites mix, chain, budget and gains have)",
                (_, false) => " (suite recombine has)",
                _ => "",
            };
            bail!(
                "{flag}: suite {suites} has no variant '{pattern}'{elsewhere}; `ulpdrift variants` lists them"
            );
        }
        let takes_part = if self.recombines {
            recombinations
        } else {
            Vec::new()
        };
        Ok((mixes && (is_mixing || is_unheard_of), takes_part))
    }
}

/// Whether the flags go together.
pub fn check(args: &RunArgs) -> anyhow::Result<()> {
    let suites = args.suites();
    let asks = |suite| suites.contains(&suite);
    if !asks(Suite::Recombine) {
        return Ok(());
    }
    for (flag, is_there) in [
        ("--sweep", args.sweep.is_some()),
        ("--crosscheck", args.crosscheck),
    ] {
        ensure!(
            !is_there,
            "--suite recombine does not go with {flag}, which has a table of its own; drop one of the two"
        );
    }
    ensure!(
        !args.time || asks(Suite::Mix),
        "--time times what suite mix measures, which is not asked for; add it to --suite, or leave --time out"
    );
    ensure!(
        args.recipes.is_none() || MIXING.into_iter().any(|(suite, _)| asks(suite)),
        "--recipes holds variants of the mixing kernel, of which suite recombine runs fp32 alone; add --suite mix, or leave --recipes out"
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
        Names::share_out(&args, &catalogue::builtin())
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
                "--variants transformers",
                "suite mix has no variant 'transformers' (suite recombine has)",
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
                "--against mul-add",
                "--against: suite mix has no variant 'mul-add' (suite recombine has)",
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
