//! From numbers to pixels: logarithmic and linear axes and their ticks.

use plotters::coord::{CoordTranslate, cartesian::Cartesian2d, types::RangedCoordf64};

use super::{Anchor, Canvas, Dash, Ink, Point};
use crate::report::number::{plain, sci};

/// How a number is written beside its tick.
type Label = fn(f64) -> String;

/// The smallest number above zero.
const SMALLEST: f64 = f64::from_bits(1);

/// One axis of a figure.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, in words.
    pub title: String,
    is_log: bool,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Powers of ten between the smallest and the largest of these that are above zero and finite; `None` if none is.
    #[must_use]
    pub fn log(title: &str, values: impl Iterator<Item = f64>, label: Label) -> Option<Self> {
        let (low, high) = extent(values.filter(|value| *value > 0.0))?;
        // What a report says may be as small or as large as a number can be.
        let room = libm::pow((high / low).min(f64::MAX), 0.04).max(1.15);
        let low = (low / room).max(SMALLEST);
        // Down there, 1.15 times a number is that number.
        let high = (high * room).min(f64::MAX).max(low + SMALLEST);
        let decades = libm::log10(high) - libm::log10(low);
        let steps: &[f64] = match decades {
            ..0.4 => &[
                1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
                6.0, 7.0, 8.0, 9.0,
            ],
            ..1.3 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            ..2.6 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = (decades / 6.5).ceil().max(1.0) as i32;
        let exponents = libm::log10(low).floor() as i32..=libm::log10(high).ceil() as i32;
        let exponents = exponents.filter(|exponent| exponent.rem_euclid(every) == 0);
        let values = exponents.flat_map(|exponent| {
            steps
                .iter()
                .map(move |step| step * libm::pow(10.0, f64::from(exponent)))
        });
        let ticks = values
            .filter(|value| (low..=high).contains(value))
            .map(|value| (value, label(value)));
        Some(Self {
            title: title.to_owned(),
            is_log: true,
            low,
            high,
            ticks: ticks.collect(),
        })
    }

    /// Round steps between two numbers.
    #[must_use]
    pub fn linear(title: &str, low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let rough = (high - low) / 5.0;
        let power = libm::pow(10.0, libm::log10(rough).floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|step| step * power)
            .into_iter()
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(rough);
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let label = |value: f64| {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let values = (first..=last).map(|number| number as f64 * step);
        Self {
            title: title.to_owned(),
            is_log: false,
            low,
            high,
            ticks: values.map(|value| (value, label(value))).collect(),
        }
    }

    /// The same with other ticks.
    #[must_use]
    pub fn with_ticks(self, ticks: impl Iterator<Item = (f64, String)>) -> Self {
        let (low, high) = (self.low, self.high);
        let ticks = ticks.filter(|(value, _)| (low..=high).contains(value));
        Self {
            ticks: ticks.collect(),
            ..self
        }
    }

    /// `1e-3`.
    #[must_use]
    pub fn power(value: f64) -> String {
        match libm::log10(value).fract().abs() < 1e-9 {
            true => sci(value, 1),
            false => {
                let text = sci(value, 2);
                text.replace(".0e", "e")
            }
        }
    }

    /// `20`, `0.5`.
    #[must_use]
    pub fn count(value: f64) -> String {
        let text = plain(value, 2);
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    }

    /// Whether a number has a place on it.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn scaled(&self, value: f64) -> f64 {
        match self.is_log {
            true => libm::log10(value.max(self.low)),
            false => value,
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.scaled(self.low)..self.scaled(self.high)
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|value| value.is_finite())
        .fold(None, |extent, value| {
            let (low, high) = extent.unwrap_or((value, value));
            Some((value.min(low), value.max(high)))
        })
}

/// Two axes laid over a rectangle of pixels.
pub(super) struct Plane<'a> {
    x: &'a Axis,
    y: &'a Axis,
    pub(super) from: Point,
    pub(super) to: Point,
    place: Cartesian2d<RangedCoordf64, RangedCoordf64>,
}

impl<'a> Plane<'a> {
    /// `from` is above and to the left of `to`.
    pub(super) fn new(x: &'a Axis, y: &'a Axis, from: Point, to: Point) -> Self {
        let place = Cartesian2d::new(x.range(), y.range(), (from.0..to.0, to.1..from.1));
        Self {
            x,
            y,
            from,
            to,
            place,
        }
    }

    /// The pixel of a pair of numbers; `None` where one has no place.
    pub(super) fn at(&self, (x, y): (f64, f64)) -> Option<Point> {
        (self.x.holds(x) && self.y.holds(y))
            .then(|| self.place.translate(&(self.x.scaled(x), self.y.scaled(y))))
    }

    /// Grid lines with their numbers, and the titles: the one of y above, the one of x below.
    pub(super) fn draw(&self, canvas: &Canvas<'_>) {
        for (value, label) in &self.y.ticks {
            let y = self
                .place
                .translate(&(self.x.range().start, self.y.scaled(*value)))
                .1;
            canvas.line(
                &[(self.from.0, y), (self.to.0, y)],
                Ink::Grid,
                1,
                Dash::None,
            );
            canvas.text(label, (self.from.0 - 8, y), Anchor::End, Ink::Quiet);
        }
        self.draw_x(canvas);
        let above = (self.from.0, self.from.1 - 18);
        canvas.text(&self.y.title, above, Anchor::Start, Ink::Quiet);
    }

    /// The axis of x alone.
    pub(super) fn draw_x(&self, canvas: &Canvas<'_>) {
        let mut free = i32::MIN;
        for (value, label) in &self.x.ticks {
            let x = self
                .place
                .translate(&(self.x.scaled(*value), self.y.range().start))
                .0;
            canvas.line(
                &[(x, self.from.1), (x, self.to.1)],
                Ink::Grid,
                1,
                Dash::None,
            );
            let half = super::text_width(label) / 2;
            if x - half >= free {
                canvas.text(label, (x, self.to.1 + 14), Anchor::Middle, Ink::Quiet);
                free = x + half + 6;
            }
        }
        let below = (self.from.0, self.to.1 + 34);
        canvas.text(&self.x.title, below, Anchor::Start, Ink::Quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let log = |values: &[f64], label| Axis::log("", values.iter().copied(), label).unwrap();
        let axis = log(&[1.3e-9, 0.0, f64::NAN, f64::INFINITY, 4e-3], Axis::power);
        assert_eq!(ticks(&axis), ["1e-8", "1e-6", "1e-4"]);
        assert_eq!(
            ticks(&log(&[1.0, 61.0], Axis::count)),
            ["1", "2", "5", "10", "20", "50"]
        );
        assert_eq!(
            ticks(&log(&[1.9e-3, 9e-3], Axis::power)),
            ["2e-3", "3e-3", "4e-3", "5e-3", "7e-3", "1e-2"]
        );
        assert_eq!(
            ticks(&Axis::linear("", 0.0, 1.0)),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(
            ticks(&Axis::linear("", 0.97, 1.0)),
            ["0.97", "0.98", "0.99", "1"]
        );
    }

    #[test]
    fn the_smallest_and_the_largest_number_have_a_place() {
        let axis = |values: &[f64]| Axis::log("", values.iter().copied(), Axis::power).unwrap();
        for (values, ticks) in [
            ([SMALLEST, 1.0], 3..10),
            ([1.0, f64::MAX], 3..10),
            ([SMALLEST, f64::MAX], 3..10),
            ([SMALLEST, SMALLEST], 1..10),
            ([f64::MAX, f64::MAX], 1..10),
        ] {
            let axis = axis(&values);
            assert!(values.iter().all(|&value| axis.holds(value)), "{axis:?}");
            assert!(axis.low < axis.high, "{axis:?}");
            assert!(ticks.contains(&axis.ticks.len()), "{axis:?}");
        }
    }

    #[test]
    fn nothing_above_zero_has_no_axis() {
        assert!(Axis::log("", [0.0, -1.0, f64::NAN].into_iter(), Axis::power).is_none());
    }

    #[test]
    fn what_has_no_place_is_not_drawn() {
        let x = Axis::linear("", 0.0, 10.0);
        let y = Axis::log("", [1e-4, 1e-2].into_iter(), Axis::power).unwrap();
        let plane = Plane::new(&x, &y, (0, 0), (100, 100));
        assert_eq!(plane.at((5.0, 1e-3)).map(|at| at.0), Some(50));
        for nowhere in [0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(plane.at((5.0, nowhere)), None);
        }
    }
}
