//! Cells in columns. What colours a cell takes no room.

use crate::report::style;

/// Rows of cells, the header first if there is one.
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
    /// The columns that stand to the left; numbers stand to the right.
    left: Vec<usize>,
    widths: Vec<usize>,
}

impl Columns {
    /// Lays out rows below a header, which may be empty; a row may have fewer cells.
    pub(super) fn new(
        header: &[&str],
        left: &[usize],
        rows: impl Iterator<Item = Vec<String>>,
    ) -> Self {
        let names = header.iter().map(|&name| name.to_owned()).collect();
        let header = (!header.is_empty()).then_some(names);
        let rows: Vec<Vec<String>> = header.into_iter().chain(rows).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell: &String| style::width(cell));
            widths.max().unwrap_or(0)
        };
        Self {
            widths: (0..columns).map(width).collect(),
            left: left.to_vec(),
            rows,
        }
    }

    /// Columns of the terminal that it takes, a blank between cells.
    pub(crate) fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + self.widths.len().saturating_sub(1)
    }

    /// The text, without blanks at the end of a line and without a final newline.
    pub(crate) fn trim_fmt(&self) -> String {
        let lines: Vec<String> = self.rows.iter().map(|row| self.line(row)).collect();
        lines.join("\n")
    }

    fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let blanks = " ".repeat(self.widths[column].saturating_sub(style::width(cell)));
            if self.left.contains(&column) {
                line += &format!("{cell}{blanks} ");
            } else {
                line += &format!("{blanks}{cell} ");
            }
        }
        line.trim_end().to_owned()
    }
}
