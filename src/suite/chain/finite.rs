//! Where a chain stops being finite.

use ndarray::ArrayView2;

use super::link::Link;

/// The first value of a variant's chain that is NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFiniteAt {
    /// The variant.
    pub variant: String,
    /// `L17.ffn`.
    pub place: String,
    /// Layers completed there.
    pub depth: u32,
    /// The first stage that has one: `x` (the streams that came), `dot`, `mixes`, `pre`, `post`, `comb`, `y`, `f`,
    /// `streams` (those that are left) or `head`.
    pub stage: &'static str,
    /// The first token that has one.
    pub token: usize,
    /// Its first such value.
    pub value: f32,
    /// The largest magnitude among the streams that this token came with.
    pub came_with: f32,
    /// The largest finite magnitude of the stage in this token.
    pub largest: f32,
}

/// The stages of one site, looked at in order.
pub struct Watch<'a> {
    variant: &'a str,
    link: &'a Link,
    streams: ArrayView2<'a, f32>,
    found: Option<NonFiniteAt>,
}

impl<'a> Watch<'a> {
    /// Of a variant that comes to a site with these streams.
    pub fn new(variant: &'a str, link: &'a Link, streams: ArrayView2<'a, f32>) -> Self {
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
        self.found = Some(NonFiniteAt {
            variant: self.variant.to_owned(),
            place: self.link.place(),
            depth: self.link.depth(),
            stage,
            token,
            value,
            came_with: largest(self.streams.row(token).iter()),
            largest: largest(values.row(token).iter()),
        });
    }

    /// What was found.
    pub fn found(self) -> Option<NonFiniteAt> {
        self.found
    }
}

/// The largest finite magnitude; 0 of nothing.
fn largest<'v>(values: impl Iterator<Item = &'v f32>) -> f32 {
    let finite = values
        .map(|value| value.abs())
        .filter(|value| value.is_finite());
    finite.fold(0.0, |most, value| if value > most { value } else { most })
}
