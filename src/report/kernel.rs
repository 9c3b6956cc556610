//! The three kernels whose variants a report holds, each with names of its own.

use super::Report;
use crate::recipe::{MixRecipe, Recombine, RecombineRecipe, indexer::IndexRecipe, user};

/// A kernel, as far as the names of its variants go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kernel {
    /// The mixing kernel.
    Mixing,
    /// What follows the sublayer.
    Recombination,
    /// The indexer.
    Indexer,
}

impl Kernel {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Mixing, Self::Recombination, Self::Indexer];

    /// The kernel that a suite looks at.
    #[must_use]
    pub fn of(suite: &str) -> Self {
        match suite {
            "recombine" => Self::Recombination,
            "indexer" | "needle" => Self::Indexer,
            _ => Self::Mixing,
        }
    }

    /// A variant's name among the recipes of a report: two kernels may have one of the same name.
    #[must_use]
    pub fn title(self, variant: &str) -> String {
        match self {
            Self::Mixing => variant.to_owned(),
            Self::Recombination => RecombineRecipe::title(variant),
            Self::Indexer => IndexRecipe::title(variant),
        }
    }
}

/// A recipe as it stands in a report.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// Of the mixing kernel.
    Mix(Box<MixRecipe>),
    /// Of what follows the sublayer.
    Recombine(Recombine),
    /// Of the indexer.
    Index(Box<IndexRecipe>),
}

impl Recipe {
    /// The recipe of a variant; `None` where the report has none that this version understands, as of a library's product.
    #[must_use]
    pub fn of(report: &Report, kernel: Kernel, variant: &str) -> Option<Self> {
        let recipe = report.recipes.get(&kernel.title(variant))?.clone();
        match kernel {
            Kernel::Mixing => {
                let recipe: Box<MixRecipe> = serde_json::from_value(recipe).ok()?;
                user::problem(&recipe)
                    .is_none()
                    .then_some(Self::Mix(recipe))
            }
            Kernel::Recombination => {
                let arithmetic = recipe.get("arithmetic")?.clone();
                serde_json::from_value(arithmetic).ok().map(Self::Recombine)
            }
            Kernel::Indexer => {
                let recipe: Box<IndexRecipe> = serde_json::from_value(recipe).ok()?;
                recipe.problem().is_none().then_some(Self::Index(recipe))
            }
        }
    }
}
