//! Executes an operation under a recipe.
