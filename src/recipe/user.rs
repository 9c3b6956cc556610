//! User recipes: TOML in, validated recipes out.
//!
//! ```toml
//! [[mix]]
//! name = "my-kernel"
//! summary = "bf16 weight, 8 ranges"
//! [mix.projection]
//! unit = "mma-bf16-k16"
//! weight = "bf16"
//! square-sum = "chains"
//! order = { chains = { splits = { count = { fixed = 8 } } } }
//!
//! [[indexer]]
//! name = "fp8-q-bf16-k"
//! base = "bf16-keys"
//! summary = "…"
//! ```
//!
//! A recipe of the indexer may begin with another (`base`) and name what differs; a table replaces the same table of
//! the base key by key, down to the last.

use serde::Deserialize;
use thiserror::Error;

use super::{
    MixRecipe, OperandRounding, Order, Projection, SquareSum, Unit, catalogue,
    indexer::{self, IndexRecipe},
    library::LibraryProduct,
    splits::SplitCount,
};

/// Why a set of recipes was refused.
#[derive(Debug, Error, PartialEq)]
pub enum RecipeError {
    /// Not the TOML we read.
    #[error("not a recipes file{}: {message}", line.map_or(String::new(), |line| format!(", line {line}")))]
    Parse {
        /// Where, from 1, if it is known.
        line: Option<usize>,
        /// What was found there and what was expected.
        message: String,
    },
    /// Two recipes share a name.
    #[error(
        "recipe '{0}' is already defined: names must be unique, built-in ones included; rename it"
    )]
    Duplicate(String),
    /// A recipe contradicts itself.
    #[error("recipe '{name}': {problem}")]
    Contradiction {
        /// The recipe.
        name: String,
        /// What contradicts what, and what to do.
        problem: &'static str,
    },
    /// No variant matches a pattern.
    #[error("variant '{0}' matches no recipe; `ulpdrift variants` lists them")]
    Unknown(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    mix: Vec<MixRecipe>,
    #[serde(default)]
    indexer: Vec<toml::Table>,
}

/// Recipes of every kernel that has any.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipes {
    /// The mixing kernel's.
    pub mix: Vec<MixRecipe>,
    /// The indexer's.
    pub indexer: Vec<IndexRecipe>,
}

impl Recipes {
    /// The catalogues.
    #[must_use]
    pub fn builtin() -> Self {
        Self {
            mix: catalogue::builtin(),
            indexer: indexer::catalogue::builtin(),
        }
    }
}

/// Something with a name that users know it by.
pub trait Named {
    /// The name.
    fn name(&self) -> &str;
}

impl Named for MixRecipe {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for IndexRecipe {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The most parts a value may be split into: three bf16 parts already hold all of fp32.
const MAX_PARTS: usize = 3;
/// The most ranges K may be cut into: more than any K has blocks, and few enough to list.
const MAX_SPLITS: usize = 1 << 16;

/// Reads recipes from the text of a TOML file.
///
/// # Errors
/// Text that is not such a file, an empty one, or a recipe that contradicts itself.
pub fn parse(text: &str) -> Result<Recipes, RecipeError> {
    let line_of = |offset: usize| 1 + text.bytes().take(offset).filter(|b| *b == b'\n').count();
    let file: File = toml::from_str(text).map_err(|error| RecipeError::Parse {
        line: error.span().map(|span| line_of(span.start)),
        message: error
            .message()
            .replace('\n', ", ")
            .replace("unknown variant", "unknown value"),
    })?;
    if file.mix.is_empty() && file.indexer.is_empty() {
        return Err(RecipeError::Parse {
            line: None,
            message: "it has no [[mix]] and no [[indexer]] recipe; write at least one".to_owned(),
        });
    }
    file.mix.iter().try_for_each(validate)?;
    let mut known = indexer::catalogue::builtin();
    let built_in = known.len();
    for table in file.indexer {
        known.push(indexer::user::read(table, &known)?);
    }
    Ok(Recipes {
        mix: file.mix,
        indexer: known.split_off(built_in),
    })
}

/// Adds `more` to `recipes`.
///
/// # Errors
/// A name that is taken.
pub fn extend<R: Named>(recipes: &mut Vec<R>, more: Vec<R>) -> Result<(), RecipeError> {
    for recipe in more {
        let name = recipe.name();
        let is_product = LibraryProduct::ALL
            .iter()
            .any(|product| product.name() == name);
        if is_product || recipes.iter().any(|known| known.name() == name) {
            return Err(RecipeError::Duplicate(name.to_owned()));
        }
        recipes.push(recipe);
    }
    Ok(())
}

/// The recipes whose names match one of `patterns` (`*` and `?` are wildcards), in the order of the
/// patterns, each once.
///
/// # Errors
/// A pattern that matches nothing.
pub fn select<R: Named + Clone, S: AsRef<str>>(
    recipes: &[R],
    patterns: &[S],
) -> Result<Vec<R>, RecipeError> {
    let mut chosen: Vec<R> = Vec::new();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        let glob = wildmatch::WildMatch::new(pattern);
        let mut matched = false;
        for recipe in recipes.iter().filter(|recipe| glob.matches(recipe.name())) {
            matched = true;
            if !chosen.iter().any(|known| known.name() == recipe.name()) {
                chosen.push(recipe.clone());
            }
        }
        if !matched {
            return Err(RecipeError::Unknown(pattern.to_owned()));
        }
    }
    Ok(chosen)
}

fn validate(recipe: &MixRecipe) -> Result<(), RecipeError> {
    match problem(recipe) {
        None => Ok(()),
        Some(problem) => Err(RecipeError::Contradiction {
            name: recipe.name.clone(),
            problem,
        }),
    }
}

/// What is wrong with a recipe's name, or with its lines of text.
pub(super) fn check_text(name: &str, lines: [&String; 2]) -> Option<&'static str> {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c));
    if !is_plain {
        return Some(
            "a name takes letters, digits, '-', '_', '.' and '+' and starts with a letter or digit; rename it",
        );
    }
    lines
        .iter()
        .any(|text| text.contains(char::is_control))
        .then_some(
            "summary and engine are one line of text; remove line ends and control characters",
        )
}

/// What contradicts what in a recipe, and what to do; nothing if it can run.
#[must_use]
pub fn problem(recipe: &MixRecipe) -> Option<&'static str> {
    let projection = &recipe.projection;
    let text = check_text(&recipe.name, [&recipe.summary, &recipe.engine]);
    if text.is_some() {
        return text;
    }
    if !fits(projection.weight, projection.unit) {
        return Some("the unit cannot hold the weight's rounding; choose a unit of that format");
    }
    if projection.x.is_some_and(|x| !fits(x, projection.unit)) {
        return Some("the unit cannot hold the rounding of x; choose a unit of that format");
    }
    let parts = [projection.weight_parts, projection.x_parts];
    if parts.iter().any(|part| !(1..=MAX_PARTS).contains(part)) {
        return Some("weight-parts and x-parts must be 1, 2 or 3");
    }
    order_problem(projection)
}

fn order_problem(projection: &Projection) -> Option<&'static str> {
    match projection.order {
        Order::ThreadStrided { .. } if projection.unit != Unit::FmaF32 => {
            Some("thread-strided order needs the fma-f32 unit; a matrix unit runs chains")
        }
        Order::ThreadStrided { threads } if !threads.is_power_of_two() || threads > 1024 => {
            Some("threads must be a power of two up to 1024, for the block tree")
        }
        Order::Chains { splits, .. } if !is_countable(splits.count) => {
            Some("a fixed split count must be 1 to 65536")
        }
        Order::Chains { .. } if projection.square_sum == SquareSum::ThreadStrided => {
            Some("square-sum thread-strided needs the thread-strided order")
        }
        Order::ThreadStrided { .. } if projection.square_sum != SquareSum::ThreadStrided => {
            Some("the thread-strided order needs square-sum thread-strided")
        }
        _ => None,
    }
}

fn is_countable(count: SplitCount) -> bool {
    !matches!(count, SplitCount::Fixed(fixed) if !(1..=MAX_SPLITS).contains(&fixed))
}

/// Whether every value a rounding yields is one the unit's operands can hold.
fn fits(rounding: OperandRounding, unit: Unit) -> bool {
    use OperandRounding::{Bf16, F16, Tf32Away, Tf32Nearest, Tf32Truncate};
    match unit {
        Unit::FmaF32 => true,
        Unit::MmaTf32K8 => {
            matches!(rounding, Tf32Nearest | Tf32Away | Tf32Truncate | Bf16 | F16)
        }
        Unit::MmaBf16K16 => rounding == Bf16,
        Unit::MmaF16K16 => rounding == F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::catalogue::builtin;

    const GOOD: &str = r#"
        [[mix]]
        name = "mine"
        summary = "bf16, 8 ranges"
        [mix.projection]
        unit = "mma-bf16-k16"
        weight = "bf16"
        square-sum = "chains"
        order = { chains = { splits = { count = { fixed = 8 }, boundaries = "triton" } } }
    "#;

    #[test]
    fn a_user_recipe_is_read_with_its_defaults() {
        let recipes = parse(GOOD).expect("valid");
        assert_eq!(recipes.mix[0].projection.weight_parts, 1);
        assert_eq!(recipes.mix[0].name, "mine");
    }

    #[test]
    fn every_built_in_is_valid_and_survives_toml() {
        for recipe in builtin() {
            validate(&recipe).expect("valid");
            let text = toml::to_string(&recipe).expect("serialises");
            assert_eq!(
                toml::from_str::<MixRecipe>(&text).expect("reads back"),
                recipe
            );
        }
    }

    #[test]
    fn contradictions_are_named() {
        for (from, to, needle) in [
            ("mma-bf16-k16", "mma-f16-k16", "cannot hold the weight"),
            ("fixed = 8", "fixed = 0", "1 to 65536"),
            ("fixed = 8", "fixed = 9000000000000000000", "1 to 65536"),
            ("\"bf16, 8 ranges\"", "\"a\\nb\"", "one line of text"),
            ("\"bf16, 8 ranges\"", "\"\\u001b[31m\"", "one line of text"),
            ("\"mine\"", "\"a b\"", "a name takes letters"),
            (
                "square-sum = \"chains\"",
                "square-sum = \"thread-strided\"",
                "needs the thread-strided",
            ),
            (
                "weight = \"bf16\"",
                "weight = \"bf16\"\nweight-parts = 4",
                "1, 2 or 3",
            ),
            (
                "weight = \"bf16\"",
                "weight = \"bf16\"\nwieght = 4",
                "unknown field",
            ),
        ] {
            let error = parse(&GOOD.replace(from, to))
                .expect_err(needle)
                .to_string();
            assert!(error.contains(needle), "{error}");
        }
        assert!(parse("").is_err());
        let order = "order = { thread-strided = { threads = 96 } }";
        let strided = GOOD
            .replace("mma-bf16-k16", "fma-f32")
            .replace("square-sum = \"chains\"", "square-sum = \"thread-strided\"")
            .lines()
            .map(|line| if line.contains("order") { order } else { line })
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            parse(&strided)
                .expect_err("96")
                .to_string()
                .contains("power of two")
        );
    }

    /// Numbers where there are none, types that do not fit, names nobody knows: one sentence each,
    /// with the line.
    #[test]
    fn hostile_toml_is_refused_in_one_sentence() {
        for (from, to) in [
            ("weight = \"bf16\"", "weight = nan"),
            ("weight = \"bf16\"", "weight = \"bf17\""),
            ("weight = \"bf16\"", "weight = \"bf16\"\nweight-parts = nan"),
            (
                "weight = \"bf16\"",
                "weight = \"bf16\"\nweight-parts = 1000",
            ),
            ("weight = \"bf16\"", "weight = \"bf16\"\nweight-parts = -1"),
            ("weight = \"bf16\"", "weight = \"bf16\"\nx-parts = 1.5"),
            ("weight = \"bf16\"", "weight = \"bf16\"\nweight = \"bf16\""),
            ("fixed = 8", "fixed = -8"),
            ("fixed = 8", "fixed = inf"),
            ("fixed = 8", "fixed = 99999999999999999999"),
            ("fixed = 8", "engine = 8"),
            ("chains = {", "strides = {"),
            ("\"triton\"", "[]"),
            ("name = \"mine\"", "name = 7"),
            ("name = \"mine\"", "name = \"\""),
            ("name = \"mine\"", ""),
            ("[[mix]]", "[mix]"),
            ("[[mix]]", "[[mixing]]"),
            ("[[mix]]", "mix = nan"),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let error = parse(&text).expect_err(to).to_string();
            assert!(!error.contains('\n') && error.len() < 300, "{to}: {error}");
        }
        let unknown = GOOD.replace("weight = \"bf16\"", "wieght = \"bf16\"");
        let error = parse(&unknown).expect_err("unknown").to_string();
        assert!(error.starts_with("not a recipes file, line 7: "), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,200}", cut in 0..400usize) {
            let _ = parse(&text);
            let part: String = GOOD.chars().take(cut).collect();
            let _ = parse(&part);
        }
    }

    #[test]
    fn selection_knows_wildcards_and_names_what_it_does_not_know() {
        let names = |patterns: &[&str]| -> Vec<String> {
            let chosen = select(&builtin(), patterns).expect("known");
            chosen.into_iter().map(|recipe| recipe.name).collect()
        };
        assert_eq!(
            names(&["tf32", "tf32*"])[..3],
            ["tf32", "tf32-rna", "tf32-rz"]
        );
        assert_eq!(
            select(&builtin(), &["fp31"]).expect_err("unknown"),
            RecipeError::Unknown("fp31".to_owned())
        );
    }

    #[test]
    fn a_taken_name_is_refused() {
        let mut recipes = builtin();
        let again = vec![recipes[0].clone()];
        assert!(matches!(
            extend(&mut recipes, again),
            Err(RecipeError::Duplicate(_))
        ));
    }
}
