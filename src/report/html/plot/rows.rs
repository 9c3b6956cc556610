//! A row per variant: dots with their spread, stacked bars, histograms.

use super::{
    Anchor, Axis, Canvas, Dash, Drawing, Figure, Ink, Look, Size, axis::Plane, drawing, text_width,
};
use crate::report::table::shorten;

/// What a row's number takes up behind it.
const BEHIND: i32 = 64;

/// Where rows begin and end. On a phone a name stands above its row, elsewhere before it.
struct Layout {
    size: Size,
    left: i32,
    right: i32,
    /// Characters of a name.
    room: usize,
}

impl Layout {
    fn new<'a>(size: Size, names: impl Iterator<Item = &'a str>) -> Self {
        const ROOM: usize = 34;
        let longest = names.map(text_width).max().unwrap_or(0);
        let widest = text_width(&"x".repeat(ROOM));
        match size {
            Size::Wide => Self {
                size,
                left: longest.min(widest) + 12,
                right: size.width() - BEHIND,
                room: ROOM,
            },
            Size::Narrow => Self {
                size,
                // Half of the first tick's number is before it.
                left: 18,
                right: size.width() - BEHIND,
                room: 44,
            },
        }
    }

    /// How much higher a row is for its name.
    fn above(&self) -> i32 {
        match self.size {
            Size::Wide => 0,
            Size::Narrow => 16,
        }
    }

    /// Writes a name for a row whose middle is at `y` and whose top is at `top`.
    fn name(&self, canvas: &Canvas<'_>, name: &str, top: i32, y: i32) {
        let name = shorten(name, self.room);
        match self.size {
            Size::Wide => canvas.text(&name, (self.left - 12, y), Anchor::End, Ink::Text),
            Size::Narrow => canvas.text(&name, (0, top + 8), Anchor::Start, Ink::Text),
        }
    }
}

/// One row of [`Dots`].
#[derive(Clone, Debug)]
pub struct DotsRow {
    /// Its name.
    pub name: String,
    /// Its numbers.
    pub dots: Vec<(f64, Look)>,
    /// What is written behind it.
    pub note: String,
}

/// Numbers of each row on one axis; a line joins them.
#[derive(Clone, Debug)]
pub struct Dots {
    /// Across.
    pub x: Axis,
    /// From top to bottom.
    pub rows: Vec<DotsRow>,
}

impl Figure for Dots {
    fn draw(&self, size: Size) -> Drawing {
        let layout = Layout::new(size, self.rows.iter().map(|row| row.name.as_str()));
        let each = 24 + layout.above();
        let bottom = 8 + each * self.rows.len() as i32;
        drawing(size.width(), bottom + 44, |canvas| {
            let y = Axis::linear("", 0.0, 1.0);
            let plane = Plane::new(&self.x, &y, (layout.left, 8), (layout.right, bottom));
            plane.draw_x(canvas);
            for (number, row) in self.rows.iter().enumerate() {
                let top = 8 + each * number as i32;
                let middle = top + layout.above() + 12;
                layout.name(canvas, &row.name, top, middle);
                let places: Vec<_> = row
                    .dots
                    .iter()
                    .filter_map(|&(value, look)| Some((plane.at((value, 0.0))?.0, look)))
                    .collect();
                let xs = || places.iter().map(|(x, _)| *x);
                if let (Some(least), Some(most)) = (xs().min(), xs().max()) {
                    canvas.line(
                        &[(least, middle), (most, middle)],
                        Ink::Quiet,
                        1,
                        Dash::None,
                    );
                }
                for (x, look) in places {
                    canvas.mark(look, (x, middle));
                }
                canvas.text(
                    &row.note,
                    (layout.right + 8, middle),
                    Anchor::Start,
                    Ink::Quiet,
                );
            }
        })
    }
}

/// One row of [`Bars`].
#[derive(Clone, Debug)]
pub struct BarsRow {
    /// Its name.
    pub name: String,
    /// Its parts, shares of 1.
    pub parts: Vec<(f64, Look)>,
    /// What is written behind it.
    pub note: String,
}

/// Stacked bars, each of the same length.
#[derive(Clone, Debug)]
pub struct Bars {
    /// From top to bottom.
    pub rows: Vec<BarsRow>,
}

impl Figure for Bars {
    fn draw(&self, size: Size) -> Drawing {
        let layout = Layout::new(size, self.rows.iter().map(|row| row.name.as_str()));
        let each = 28 + layout.above();
        let bottom = 4 + each * self.rows.len() as i32;
        drawing(size.width(), bottom + 4, |canvas| {
            for (number, row) in self.rows.iter().enumerate() {
                let top = 4 + each * number as i32;
                let middle = top + layout.above() + 14;
                layout.name(canvas, &row.name, top, middle);
                bar(canvas, &layout, row, middle);
                canvas.text(
                    &row.note,
                    (layout.right + 8, middle),
                    Anchor::Start,
                    Ink::Quiet,
                );
            }
        })
    }
}

fn bar(canvas: &Canvas<'_>, layout: &Layout, row: &BarsRow, middle: i32) {
    let drawn = |share: f64| share.is_finite() && share > 0.0;
    let whole: f64 = row
        .parts
        .iter()
        .map(|part| part.0)
        .filter(|s| drawn(*s))
        .sum();
    let length = f64::from(layout.right - layout.left);
    let mut sum = 0.0;
    let mut x = layout.left;
    for &(share, look) in row.parts.iter().filter(|(share, _)| drawn(*share)) {
        sum += share / whole;
        let end = layout.left + (length * sum).round() as i32;
        if end > x {
            // A pixel between the parts, where there is room for one.
            let gap = i32::from(end - x > 3);
            canvas.rect((x, middle - 10), (end - gap, middle + 10), look.ink());
            let label = format!("{:.0} %", 100.0 * share);
            if text_width(&label) + 6 <= end - x {
                let at = ((x + end) / 2, middle);
                canvas.text(&label, at, Anchor::Middle, Ink::Page);
            }
        }
        x = end;
    }
    if row.parts.iter().any(|(share, _)| !share.is_finite()) {
        canvas.text(
            "no number",
            (layout.left + 8, middle),
            Anchor::Start,
            Ink::Failed,
        );
    }
}

/// One row of [`Histogram`].
#[derive(Clone, Debug)]
pub struct HistogramRow {
    /// Its name.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// Its numbers.
    pub values: Vec<f64>,
    /// What is written behind it.
    pub note: String,
}

/// A histogram per row, over one logarithmic axis.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Across.
    pub x: Axis,
    /// From top to bottom.
    pub rows: Vec<HistogramRow>,
    /// Where the bins begin, and where the last one ends.
    pub edges: Vec<f64>,
    /// A number that decides, marked through all rows.
    pub threshold: f64,
}

impl Histogram {
    /// How many of a row's numbers are in each bin.
    #[must_use]
    pub fn counts(&self, row: &HistogramRow) -> Vec<usize> {
        let bins = self.edges.windows(2);
        let count = |bin: &[f64]| {
            let is_in = |value: &&f64| **value >= bin[0] && **value < bin[1];
            row.values.iter().filter(is_in).count()
        };
        bins.map(count).collect()
    }
}

impl Figure for Histogram {
    fn draw(&self, size: Size) -> Drawing {
        const HEIGHT: i32 = 26;
        let layout = Layout::new(size, self.rows.iter().map(|row| row.name.as_str()));
        let each = HEIGHT + 8 + layout.above();
        let bottom = 8 + each * self.rows.len() as i32;
        drawing(size.width(), bottom + 44, |canvas| {
            let y = Axis::linear("", 0.0, 1.0);
            let plane = Plane::new(&self.x, &y, (layout.left, 8), (layout.right, bottom));
            plane.draw_x(canvas);
            let x_of = |value: f64| plane.at((value, 0.0)).map(|(x, _)| x);
            for (number, row) in self.rows.iter().enumerate() {
                let top = 8 + each * number as i32;
                let floor = top + layout.above() + HEIGHT + 4;
                layout.name(canvas, &row.name, top, floor - HEIGHT / 2);
                let ends = [(layout.left, floor), (layout.right, floor)];
                canvas.line(&ends, Ink::Grid, 1, Dash::None);
                let counts = self.counts(row);
                let most = counts.iter().copied().max().unwrap_or(0).max(1);
                for (bin, count) in self.edges.windows(2).zip(counts) {
                    let ends = (x_of(bin[0]), x_of(bin[1]));
                    if let ((Some(from), Some(to)), 1..) = (ends, count) {
                        let height = (HEIGHT * count as i32 / most as i32).max(2);
                        let from = (from, floor - height);
                        canvas.rect(from, ((to - 1).max(from.0 + 1), floor), row.look.ink());
                    }
                }
                let at = (layout.right + 8, floor - HEIGHT / 2);
                canvas.text(&row.note, at, Anchor::Start, Ink::Quiet);
            }
            if let Some(x) = x_of(self.threshold) {
                canvas.line(&[(x, 8), (x, bottom)], Ink::Text, 1, Dash::Long);
            }
        })
    }
}
