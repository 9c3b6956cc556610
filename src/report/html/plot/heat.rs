//! A heat map on one logarithmic scale.

use super::{Anchor, Canvas, Dash, Drawing, Figure, HEAT, Ink, Size, drawing, text_width};
use crate::report::number::sci;

/// Height of a cell.
const CELL: i32 = 15;

/// One row of a heat map.
#[derive(Clone, Debug)]
pub struct HeatRow {
    /// Its name: of a variant, where it is the first of several rows of one.
    pub group: Option<String>,
    /// What it is of the group.
    pub name: String,
    /// A number per column; `None` where nothing was measured.
    pub cells: Vec<Option<f64>>,
}

/// Rows of coloured cells.
#[derive(Clone, Debug)]
pub struct Heat {
    /// What is below the columns.
    pub title: String,
    /// What the scale is of.
    pub scale: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// From top to bottom.
    pub rows: Vec<HeatRow>,
}

/// The scale: powers of ten between two numbers.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(rows: &[HeatRow]) -> Self {
        let cells = rows.iter().flat_map(|row| row.cells.iter().flatten());
        let drawn = cells.filter(|value| value.is_finite() && **value > 0.0);
        let logs = drawn.map(|value| libm::log10(*value));
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        match low <= high {
            true => Self {
                low,
                high: high.max(low + 0.1),
            },
            false => Self {
                low: -1.0,
                high: 0.0,
            },
        }
    }

    fn step(&self, value: f64) -> usize {
        let share = (libm::log10(value) - self.low) / (self.high - self.low);
        ((share * HEAT as f64) as usize).min(HEAT - 1)
    }
}

impl Figure for Heat {
    fn draw(&self, size: Size) -> Drawing {
        let groups = self.rows.iter().filter_map(|row| row.group.as_deref());
        let names = groups.clone().map(text_width).max().unwrap_or(0);
        let kinds = self.rows.iter().map(|row| text_width(&row.name)).max();
        let kinds = kinds.unwrap_or(0) + 6;
        let (left, right, above) = match size {
            Size::Wide => (names + kinds + 16, 140, 4),
            Size::Narrow => (kinds, 0, 20),
        };
        let groups = groups.count() as i32;
        let bottom = 4 + self.rows.len() as i32 * CELL + groups * (above + 2);
        let scale = Scale::of(&self.rows);
        drawing(size.width(), bottom + 82, |canvas| {
            let grid = Grid {
                left,
                width: size.width() - right - left,
                columns: self.columns.len().max(1) as i32,
            };
            let mut y = 4;
            for row in &self.rows {
                if let Some(group) = &row.group {
                    y += above + 2;
                    let (at, anchor) = match size {
                        Size::Wide => ((left - kinds - 8, y + CELL / 2), Anchor::End),
                        Size::Narrow => ((0, y - 9), Anchor::Start),
                    };
                    canvas.text(group, at, anchor, Ink::Text);
                }
                let at = (left - 6, y + CELL / 2);
                canvas.text(&row.name, at, Anchor::End, Ink::Quiet);
                draw_cells(canvas, &grid, &scale, row, y);
                if size == Size::Wide {
                    let at = (size.width() - right + 10, y + CELL / 2);
                    canvas.text(&extremes(row), at, Anchor::Start, Ink::Quiet);
                }
                y += CELL;
            }
            self.draw_columns(canvas, &grid, bottom);
            draw_scale(canvas, &scale, &self.scale, (left, bottom + 50), size);
        })
    }
}

struct Grid {
    left: i32,
    width: i32,
    columns: i32,
}

impl Grid {
    fn x(&self, column: usize) -> i32 {
        self.left + self.width * column as i32 / self.columns
    }
}

fn draw_cells(canvas: &Canvas<'_>, grid: &Grid, scale: &Scale, row: &HeatRow, y: i32) {
    for (column, cell) in row.cells.iter().enumerate() {
        let (from, to) = (grid.x(column), grid.x(column + 1) - 1);
        let Some(value) = *cell else {
            continue;
        };
        if value.is_finite() && value > 0.0 {
            let ink = Ink::Heat(scale.step(value));
            canvas.rect((from, y), (to.max(from + 1), y + CELL - 1), ink);
        } else if value == 0.0 {
            let middle = y + CELL / 2;
            canvas.line(&[(from, middle), (to, middle)], Ink::Grid, 1, Dash::None);
        } else {
            canvas.rect((from, y), (to.max(from + 1), y + CELL - 1), Ink::Failed);
            canvas.text(
                "×",
                ((from + to) / 2, y + CELL / 2),
                Anchor::Middle,
                Ink::Page,
            );
        }
    }
    if let Some(worst) = worst(row) {
        let (from, to) = (grid.x(worst), grid.x(worst + 1) - 1);
        if to - from > 6 {
            // On a colour that hides the one, the other is seen.
            canvas.frame((from + 2, y + 2), (to - 2, y + CELL - 3), Ink::Page);
        }
        canvas.frame((from, y), (to, y + CELL - 1), Ink::Text);
    }
}

/// The column of the largest number of several different ones; NaN is larger than any.
fn worst(row: &HeatRow) -> Option<usize> {
    let mut cells = row.cells.iter().enumerate();
    let first = cells.find_map(|(column, cell)| Some((column, (*cell)?)))?;
    let mut worst = first;
    let mut differs = false;
    for (column, cell) in cells {
        let Some(value) = *cell else {
            continue;
        };
        differs |= value != worst.1;
        if !worst.1.is_nan() && (value.is_nan() || value > worst.1) {
            worst = (column, value);
        }
    }
    differs.then_some(worst.0)
}

/// `2.0e-4 to 2.2e-4`.
fn extremes(row: &HeatRow) -> String {
    let cells: Vec<f64> = row.cells.iter().flatten().copied().collect();
    if cells.iter().any(|value| value.is_nan()) {
        return "NaN".to_owned();
    }
    let low = cells.iter().copied().reduce(f64::min);
    let high = cells.iter().copied().reduce(f64::max);
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", sci(low, 2), sci(high, 2)),
        _ => String::new(),
    }
}

impl Heat {
    fn draw_columns(&self, canvas: &Canvas<'_>, grid: &Grid, bottom: i32) {
        let mut free = i32::MIN;
        for (column, name) in self.columns.iter().enumerate() {
            let middle = (grid.x(column) + grid.x(column + 1)) / 2;
            let half = text_width(name) / 2;
            let is_round = self.columns.len() <= 12 || column % 5 == 0;
            if is_round && middle - half >= free {
                canvas.text(name, (middle, bottom + 10), Anchor::Middle, Ink::Quiet);
                free = middle + half + 6;
            }
        }
        let at = (grid.left, bottom + 28);
        canvas.text(&self.title, at, Anchor::Start, Ink::Quiet);
    }
}

fn draw_scale(canvas: &Canvas<'_>, scale: &Scale, title: &str, at: (i32, i32), size: Size) {
    let step = 12;
    let (mut x, y) = at;
    if size == Size::Narrow {
        x = 0;
    }
    let low = sci(libm::pow(10.0, scale.low), 2);
    let high = sci(libm::pow(10.0, scale.high), 2);
    canvas.text(&low, (x, y + 6), Anchor::Start, Ink::Quiet);
    let from = x + text_width(&low) + 6;
    for number in 0..HEAT {
        let left = from + step * number as i32;
        canvas.rect((left, y), (left + step, y + 12), Ink::Heat(number));
    }
    let to = from + step * HEAT as i32 + 6;
    canvas.text(&high, (to, y + 6), Anchor::Start, Ink::Quiet);
    match size {
        Size::Wide => {
            let at = (to + text_width(&high) + 14, y + 6);
            canvas.text(title, at, Anchor::Start, Ink::Quiet);
        }
        Size::Narrow => canvas.text(title, (x, y + 24), Anchor::Start, Ink::Quiet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[Option<f64>]) -> HeatRow {
        HeatRow {
            group: None,
            name: "attn".to_owned(),
            cells: cells.to_vec(),
        }
    }

    #[test]
    fn the_worst_cell_is_nan_then_the_largest() {
        assert_eq!(
            worst(&row(&[None, Some(1.0), Some(3.0), Some(2.0)])),
            Some(2)
        );
        assert_eq!(
            worst(&row(&[Some(9.0), Some(f64::NAN), Some(99.0)])),
            Some(1)
        );
        assert_eq!(worst(&row(&[Some(1.0), Some(1.0)])), None);
        assert_eq!(worst(&row(&[None])), None);
    }

    #[test]
    fn cells_that_are_no_number_are_shown_as_such() {
        let heat = Heat {
            title: "layer".to_owned(),
            scale: "rel_l2".to_owned(),
            columns: vec!["0".to_owned(), "1".to_owned(), "2".to_owned()],
            rows: vec![row(&[Some(f64::NAN), Some(f64::INFINITY), Some(0.0)])],
        };
        let drawn = heat.draw(Size::Wide);
        assert_eq!(drawn.body.matches("×").count(), 2);
    }
}
