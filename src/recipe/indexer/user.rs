//! A user's recipe of the indexer: another one with what differs.

use toml::{Table, Value};

use super::IndexRecipe;
use crate::recipe::user::{RecipeError, check_text};

/// The key that names the recipe to begin with.
const BASE: &str = "base";

/// Reads one `[[indexer]]` table; `known` are the recipes it may begin with.
///
/// # Errors
/// A base that nobody knows, keys or values that no recipe has, a recipe that contradicts itself.
pub fn read(mut table: Table, known: &[IndexRecipe]) -> Result<IndexRecipe, RecipeError> {
    let name = match table.get("name") {
        Some(Value::String(name)) => name.clone(),
        _ => "(unnamed)".to_owned(),
    };
    let parse = |message: String| RecipeError::Parse {
        line: None,
        message: format!(
            "[[indexer]] recipe '{name}': {}",
            message.trim_end().replace('\n', ", ")
        ),
    };
    let whole = match table.remove(BASE) {
        None => table,
        Some(Value::String(base)) => {
            let base = known
                .iter()
                .find(|recipe| recipe.name == base)
                .ok_or(RecipeError::Unknown(base))?;
            let mut own = Table::try_from(base).map_err(|error| parse(error.to_string()))?;
            // It is not what the base is, and nobody runs it.
            own.insert(
                "summary".to_owned(),
                format!("{}, changed", base.name).into(),
            );
            own.insert("engine".to_owned(), "none".into());
            merged(own, table)
        }
        Some(other) => {
            let kind = other.type_str();
            return Err(parse(format!(
                "base is a {kind}, expected the name of a recipe"
            )));
        }
    };
    let recipe: IndexRecipe = whole
        .try_into()
        .map_err(|error: toml::de::Error| parse(error.message().to_owned()))?;
    let [name, summary, engine] = [&recipe.name, &recipe.summary, &recipe.engine];
    match check_text(name, [summary, engine]).or_else(|| recipe.problem()) {
        None => Ok(recipe),
        Some(problem) => Err(RecipeError::Contradiction {
            name: recipe.name,
            problem,
        }),
    }
}

/// `own` over `base`: a path's or the weights' table key by key, everything else as a whole.
fn merged(mut base: Table, own: Table) -> Table {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(path)), Value::Table(own)) if is_path(&key) => path.extend(own),
            (_, value) => drop(base.insert(key, value)),
        }
    }
    base
}

fn is_path(key: &str) -> bool {
    matches!(key, "query" | "key" | "weights")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{
        indexer::{Linears, Quantiser, catalogue::builtin},
        user::parse,
    };

    fn one(text: &str) -> Result<IndexRecipe, String> {
        let recipes = parse(text).map_err(|error| error.to_string())?;
        Ok(recipes.indexer[0].clone())
    }

    #[test]
    fn a_base_and_what_differs() {
        let recipe = one(
            "[[indexer]]\nname = \"mine\"\nbase = \"fp8-f32scale\"\nlinears = \"fp32\"\nunit = \"fma-f32\"\n\
             query = { format = \"f32\" }",
        )
        .expect("valid");
        assert_eq!(recipe.linears, Linears::Fp32);
        assert_eq!(recipe.query.format, Quantiser::F32);
        assert!(recipe.query.hadamard, "what is not named is the base's");
        assert!(matches!(
            recipe.key.format,
            Quantiser::E4m3 { block: 128, .. }
        ));
    }

    #[test]
    fn every_built_in_is_valid_and_survives_toml() {
        for recipe in builtin() {
            assert_eq!(recipe.problem(), None, "{}", recipe.name);
            let table = Table::try_from(&recipe).expect("serialises");
            assert_eq!(read(table, &[]).expect("reads back"), recipe);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_sentence() {
        for (text, said) in [
            ("base = \"no-such\"", "variant 'no-such' matches no recipe"),
            ("base = 7", "base is a integer, expected the name"),
            (
                "base = \"fp32\"\nunit = \"mma-f16-k16\"",
                "cannot hold the format of q or k",
            ),
            ("base = \"fp32\"\nunits = 7", "unknown field `units`"),
            ("base = \"fp32\"\nname = \"a b\"", "a name takes letters"),
            ("base = \"fp32\"\nsummary = \"a\\nb\"", "one line of text"),
            (
                "base = \"fp8-triton\"\nreduction = { steps = {} }",
                "the keys have a scale; say where it enters",
            ),
            (
                "base = \"fp32\"\nreduction = { steps = { scale = \"last\" } }",
                "the keys have no scale of their own",
            ),
            (
                "base = \"fp8-triton\"\nreduction = { steps = { scale = \"before-lanes\" } }",
                "needs order \"four-lanes\"",
            ),
            (
                "base = \"fp8-triton\"\nkey = { format = { e4m3 = { scale = \"f32\", block = 48, scaling = \"divide\", held = \"codes\" } } }",
                "32, 64 or 128",
            ),
            (
                "base = \"fp8-triton\"\nkey = { format = { e4m3 = { scale = \"f32\", block = 64, scaling = \"divide\", held = \"codes\" } } }",
                "q and k must both hold e4m3 codes",
            ),
            (
                "base = \"mxfp4\"\nunit = \"mma-bf16-k16\"",
                "only unit mxf4-k64 multiplies",
            ),
            (
                "base = \"fp32\"\nunit = \"mxf4-k64\"",
                "cannot hold the format",
            ),
            ("summary = \"s\"", "missing field"),
        ] {
            let named = match text.contains("name =") {
                true => String::new(),
                false => "name = \"mine\"\n".to_owned(),
            };
            let error = one(&format!("[[indexer]]\n{named}{text}")).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
