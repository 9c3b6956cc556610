//! Figures as SVG, drawn with plotters.
//!
//! A figure does not know the colours it is shown in: it is drawn in stand-ins, which are replaced by the variables of the
//! page's style, so that one drawing is right in a light and in a dark scheme and in print. Nothing here knows a report.

mod axis;
mod heat;
mod lines;
mod rows;

use plotters::{
    coord::Shift,
    prelude::{
        Circle, DrawingArea, IntoDrawingArea, IntoFont, PathElement, Polygon, RGBColor, Rectangle,
        SVGBackend,
    },
    style::{
        Color, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

pub use axis::Axis;
pub use heat::{Heat, HeatRow};
pub use lines::{Labels, Line, Lines, Mark};
pub use rows::{Bars, BarsRow, Dots, DotsRow, Histogram, HistogramRow};

/// Colours of series; beyond them lines are dashed.
const SERIES: usize = 10;
/// Steps of the heat map's scale.
const HEAT: usize = 16;
/// The font size of a figure, in its own pixels.
const FONT: f64 = 12.0;

/// For which width of the page a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A desk's screen, or paper.
    Wide,
    /// A phone.
    Narrow,
}

impl Size {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Wide, Self::Narrow];

    /// Pixels across.
    #[must_use]
    pub fn width(self) -> i32 {
        match self {
            Self::Wide => 860,
            Self::Narrow => 340,
        }
    }

    /// The class of the page's style that shows it.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

/// What is inside an `svg` element of this size.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// Pixels across.
    pub width: i32,
    /// Pixels down.
    pub height: i32,
    /// The markup, escaped.
    pub body: String,
}

/// Something that can be drawn for a page of either width.
pub trait Figure {
    /// Draws it.
    fn draw(&self, size: Size) -> Drawing;
}

/// A colour by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// What is to be read.
    Text,
    /// What explains it.
    Quiet,
    /// Lines behind.
    Grid,
    /// The page itself: on a colour of a series.
    Page,
    /// What is no number.
    Failed,
    /// One of several.
    Series(usize),
    /// A step of the scale.
    Heat(usize),
}

/// How often a line is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dash {
    None,
    Long,
    Short,
    Dots,
}

/// How a series is told from others: by colour, by shape and, where there are more than colours, by dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look(pub usize);

impl Look {
    fn ink(self) -> Ink {
        Ink::Series(self.0 % SERIES)
    }

    fn dash(self) -> Dash {
        [Dash::None, Dash::Long, Dash::Short, Dash::Dots][self.0 / SERIES % 4]
    }

    /// A line with its mark, or a filled square: what a legend shows.
    #[must_use]
    pub fn swatch(self, filled: bool) -> Drawing {
        drawing(26, 12, |canvas| {
            if filled {
                canvas.rect((6, 0), (20, 12), self.ink());
            } else {
                canvas.line(&[(0, 6), (26, 6)], self.ink(), 2, self.dash());
                canvas.mark(self, (13, 6));
            }
        })
    }
}

/// Where a text begins, ends or has its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// Draws into a fresh canvas.
fn drawing(width: i32, height: i32, draw: impl FnOnce(&Canvas<'_>)) -> Drawing {
    let mut text = String::new();
    {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let canvas = Canvas { area };
        draw(&canvas);
        // In memory nothing fails.
        let _ = canvas.area.present();
    }
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let body = body.trim().trim_end_matches("</svg>");
    Drawing {
        width,
        height,
        body: with_variables(body),
    }
}

/// What is drawn on, in pixels. Drawing in memory cannot fail.
struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

type Point = (i32, i32);

impl Canvas<'_> {
    fn line(&self, points: &[Point], ink: Ink, width: u32, dash: Dash) {
        let style = stand_in(ink, dash).stroke_width(width);
        let _ = self.area.draw(&PathElement::new(points.to_vec(), style));
    }

    fn rect(&self, from: Point, to: Point, ink: Ink) {
        let style = stand_in(ink, Dash::None).filled();
        let _ = self.area.draw(&Rectangle::new([from, to], style));
    }

    fn frame(&self, from: Point, to: Point, ink: Ink) {
        let style = stand_in(ink, Dash::None).stroke_width(1);
        let _ = self.area.draw(&Rectangle::new([from, to], style));
    }

    fn polygon(&self, points: Vec<Point>, ink: Ink) {
        let style = stand_in(ink, Dash::None).filled();
        let _ = self.area.draw(&Polygon::new(points, style));
    }

    fn ring(&self, at: Point, radius: i32, ink: Ink) {
        let style = stand_in(ink, Dash::None).stroke_width(2);
        let _ = self.area.draw(&Circle::new(at, radius, style));
    }

    /// The mark of a series, its middle at a point.
    fn mark(&self, look: Look, (x, y): Point) {
        let ink = look.ink();
        // Series of one colour differ in their marks as well.
        match (look.0 + look.0 / SERIES) % 5 {
            0 => {
                let style = stand_in(ink, Dash::None).filled();
                let _ = self.area.draw(&Circle::new((x, y), 4, style));
            }
            1 => self.rect((x - 4, y - 4), (x + 4, y + 4), ink),
            2 => self.polygon(vec![(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], ink),
            3 => self.diamond((x, y), ink),
            _ => self.polygon(vec![(x, y + 5), (x + 5, y - 4), (x - 5, y - 4)], ink),
        }
    }

    fn diamond(&self, (x, y): Point, ink: Ink) {
        self.polygon(vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], ink);
    }

    /// A text whose middle line is at the point's height.
    fn text(&self, text: &str, at: Point, anchor: Anchor, ink: Ink) {
        let h_pos = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        // Plotters divides by the ratio of a font's height to its size.
        let colour = stand_in(ink, Dash::None);
        let style = TextStyle::from(("sans-serif", FONT * 1.24).into_font())
            .color(&colour)
            .pos(Pos::new(h_pos, VPos::Center));
        let _ = self.area.draw_text(text, &style, at);
    }
}

/// About how wide a text is; no font is asked.
fn text_width(text: &str) -> i32 {
    (text.chars().count() as f64 * FONT * 0.61).ceil() as i32
}

/// The names of the style's variables, in the order of their stand-ins.
const FIXED: [(Ink, &str); 5] = [
    (Ink::Text, "ink"),
    (Ink::Quiet, "quiet"),
    (Ink::Grid, "grid"),
    (Ink::Page, "card"),
    (Ink::Failed, "bad"),
];

/// The colour that stands for an ink until the page's style gives it one.
fn stand_in(ink: Ink, dash: Dash) -> RGBColor {
    let (kind, number) = match ink {
        Ink::Series(number) => (1, number),
        Ink::Heat(number) => (2, number),
        fixed => (
            0,
            FIXED.iter().position(|(ink, _)| *ink == fixed).unwrap_or(0),
        ),
    };
    RGBColor(kind, number as u8, dash as u8)
}

/// The attributes that a stand-in is replaced by; `None` if it is none.
fn attributes(hex: &str) -> Option<String> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let (kind, number, dash) = (byte(0)?, byte(2)?, byte(4)?);
    let name = match kind {
        0 => FIXED.get(usize::from(number))?.1.to_owned(),
        1 => format!("s{number}"),
        2 => format!("h{number}"),
        _ => return None,
    };
    let dash = match dash {
        1 => " stroke-dasharray=\"7 4\"",
        2 => " stroke-dasharray=\"3 3\"",
        3 => " stroke-dasharray=\"1 3\"",
        _ => "",
    };
    Some(format!("=\"var(--{name})\"{dash}"))
}

/// Replaces every stand-in. In text from outside no quote is left, so nothing there looks like one.
fn with_variables(svg: &str) -> String {
    const LENGTH: usize = "=\"#000000\"".len();
    let svg = svg
        .replace(" opacity=\"1\"", "")
        .replace(" font-family=\"sans-serif\"", "");
    let mut whole = String::with_capacity(svg.len());
    let mut rest = svg.as_str();
    while let Some(at) = rest.find("=\"#") {
        whole.push_str(&rest[..at]);
        let colour = rest.get(at..at + LENGTH).unwrap_or("");
        match colour.get(3..9).and_then(attributes) {
            Some(attributes) => {
                whole.push_str(&attributes);
                rest = &rest[at + LENGTH..];
            }
            None => {
                whole.push_str(&rest[at..at + 3]);
                rest = &rest[at + 3..];
            }
        }
    }
    whole.push_str(rest);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_become_variables_and_text_stays_text() {
        let drawn = drawing(100, 20, |canvas| {
            canvas.line(&[(0, 0), (9, 9)], Ink::Series(3), 2, Dash::Long);
            canvas.text("<b fill=\"#000100\">é", (5, 5), Anchor::End, Ink::Text);
        });
        assert!(
            drawn
                .body
                .contains("stroke=\"var(--s3)\" stroke-dasharray=\"7 4\"")
        );
        assert!(drawn.body.contains("fill=\"var(--ink)\""), "{}", drawn.body);
        assert!(drawn.body.contains("&lt;b fill=&quot;#000100&quot;&gt;é"));
        assert!(drawn.body.contains("font-size=\"12\""), "{}", drawn.body);
        assert!(!drawn.body.contains("svg") && !drawn.body.contains("=\"#"));
    }

    #[test]
    fn the_first_series_differ_in_more_than_colour() {
        let looks: Vec<String> = (0..40).map(|n| Look(n).swatch(false).body).collect();
        for (n, look) in looks.iter().enumerate() {
            assert!(!looks[..n].contains(look), "{n}");
        }
    }
}
