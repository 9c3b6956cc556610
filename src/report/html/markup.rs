//! The pieces that sections are made of: tables, figures with their tables, lists of commands.

use maud::{Markup, PreEscaped, html};

use super::plot::{Drawing, Figure, Look, Size};
use crate::report::printable;

/// What stands where a measure does not apply.
pub const ABSENT: &str = "–";

/// A part of the page.
pub struct Section {
    /// Its anchor.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// All below the heading.
    pub body: Markup,
}

/// A table with its caption. The first cell of a row names it.
pub struct Table {
    /// What it shows; no two of a page are alike.
    pub caption: String,
    /// Headings of the columns.
    pub head: Vec<String>,
    /// How many columns at the left hold words.
    pub words: usize,
    /// The cells as text.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: impl Into<String>, head: &[&str], words: usize) -> Self {
        Self {
            caption: caption.into(),
            head: head.iter().map(|&name| name.to_owned()).collect(),
            words,
            rows: Vec::new(),
        }
    }

    /// The same with rows.
    pub fn with_rows(self, rows: impl Iterator<Item = Vec<String>>) -> Self {
        Self {
            rows: rows.collect(),
            ..self
        }
    }

    /// In a region that scrolls by itself where the page is narrower, and can be reached by key.
    pub fn render(&self) -> Markup {
        let class = |column: usize| (column >= self.words).then_some("n");
        html! {
            div.scroll role="region" aria-label=(printable(&self.caption)) tabindex="0" {
                table {
                    caption { (printable(&self.caption)) }
                    thead {
                        tr {
                            @for (column, name) in self.head.iter().enumerate() {
                                th scope="col" class=[class(column)] { (printable(name)) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (column, cell) in row.iter().enumerate() {
                                    @if column == 0 {
                                        th scope="row" class=[class(0)] { (printable(cell)) }
                                    } @else {
                                        td class=[class(column)] { (printable(cell)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Folded away.
    pub fn folded(&self) -> Markup {
        html! {
            details {
                summary { "Table: " (printable(&self.caption)) }
                (self.render())
            }
        }
    }
}

/// What an entry of a legend looks like.
pub struct Key {
    /// What it is.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// An area, not a line.
    pub filled: bool,
}

/// A figure and what it needs beside it.
pub struct Shown<'a> {
    /// Its anchor; no two of a page are alike.
    pub id: String,
    /// What it shows, in a line.
    pub title: String,
    /// What there is to see, for those who do not see it.
    pub text: String,
    /// The figure.
    pub figure: &'a dyn Figure,
    /// What its colours mean.
    pub legend: Vec<Key>,
    /// Whether a wide figure says so itself.
    pub labelled: bool,
    /// Its numbers.
    pub table: Table,
}

impl Shown<'_> {
    /// The figure for both widths, its legend and its table.
    pub fn render(&self) -> Markup {
        html! {
            figure id=(self.id) {
                figcaption { (printable(&self.title)) }
                @for size in Size::ALL {
                    (self.drawn(size))
                }
                @if !self.legend.is_empty() {
                    ul.legend.unneeded[self.labelled] {
                        @for key in &self.legend {
                            li {
                                (swatch(key.look.swatch(key.filled)))
                                (printable(&key.name))
                            }
                        }
                    }
                }
                (self.table.folded())
            }
        }
    }

    fn drawn(&self, size: Size) -> Markup {
        let Drawing {
            width,
            height,
            body,
        } = self.figure.draw(size);
        let name = format!("{}-{}", self.id, size.class());
        let (title, text) = (format!("{name}-title"), format!("{name}-text"));
        html! {
            svg class=(size.class()) viewBox={ "0 0 " (width) " " (height) } role="img"
                aria-labelledby={ (title) " " (text) } {
                title id=(title) { (printable(&self.title)) }
                desc id=(text) { (printable(&self.text)) }
                (PreEscaped(body))
            }
        }
    }
}

fn swatch(drawing: Drawing) -> Markup {
    html! {
        svg.swatch viewBox={ "0 0 " (drawing.width) " " (drawing.height) } aria-hidden="true" {
            (PreEscaped(drawing.body))
        }
    }
}

/// A command to be copied whole.
pub fn command(line: &str) -> Markup {
    html! { code.command { (printable(line)) } }
}

/// A row, what is wrong with it, and the command that reproduces it.
pub fn case(row: &str, sentence: &str, line: Option<&str>) -> Markup {
    html! {
        li {
            @if !row.is_empty() { strong { (printable(row)) } ": " }
            (printable(sentence))
            @if let Some(line) = line { (command(line)) }
        }
    }
}

/// The text, or a dash where there is none.
pub fn cell(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), format)
}
