//! A user's recipes.

use ulpdrift::{
    cli::variants,
    recipe::{
        MixRecipe, explain,
        indexer::{self, IndexRecipe},
        splits::Launch,
        user::{self, Named, Recipes},
    },
    tensor_core::Arch,
};

use super::{
    Outcome,
    refusal::{plain, plain_lines, refused},
    sometimes,
};

/// What a recipe's ranges are looked at for: K, tokens, SMs.
const LAUNCHES: [(usize, usize, usize); 3] = [(16384, 64, 188), (1000, 1, 132), (28672, 4096, 1)];
const WIDTH: usize = 80;

/// Recipes that are taken can be written down again, put in words and run.
pub fn recipe_toml(text: &[u8]) -> Outcome {
    let Ok(text) = str::from_utf8(text) else {
        return Outcome::Refused;
    };
    let recipes = match user::parse(text) {
        Ok(recipes) => recipes,
        Err(error) => return refused(error),
    };
    assert!(!recipes.mix.is_empty() || !recipes.indexer.is_empty());
    assert_eq!(user::parse(text).as_ref(), Ok(&recipes), "another outcome");
    recipes.mix.iter().for_each(mix);
    recipes.indexer.iter().for_each(index);

    let mut known = Recipes::builtin();
    let added = user::extend(&mut known.mix, recipes.mix.clone())
        .and_then(|()| user::extend(&mut known.indexer, recipes.indexer.clone()));
    if let Err(error) = added {
        return refused(error);
    }
    if !sometimes(text, 16) {
        return Outcome::Accepted;
    }
    plain_lines(&variants::text(&known, None, WIDTH).expect("no name is asked for"));
    let names = recipes.mix.iter().map(Named::name);
    for name in names.chain(recipes.indexer.iter().map(Named::name)) {
        let text = variants::text(&known, Some(name), WIDTH).expect("it has just been added");
        assert!(text.contains(name));
        plain_lines(&text);
    }
    Outcome::Accepted
}

fn mix(recipe: &MixRecipe) {
    steps(&explain::steps(recipe));
    let text = toml::to_string(recipe).expect("a recipe can be written");
    assert_eq!(toml::from_str(&text).as_ref(), Ok(recipe), "as TOML");
    let json = serde_json::to_value(recipe).expect("a recipe can be written");
    let back: MixRecipe = serde_json::from_value(json).expect("what was written reads");
    assert_eq!(back, *recipe, "as JSON");

    let projection = &recipe.projection;
    let products = projection.products();
    assert!(!products.is_empty(), "nothing is multiplied");
    for product in products {
        assert!(product.x < projection.x_parts && product.weight < projection.weight_parts);
    }
    for (k, tokens, sms) in LAUNCHES {
        let cuts = projection.order.cuts(k, Launch { tokens, sms });
        assert!((1..=k).contains(&cuts.count), "{cuts:?}");
        assert_eq!((cuts.start(0), cuts.start(cuts.count)), (0, k), "{cuts:?}");
        let last = cuts.start(cuts.count - 1);
        assert!(last < k, "an empty range: {cuts:?}");
    }
}

fn index(recipe: &IndexRecipe) {
    assert_eq!(recipe.problem(), None);
    steps(&indexer::explain::steps(recipe));
    for arch in Arch::ALL {
        steps(&indexer::explain::steps_on(recipe, arch));
    }
    let text = toml::to_string(recipe).expect("a recipe can be written");
    assert_eq!(toml::from_str(&text).as_ref(), Ok(recipe), "as TOML");
    let json = serde_json::to_value(recipe).expect("a recipe can be written");
    let back: IndexRecipe = serde_json::from_value(json).expect("what was written reads");
    assert_eq!(back, *recipe, "as JSON");
}

fn steps(steps: &[String]) {
    assert!(!steps.is_empty());
    for step in steps {
        assert!(!step.is_empty());
        plain(step);
    }
}
