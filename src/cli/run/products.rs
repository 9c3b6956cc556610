//! A library's products among the variants: what was asked for, and what the backend has of it.

use std::fmt;

use anyhow::ensure;

use super::args::RunArgs;
use crate::{
    backend::Backend,
    recipe::{MixRecipe, library::LibraryProduct},
    report::Skipped,
};

/// The products that the variants asked for match.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Products {
    /// Those asked for by a name or a pattern that matches nothing else: without them the run is not what
    /// was meant.
    pub named: Vec<LibraryProduct>,
    /// Those that a pattern matches beside recipes: they run where they can.
    also: Vec<LibraryProduct>,
}

impl Products {
    /// What `patterns` match, and the patterns that are left for the recipes.
    pub fn select<'a>(known: &[MixRecipe], patterns: &'a [String]) -> (Self, Vec<&'a str>) {
        let mut products = Self::default();
        let mut left = Vec::new();
        for pattern in patterns {
            let matching = LibraryProduct::matching(pattern);
            let glob = wildmatch::WildMatch::new(pattern);
            if matching.is_empty() || known.iter().any(|recipe| glob.matches(&recipe.name)) {
                left.push(pattern.as_str());
                products.also.extend(matching);
            } else {
                products.named.extend(matching);
            }
        }
        for list in [&mut products.named, &mut products.also] {
            list.sort_unstable();
            list.dedup();
        }
        products
            .also
            .retain(|product| !products.named.contains(product));
        (products, left)
    }

    /// Refuses what no table has a place for: sweeps and crosschecks are about recipes.
    ///
    /// # Errors
    /// A product is named for a sweep, or a crosscheck is left with nothing to compare.
    pub fn check(&self, args: &RunArgs, recipes: &[MixRecipe]) -> anyhow::Result<()> {
        ensure!(
            args.sweep.is_none() || self.named.is_empty(),
            "--sweep does not go with {self}, of which it knows no splits; name other variants"
        );
        ensure!(
            !args.crosscheck || self.named.is_empty() || !recipes.is_empty(),
            "--crosscheck: {self} can be measured and not emulated, so there is nothing to compare; name other variants"
        );
        Ok(())
    }

    /// Those that `backend` runs, and those that it lacks.
    ///
    /// # Errors
    /// One that is named, and the library is not here.
    pub fn on(&self, backend: &dyn Backend) -> anyhow::Result<(Vec<LibraryProduct>, Vec<Skipped>)> {
        let all = self.all();
        let (false, Some(hardware)) = (all.is_empty(), backend.hardware()) else {
            return Ok((Vec::new(), Vec::new()));
        };
        match hardware.library() {
            Ok(_) => Ok((all, Vec::new())),
            Err(missing) if self.named.is_empty() => {
                let skip = Skipped {
                    what: self.to_string(),
                    why: missing.to_string(),
                };
                Ok((Vec::new(), vec![skip]))
            }
            Err(missing) => Err(missing.into()),
        }
    }

    /// Whether no product was asked for.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.also.is_empty()
    }

    fn all(&self) -> Vec<LibraryProduct> {
        let mut all = [self.named.as_slice(), &self.also].concat();
        all.sort_unstable();
        all
    }
}

/// Their names as a list.
impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.all().iter().map(|product| product.name()).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::catalogue::builtin;

    fn selected(patterns: &[&str]) -> (Vec<LibraryProduct>, Vec<LibraryProduct>, Vec<String>) {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let (products, left) = Products::select(&builtin(), &patterns);
        let left = left.into_iter().map(str::to_owned).collect();
        (products.named, products.also, left)
    }

    #[test]
    fn a_pattern_that_matches_nothing_else_insists() {
        use LibraryProduct::{Bf16, Fp32Pedantic, Tf32};
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(selected(&["bf16"]), (vec![], vec![], words(&["bf16"])));
        assert_eq!(
            selected(&["*bf16", "cublas-tf32", "no-such"]),
            (vec![Tf32], vec![Bf16], words(&["*bf16", "no-such"]))
        );
        assert_eq!(
            selected(&["cublas-*", "*"]),
            (vec![Fp32Pedantic, Tf32, Bf16], vec![], words(&["*"]))
        );
    }
}
