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
//! ```

use serde::Deserialize;
use thiserror::Error;

use super::{MixRecipe, OperandRounding, Order, Projection, SquareSum, Unit, splits::SplitCount};

/// Why a set of recipes was refused.
#[derive(Debug, Error, PartialEq)]
pub enum RecipeError {
    /// Not the TOML we read.
    #[error("{0}")]
    Parse(String),
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
}

/// The most parts a value may be split into: three bf16 parts already hold all of fp32.
const MAX_PARTS: usize = 3;

/// Reads recipes from the text of a TOML file.
///
/// # Errors
/// Text that is not such a file, an empty one, or a recipe that contradicts itself.
pub fn parse(text: &str) -> Result<Vec<MixRecipe>, RecipeError> {
    let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    if file.mix.is_empty() {
        return Err(RecipeError::Parse(
            "no [[mix]] recipe in it; write at least one".to_owned(),
        ));
    }
    file.mix.iter().try_for_each(validate)?;
    Ok(file.mix)
}

/// The parser's message on one line, without the excerpt it draws.
fn syntax(text: &str, error: &toml::de::Error) -> RecipeError {
    let message = error.message().replace('\n', ", ");
    RecipeError::Parse(match error.span() {
        Some(span) => {
            let before = text.bytes().take(span.start);
            let line = 1 + before.filter(|byte| *byte == b'\n').count();
            format!("line {line}: {message}")
        }
        None => message,
    })
}

/// Adds `more` to `recipes`.
///
/// # Errors
/// A name that is taken.
pub fn extend(recipes: &mut Vec<MixRecipe>, more: Vec<MixRecipe>) -> Result<(), RecipeError> {
    for recipe in more {
        if recipes.iter().any(|known| known.name == recipe.name) {
            return Err(RecipeError::Duplicate(recipe.name));
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
pub fn select<S: AsRef<str>>(
    recipes: &[MixRecipe],
    patterns: &[S],
) -> Result<Vec<MixRecipe>, RecipeError> {
    let mut chosen: Vec<MixRecipe> = Vec::new();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        let glob = wildmatch::WildMatch::new(pattern);
        let mut matched = false;
        for recipe in recipes.iter().filter(|recipe| glob.matches(&recipe.name)) {
            matched = true;
            if !chosen.iter().any(|known| known.name == recipe.name) {
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

fn problem(recipe: &MixRecipe) -> Option<&'static str> {
    let projection = &recipe.projection;
    let plain = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    if !plain(&recipe.name) {
        return Some("a name takes letters, digits, '-', '_', '.' and '+'; rename it");
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
        Order::Chains { splits, .. } if splits.count == SplitCount::Fixed(0) => {
            Some("a fixed split count must be at least 1")
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
        assert_eq!(recipes[0].projection.weight_parts, 1);
        assert_eq!(recipes[0].name, "mine");
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
            ("fixed = 8", "fixed = 0", "at least 1"),
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
