//! How an error grows with depth, and what it comes to at another depth.
//!
//! A curve is one error measure `e` (relative, such as rel_l2) at depths `L ≥ 1`, the layers completed.
//! Three models, each a straight line in its own coordinates, fitted there by ordinary least squares:
//!
//! ```text
//! power      e  = c·L^p      ln e = ln c + p·ln L
//! linear     e  = a + b·L    errors that add with one sign
//! variance   e² = a + b·L    errors that are independent from layer to layer (rms)
//! ```
//!
//! **Choice.** Each model is fitted to the first half of the depths (`⌈n/2⌉` of them) and predicts the
//! others; the smallest error of prediction wins. That error is the root mean square of
//! `ln(predicted / measured)` over the depths held out: errors are relative, and so 0.1 means 10 %
//! whatever the size of `e`. R² is never looked at: it rewards a line through what is known already, and is
//! not comparable between coordinates. The model chosen is then fitted to all depths.
//!
//! * Errors of prediction less than [`TIE`] apart are the rounding of the fits (`e = b·L` is both a
//!   power law and a line); then the first in the order above wins.
//! * A model that predicts 0 or less, or nothing finite, at any depth where an error above 0 was measured
//!   is out, with either fit.
//! * A curve falls if the power fitted to all its depths is below 0. A line through it reaches 0 further
//!   down, so a falling curve leaves the power law only. Where an exact 0 rules the power out, the sign
//!   of the linear model's slope over all depths decides.
//! * An exact 0 has no logarithm: with one among its depths a curve has no power law, and with one among
//!   the depths held out no fit, since no prediction stands in a ratio to it.
//! * A curve ends at its first depth that is not finite; nothing is predicted from there on.
//!
//! **Spread.** Depths of one run are correlated (each layer inherits the error of the one before), and so
//! residuals along depth are no independent draws: no confidence is computed from them. The spread is
//! that of several seeds, each with a fit and a prediction of its own ([`over_seeds`]).

#[cfg(test)]
mod tests;

use super::fold::lane_sum;

/// The fewest depths that a fit needs: two to lay a line through, two to hold it against.
pub const FEWEST: usize = 4;

/// Errors of prediction that are less than this apart are equal.
pub const TIE: f64 = 1e-9;

/// An error measure against depth: one value per depth, in any order.
#[derive(Clone, Copy, Debug)]
pub struct Curve<'a> {
    /// Layers completed, at least 1, each once.
    pub depths: &'a [u32],
    /// The error there.
    pub values: &'a [f64],
}

/// A law of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `e = c·L^p`.
    Power,
    /// `e = a + b·L`.
    Linear,
    /// `e² = a + b·L`.
    Variance,
}

impl Model {
    /// All of them, in the order that breaks ties.
    pub const ALL: [Self; 3] = [Self::Power, Self::Linear, Self::Variance];

    /// Depth in the coordinates where the model is a straight line.
    fn abscissa(self, depth: u32) -> f64 {
        match self {
            Self::Power => libm::log(f64::from(depth)),
            Self::Linear | Self::Variance => f64::from(depth),
        }
    }

    /// An error in those coordinates.
    fn ordinate(self, value: f64) -> f64 {
        match self {
            Self::Power => libm::log(value),
            Self::Linear => value,
            Self::Variance => value * value,
        }
    }

    /// What an ordinate stands for: an error above 0, or nothing.
    fn error(self, ordinate: f64) -> Option<f64> {
        let error = match self {
            Self::Power => libm::exp(ordinate),
            Self::Linear => ordinate,
            // NaN below 0.
            Self::Variance => ordinate.sqrt(),
        };
        (error > 0.0 && error.is_finite()).then_some(error)
    }

    fn fit(self, points: &[Point]) -> Line {
        let count = points.len() as f64;
        let x = |index: usize| self.abscissa(points[index].depth);
        let y = |index: usize| self.ordinate(points[index].value);
        let mean_x = lane_sum(points.len(), x) / count;
        let mean_y = lane_sum(points.len(), y) / count;
        let spread = lane_sum(points.len(), |i| (x(i) - mean_x) * (x(i) - mean_x));
        let slope = lane_sum(points.len(), |i| (x(i) - mean_x) * (y(i) - mean_y)) / spread;
        Line {
            intercept: mean_y - slope * mean_x,
            slope,
        }
    }
}

/// A model's two parameters: `ordinate = intercept + slope · abscissa` in its own coordinates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// `a`; of the power law `ln c`.
    pub intercept: f64,
    /// `b`; of the power law the power `p`.
    pub slope: f64,
}

impl Line {
    fn at(self, model: Model, depth: u32) -> Option<f64> {
        model.error(self.intercept + self.slope * model.abscissa(depth))
    }
}

/// Why a model is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// The curve falls, and this model would reach 0.
    Falling,
    /// The curve holds an exact 0, which has no logarithm.
    Zero,
    /// It predicts 0 or less, or nothing finite, at this depth.
    NotPositive(u32),
}

/// A model's error of prediction at the depths held out, the rms of `ln(predicted / measured)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The model.
    pub model: Model,
    /// Its error, or why it is out.
    pub held_out: Result<f64, Out>,
}

/// Why a curve has no fit.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoFit {
    /// Depths and values do not pair.
    #[error("{depths} depths come with {values} values; each depth needs one value")]
    Lengths {
        /// How many depths there are.
        depths: usize,
        /// How many values there are.
        values: usize,
    },
    /// Depth counts completed layers.
    #[error("a value stands at depth 0; depth counts completed layers, from 1")]
    DepthZero,
    /// Two values at one depth.
    #[error("depth {0} has more than one value; a curve is one site and one token class")]
    Repeated(u32),
    /// An error below 0.
    #[error("the error at depth {0} is below 0; a relative error never is")]
    Negative(u32),
    /// Too few depths are finite.
    #[error("{found} finite depths are too few for a fit; at least {FEWEST} are needed")]
    TooFew {
        /// How many there are before the curve ends.
        found: usize,
        /// The depth at which it stops being finite.
        broken_at: Option<u32>,
    },
    /// No growth to fit.
    #[error("the error is {0:e} at every depth; there is no growth to fit")]
    AllEqual(f64),
    /// A depth held out has the error 0.
    #[error("the error at depth {0} is exactly 0; no prediction can be held against it")]
    Zero(u32),
    /// Every model is out.
    #[error("no model predicts an error above 0 at every depth")]
    EveryModelOut([Trial; 3]),
}

/// A fitted curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The model that predicted best.
    pub model: Model,
    /// Its parameters, fitted to all depths.
    pub line: Line,
    /// How each model did, in the order of [`Model::ALL`].
    pub trials: [Trial; 3],
    /// How many depths were fitted.
    pub depths: usize,
    /// The depth at which the curve stopped being finite.
    pub broken_at: Option<u32>,
}

impl Growth {
    /// The error at a depth; `None` where the model has none above 0, or the curve has ended.
    #[must_use]
    pub fn predict(&self, depth: u32) -> Option<f64> {
        let ended = self.broken_at.is_some_and(|end| depth >= end);
        if depth == 0 || ended {
            return None;
        }
        self.line.at(self.model, depth)
    }
}

/// One seed's fit and what it predicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeedForecast {
    /// The fit, or why there is none.
    pub growth: Result<Growth, NoFit>,
    /// The error predicted.
    pub predicted: Option<f64>,
}

/// The spread of the seeds' predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub low: f64,
    /// The median; of an even number the mean of the middle two.
    pub median: f64,
    /// The largest.
    pub high: f64,
}

/// What several seeds predict for one depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The depth.
    pub depth: u32,
    /// Over the seeds that predict anything: `seeds` says which do not, and they make it no wider.
    pub spread: Option<Spread>,
    /// In the order of the curves.
    pub seeds: Vec<SeedForecast>,
}

/// Fits each seed's curve by itself, and gathers what they predict for `depth`.
#[must_use]
pub fn over_seeds(curves: &[Curve<'_>], depth: u32) -> Forecast {
    let seeds: Vec<_> = curves
        .iter()
        .map(|curve| {
            let growth = fit(curve);
            SeedForecast {
                predicted: growth.ok().and_then(|growth| growth.predict(depth)),
                growth,
            }
        })
        .collect();
    let predicted = seeds.iter().filter_map(|seed| seed.predicted).collect();
    Forecast {
        depth,
        spread: spread(predicted),
        seeds,
    }
}

fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (&low, &high) = (values.first()?, values.last()?);
    let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    Some(Spread {
        low,
        median: below + (above - below) / 2.0,
        high,
    })
}

/// Fits a curve; the module says how a model is chosen.
///
/// # Errors
///
/// If there is no curve to fit, or no model that fits it: see [`NoFit`].
pub fn fit(curve: &Curve<'_>) -> Result<Growth, NoFit> {
    let Points { finite, broken_at } = Points::of(curve)?;
    if finite.len() < FEWEST {
        return Err(NoFit::TooFew {
            found: finite.len(),
            broken_at,
        });
    }
    if finite.iter().all(|point| point.value == finite[0].value) {
        return Err(NoFit::AllEqual(finite[0].value));
    }
    let (first, held_out) = finite.split_at(finite.len().div_ceil(2));
    if let Some(point) = held_out.iter().find(|point| point.value == 0.0) {
        return Err(NoFit::Zero(point.depth));
    }
    let character = Character::of(&finite);
    let trials = Model::ALL.map(|model| Trial {
        model,
        held_out: character
            .leaves(model)
            .and_then(|()| held_out_error(model, &finite, first, held_out)),
    });
    let model = best(&trials).ok_or(NoFit::EveryModelOut(trials))?;
    Ok(Growth {
        model,
        line: model.fit(&finite),
        trials,
        depths: finite.len(),
        broken_at,
    })
}

/// One depth of a curve.
#[derive(Clone, Copy, Debug)]
struct Point {
    depth: u32,
    value: f64,
}

/// A curve in order of depth, up to where it ends.
struct Points {
    finite: Vec<Point>,
    broken_at: Option<u32>,
}

impl Points {
    fn of(curve: &Curve<'_>) -> Result<Self, NoFit> {
        if curve.depths.len() != curve.values.len() {
            return Err(NoFit::Lengths {
                depths: curve.depths.len(),
                values: curve.values.len(),
            });
        }
        let pairs = curve.depths.iter().zip(curve.values);
        let mut finite: Vec<_> = pairs
            .map(|(&depth, &value)| Point { depth, value })
            .collect();
        finite.sort_by_key(|point| point.depth);
        if finite.first().is_some_and(|point| point.depth == 0) {
            return Err(NoFit::DepthZero);
        }
        if let Some(pair) = finite
            .windows(2)
            .find(|pair| pair[0].depth == pair[1].depth)
        {
            return Err(NoFit::Repeated(pair[0].depth));
        }
        if let Some(point) = finite.iter().find(|point| point.value < 0.0) {
            return Err(NoFit::Negative(point.depth));
        }
        let end = finite.iter().position(|point| !point.value.is_finite());
        let broken_at = end.map(|end| finite[end].depth);
        finite.truncate(end.unwrap_or(finite.len()));
        Ok(Self { finite, broken_at })
    }
}

/// What a curve as a whole says of the models, before any of them predicts.
struct Character {
    falls: bool,
    holds_zero: bool,
}

impl Character {
    fn of(points: &[Point]) -> Self {
        let holds_zero = points.iter().any(|point| point.value == 0.0);
        let trend = if holds_zero {
            Model::Linear
        } else {
            Model::Power
        };
        Self {
            falls: trend.fit(points).slope < 0.0,
            holds_zero,
        }
    }

    fn leaves(&self, model: Model) -> Result<(), Out> {
        match model {
            Model::Power if self.holds_zero => Err(Out::Zero),
            Model::Linear | Model::Variance if self.falls => Err(Out::Falling),
            _ => Ok(()),
        }
    }
}

/// The rms of `ln(predicted / measured)` at the depths held out, by a fit to the others.
fn held_out_error(
    model: Model,
    all: &[Point],
    first: &[Point],
    held_out: &[Point],
) -> Result<f64, Out> {
    for line in [model.fit(first), model.fit(all)] {
        for point in all.iter().filter(|point| point.value > 0.0) {
            line.at(model, point.depth)
                .ok_or(Out::NotPositive(point.depth))?;
        }
    }
    let line = model.fit(first);
    let square = |index: usize| {
        let Point { depth, value } = held_out[index];
        // Every depth was predicted above.
        let predicted = line.at(model, depth).unwrap_or(f64::NAN);
        let off = libm::log(predicted) - libm::log(value);
        off * off
    };
    Ok((lane_sum(held_out.len(), square) / held_out.len() as f64).sqrt())
}

/// The model of the smallest error; of errors that tie, the first.
fn best(trials: &[Trial]) -> Option<Model> {
    let error = |trial: &Trial| trial.held_out.ok();
    let smallest = trials.iter().filter_map(error).min_by(f64::total_cmp)?;
    trials
        .iter()
        .find(|trial| error(trial).is_some_and(|error| error <= smallest + TIE))
        .map(|trial| trial.model)
}
