//! Where a chain stops being finite.

use ndarray::ArrayView2;

use super::link::Link;
use crate::{measure::value::Value, report::NonFinite, suite::fault::Variant};

/// The stages of one site, looked at in order.
pub struct Watch<'a> {
    variant: Variant<'a>,
    link: &'a Link,
    streams: ArrayView2<'a, f32>,
    found: Option<NonFinite>,
}

impl<'a> Watch<'a> {
    /// Of a variant that comes to a site with these streams.
    pub fn new(variant: Variant<'a>, link: &'a Link, streams: ArrayView2<'a, f32>) -> Self {
        Self {
            variant,
            link,
            streams,
            found: None,
        }
    }

    /// Looks at a stage [T, …].
    pub fn see(&mut self, stage: &'static str, values: ArrayView2<'_, f32>) {
        if self.found.is_some() {
            return;
        }
        let first = values
            .rows()
            .into_iter()
            .enumerate()
            .find_map(|(token, row)| {
                let value = row.iter().copied().find(|value| !value.is_finite())?;
                Some((token, value))
            });
        let Some((token, value)) = first else { return };
        self.found = Some(NonFinite {
            variant: self.variant.to_string(),
            place: self.link.place(),
            depth: self.link.depth(),
            stage: stage.to_owned(),
            token: token as u64,
            value: Value(f64::from(value)),
            came_with: Value(largest(self.streams.row(token).iter())),
            largest: Value(largest(values.row(token).iter())),
        });
    }

    /// What was found.
    pub fn found(self) -> Option<NonFinite> {
        self.found
    }
}

/// The largest finite magnitude; 0 of nothing.
fn largest<'v>(values: impl Iterator<Item = &'v f32>) -> f64 {
    let finite = values
        .map(|value| f64::from(value.abs()))
        .filter(|value| value.is_finite());
    finite.fold(0.0, |most, value| if value > most { value } else { most })
}
