//! A report, or a row of it, in words for somebody who has read nothing else.
//!
//! Every number is in the report or follows from numbers in it. What is made are paragraphs; how wide they are is the
//! command line's business.
//!
//! [`next()`] is the one line of it that ends the table of a run: what to do.

mod help;
mod indexer;
mod next;
mod overview;
mod parts;
mod row;
mod selection;
mod stage;
#[cfg(test)]
mod tests;
mod words;

use std::str::FromStr;

use self::help::Help;
use crate::{
    recipe::{explain as mixing, indexer::explain as indexing, library::LibraryProduct},
    report::{Kernel, Key, Recipe, Record, Report},
    tensor_core::Arch,
};

pub use next::{OnDisk, next};
pub use selection::{MOST, SelectionError};

/// A heading and what is said below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The heading.
    pub title: String,
    /// What is said.
    pub paragraphs: Vec<Paragraph>,
}

/// A part of what is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paragraph {
    /// Sentences, without line breaks.
    Text(String),
    /// A command for a shell, which no line break may cut.
    Command(String),
}

impl From<String> for Paragraph {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Sentences as paragraphs.
fn texts(sentences: impl IntoIterator<Item = String>) -> Vec<Paragraph> {
    sentences.into_iter().map(Paragraph::Text).collect()
}

/// The whole report: what was run, what the rows say per variant, the worst first, and what would help.
#[must_use]
pub fn overview(report: &Report) -> Vec<Block> {
    overview::blocks(report)
}

/// The rows that all conditions (`FIELD=VALUE`) mean, and what would help.
///
/// # Errors
/// If a condition is none, or if they mean no row or more than [`MOST`].
pub fn rows(report: &Report, conditions: &[String]) -> Result<Vec<Block>, SelectionError> {
    let rows = selection::select(report, conditions)?;
    let mut blocks: Vec<Block> = rows.iter().map(|row| row::block(report, row)).collect();
    blocks.extend(help_for(report, &rows));
    let mut described: Vec<String> = Vec::new();
    for row in &rows {
        let block = steps(report, &row.key);
        if let Some(block) = block.filter(|block| !described.contains(&block.title)) {
            described.push(block.title.clone());
            blocks.push(block);
        }
    }
    Ok(blocks)
}

/// What would help, a block per kernel that the rows are of.
fn help_for(report: &Report, rows: &[&Record]) -> Vec<Block> {
    let is_of = |kernel: Kernel| move |row: &&&Record| Kernel::of(&row.key.suite) == kernel;
    let mut blocks = Vec::new();
    let mut mixing: Vec<&str> = rows
        .iter()
        .filter(is_of(Kernel::Mixing))
        .map(|row| row.key.variant.as_str())
        .collect();
    mixing.dedup();
    if !mixing.is_empty() {
        let help = Help::new(report);
        let own = mixing.iter().filter_map(|variant| help.of_variant(variant));
        blocks.push(Block {
            title: "What would help".to_owned(),
            paragraphs: texts(own).into_iter().chain(help.paragraphs()).collect(),
        });
    }
    if rows.iter().any(|row| is_of(Kernel::Indexer)(&row)) {
        blocks.push(Block {
            title: "What would help the indexer".to_owned(),
            paragraphs: texts(indexer::help(report)),
        });
    }
    if rows.iter().any(|row| is_of(Kernel::Recombination)(&row)) {
        blocks.push(Block {
            title: "What would help the recombination".to_owned(),
            paragraphs: texts(row::help_of_recombination(report)),
        });
    }
    blocks
}

/// The recipe of a row's variant, step by step, as its arch runs it.
fn steps(report: &Report, key: &Key) -> Option<Block> {
    let kernel = Kernel::of(&key.suite);
    let steps = match Recipe::of(report, kernel, &key.variant) {
        Some(Recipe::Mix(recipe)) => mixing::steps(&recipe),
        Some(Recipe::Recombine(recombine)) => mixing::recombination(&recombine),
        Some(Recipe::Index(recipe)) => match Arch::from_str(&key.arch) {
            Ok(arch) => indexing::steps_on(&recipe, arch),
            Err(_) => indexing::steps(&recipe),
        },
        None => {
            let mut known = LibraryProduct::ALL.into_iter();
            let product = known.find(|product| product.name() == key.variant)?;
            mixing::product(product)
        }
    };
    Some(Block {
        title: format!("What {} does, step by step", kernel.title(&key.variant)),
        paragraphs: texts(steps),
    })
}
