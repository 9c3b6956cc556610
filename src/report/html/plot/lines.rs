//! Series over an axis: lines with marks, single points, and reference marks.

use super::{
    Anchor, Axis, Canvas, Dash, Drawing, Figure, Ink, Look, Point, Size, axis::Plane, drawing,
    text_width,
};

/// Height of a line of text.
const LINE: i32 = 15;

/// One series.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// How it looks.
    pub look: Look,
    /// What was measured.
    pub points: Vec<(f64, f64)>,
    /// What was fitted to it, a thin line.
    pub fit: Vec<(f64, f64)>,
    /// What is expected: x, and the least, the median and the most of y.
    pub forecast: Option<(f64, [f64; 3])>,
}

impl Line {
    /// A series that is as it was measured.
    #[must_use]
    pub fn new(name: &str, look: Look, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            look,
            points,
            fit: Vec::new(),
            forecast: None,
        }
    }
}

/// A number from elsewhere.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where.
    pub at: (f64, f64),
    /// What it is.
    pub label: String,
}

/// Where the names of series stand in a wide figure; in a narrow one a legend has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// Behind the ends of lines.
    Ends,
    /// Beside single points.
    Beside,
}

/// Lines over two axes.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The series.
    pub lines: Vec<Line>,
    /// Numbers from elsewhere.
    pub marks: Vec<Mark>,
    /// Where the names stand.
    pub labels: Labels,
}

impl Figure for Lines {
    fn draw(&self, size: Size) -> Drawing {
        let names = self.lines.iter().map(|line| text_width(&line.name));
        let longest = names.max().unwrap_or(0);
        let right = match (size, self.labels) {
            (Size::Wide, Labels::Ends) => longest + 36,
            (Size::Wide, Labels::Beside) => longest + 12,
            (Size::Narrow, _) => 10,
        };
        let labels = match self.labels {
            Labels::Ends => self.lines.len() as i32 * LINE,
            Labels::Beside => 0,
        };
        let inner = match size {
            Size::Wide => labels.max(320),
            Size::Narrow => 260,
        };
        let (left, top) = (52, 30);
        let height = top + inner + 48;
        drawing(size.width(), height, |canvas| {
            let to = (size.width() - right, top + inner);
            let plane = Plane::new(&self.x, &self.y, (left, top), to);
            plane.draw(canvas);
            for line in &self.lines {
                draw_line(canvas, &plane, line);
            }
            for mark in &self.marks {
                draw_mark(canvas, &plane, mark);
            }
            match (size, self.labels) {
                (Size::Narrow, _) => {}
                (Size::Wide, Labels::Ends) => self.label_ends(canvas, &plane),
                (Size::Wide, Labels::Beside) => self.label_points(canvas, &plane),
            }
        })
    }
}

fn draw_line(canvas: &Canvas<'_>, plane: &Plane<'_>, line: &Line) {
    let (ink, dash) = (line.look.ink(), line.look.dash());
    for part in parts(plane, &line.fit) {
        canvas.line(&part, ink, 1, Dash::Short);
    }
    for part in parts(plane, &line.points) {
        if part.len() > 1 {
            canvas.line(&part, ink, 2, dash);
        }
    }
    let places: Vec<Point> = line.points.iter().filter_map(|&at| plane.at(at)).collect();
    // Marks that touch would hide the line.
    let mut last: Option<Point> = None;
    for &at in &places {
        let is_apart = last.is_none_or(|last: Point| (at.0 - last.0).abs() >= 22);
        if is_apart || Some(&at) == places.last() {
            canvas.mark(line.look, at);
            last = Some(at);
        }
    }
    if let Some((x, [low, median, high])) = line.forecast {
        let ends = [plane.at((x, low)), plane.at((x, high))];
        if let [Some(low), Some(high)] = ends {
            canvas.line(&[low, high], ink, 2, Dash::None);
        }
        if let Some(at) = plane.at((x, median)) {
            canvas.ring(at, 4, ink);
        }
    }
}

/// What of a series has a place, broken where something between has none.
fn parts(plane: &Plane<'_>, points: &[(f64, f64)]) -> Vec<Vec<Point>> {
    let mut parts = vec![Vec::new()];
    for &point in points {
        match (plane.at(point), parts.last_mut()) {
            (Some(at), Some(part)) => part.push(at),
            _ => parts.push(Vec::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn draw_mark(canvas: &Canvas<'_>, plane: &Plane<'_>, mark: &Mark) {
    let Some(at) = plane.at(mark.at) else {
        return;
    };
    canvas.diamond(at, Ink::Text);
    let width = text_width(&mark.label);
    let fits = at.0 + 12 + width <= plane.to.0;
    let (x, anchor) = match fits {
        true => (at.0 + 12, Anchor::Start),
        false => (at.0 - 12, Anchor::End),
    };
    canvas.text(&mark.label, (x, at.1), anchor, Ink::Text);
}

impl Lines {
    /// Names behind the last point of each line, pushed apart, with a line that leads there.
    fn label_ends(&self, canvas: &Canvas<'_>, plane: &Plane<'_>) {
        let mut ends: Vec<(Point, &Line)> = Vec::new();
        for line in &self.lines {
            let forecast = line.forecast.map(|(x, [_, median, _])| (x, median));
            let last = line.points.iter().rev().copied();
            let end = forecast.into_iter().chain(last).find_map(|at| plane.at(at));
            ends.extend(end.map(|end| (end, line)));
        }
        ends.sort_by_key(|((_, y), _)| *y);
        let wanted: Vec<i32> = ends.iter().map(|((_, y), _)| *y).collect();
        let heights = apart(&wanted, plane.from.1, plane.to.1);
        for (((x, y), line), height) in ends.into_iter().zip(heights) {
            let ink = line.look.ink();
            let label = plane.to.0 + 26;
            let bends = [(x + 6, y), (plane.to.0 + 6, y), (label - 5, height)];
            canvas.line(&bends, ink, 1, Dash::None);
            canvas.text(&line.name, (label, height), Anchor::Start, ink);
        }
    }

    /// Names beside single points, each where no other stands.
    fn label_points(&self, canvas: &Canvas<'_>, plane: &Plane<'_>) {
        let mut taken: Vec<(Point, i32)> = Vec::new();
        for line in &self.lines {
            let Some((x, y)) = line.points.iter().find_map(|&at| plane.at(at)) else {
                continue;
            };
            let (x, width) = (x + 10, text_width(&line.name));
            let is_free = |y: i32| {
                taken.iter().all(|&((left, top), other)| {
                    (top - y).abs() >= LINE - 1 || left + other < x || x + width < left
                })
            };
            let steps = (0..40).flat_map(|step| [step * 4, -step * 4]);
            let free = steps.map(|step| y + step).find(|&y| is_free(y));
            let place = free.unwrap_or(y);
            if (place - y).abs() > 8 {
                canvas.line(
                    &[(x - 6, y), (x - 1, place)],
                    line.look.ink(),
                    1,
                    Dash::None,
                );
            }
            canvas.text(&line.name, (x, place), Anchor::Start, line.look.ink());
            taken.push(((x, place), width));
        }
    }
}

/// Heights in ascending order, moved as little as it takes to be a line of text apart.
fn apart(wanted: &[i32], top: i32, bottom: i32) -> Vec<i32> {
    let mut heights = Vec::with_capacity(wanted.len());
    let mut free = i32::MIN;
    for &wanted in wanted {
        let height = wanted.max(free).max(top);
        heights.push(height);
        free = height + LINE;
    }
    // Labels come in groups that touch; each group is moved so that its middle is where it was meant.
    let mut limit = bottom;
    let mut end = heights.len();
    while end > 0 {
        let mut start = end - 1;
        while start > 0 && heights[start] - heights[start - 1] <= LINE {
            start -= 1;
        }
        let group = start..end;
        let count = group.len() as i32;
        let off: i32 = group.clone().map(|n| heights[n] - wanted[n]).sum::<i32>() / count;
        let over = (heights[end - 1] - off - limit).max(0);
        let room = heights[start] - top;
        let off = (off + over).min(room.max(over));
        for height in &mut heights[group] {
            *height -= off;
        }
        limit = heights[start] - LINE;
        end = start;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_apart(wanted: &[i32]) -> Vec<i32> {
        let heights = apart(wanted, 0, 300);
        for pair in heights.windows(2) {
            assert!(pair[1] - pair[0] >= LINE, "{wanted:?} {heights:?}");
        }
        assert!(heights.iter().all(|y| (0..=300).contains(y)), "{heights:?}");
        heights
    }

    #[test]
    fn labels_are_a_line_apart_and_inside() {
        assert_eq!(assert_apart(&[10, 100, 290]), [10, 100, 290]);
        assert_eq!(assert_apart(&[100, 100, 100]), [85, 100, 115]);
        assert_apart(&[300, 300, 300, 300]);
        assert_apart(&[0, 0, 1, 2]);
        assert_apart(&[100, 101, 120, 121, 122, 140]);
        assert_apart(&[150; 19]);
    }

    #[test]
    fn a_line_is_broken_where_a_value_is_not_finite() {
        let axis = || Axis::linear("", 0.0, 4.0);
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0)];
        let lines = Lines {
            x: axis(),
            y: axis(),
            lines: vec![Line::new("a", Look(0), points.to_vec())],
            marks: Vec::new(),
            labels: Labels::Ends,
        };
        let drawn = lines.draw(Size::Wide);
        assert_eq!(drawn.body.matches("stroke-width=\"2\"").count(), 1);
        assert!(!drawn.body.contains("NaN"));
    }
}
