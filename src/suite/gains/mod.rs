//! How much the end of a model makes of an error that enters at one place.
//!
//! Two questions, both asked of chains in fp64, which differ from the fp64 chain in one thing:
//!
//! * **one site**: the candidate's mixing kernel at one site only, on the fp64 chain's streams as they are stored
//!   there; everything else exact. Rows: the error of the streams at the end (`rel_l2`), by variant, layer and site.
//! * **plain gain**: a perturbation of [`SIZE`] of the streams' own norm, token by token, entering before a layer, in a
//!   `direction`: `independent`, drawn for every stream by itself, or `common`, the same for all streams. `gain` is the
//!   relative error at the end over [`SIZE`]: what the layers in between make of it.
//!
//! All chains advance together, so that weights are read once per eight tokens; the slice bounds what is in memory.

mod directions;
#[cfg(test)]
mod tests;

use ndarray::Zip;
use rayon::prelude::*;
use ulpdrift_reference::mix::split_sinkhorn;

pub use self::directions::{Direction, SIZE};
use super::{
    Plan, SuiteError,
    budget::offsets::Offsets,
    chain::{
        Around, Order,
        link::{self, Link, Start},
        rows,
        sublayer::StandIn,
        truth::Truth,
    },
    ledger::Ledger,
};
use crate::{
    checkpoint::Site,
    measure::value::Value,
    recipe::{MixRecipe, splits::Launch},
    report::{Found, Key, Measures, Read, Record},
};

/// Tokens whose chains are in memory at once.
const SLICE: usize = 8;

/// The variant of a row that no variant's kernel is behind.
const NO_VARIANT: &str = "perturbation";

/// The name of the suite's one case, whose chains all advance together.
pub const PLACE: &str = "all chains";

/// What is different in a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin<'a> {
    /// A variant's kernel at one site.
    Kernel {
        recipe: &'a MixRecipe,
        layer: u32,
        site: Site,
    },
    /// A perturbation before a layer.
    Perturbed { direction: Direction, layer: u32 },
}

/// A chain and what is different in it.
struct Altered<'a> {
    origin: Origin<'a>,
    chain: Truth,
}

/// ‖X' − X‖² and ‖X‖² at the end, over the tokens so far.
struct Squares<'a> {
    origin: Origin<'a>,
    error: f64,
    reference: f64,
}

/// Runs the suite over the layers of the plan, which follow each other: a row per variant and site, then one per
/// direction and layer.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe that the backend cannot run, a ledger that stops it.
pub fn run(plan: &Plan<'_>, around: &Around, ledger: &mut dyn Ledger) -> Result<(), SuiteError> {
    if !ledger.wants(PLACE) {
        return Ok(());
    }
    let start = link::start(plan)?;
    let tokens = start.x.nrows();
    let mut found = Found::default();
    start.add_digests(plan, &mut found.read.digests);
    let mut squares: Vec<Squares<'_>> = Vec::new();
    let slices = tokens.div_ceil(SLICE);
    for slice in 0..slices {
        let range = slice * SLICE..(slice * SLICE + SLICE).min(tokens);
        let part = start.tokens(range);
        let read = (slice == 0).then_some(&mut found.read);
        let mut told = |done: usize, total: usize, place: &str| {
            ledger.step(slice * total + done, slices * total, place)
        };
        let run = Slice {
            plan,
            around,
            first_token: slice * SLICE,
            launch: Launch {
                tokens,
                sms: plan.sms,
            },
        };
        run.go(&part, read, &mut squares, &mut told)?;
    }
    found.records = squares
        .iter()
        .map(|squares| record(plan, around, tokens, squares))
        .collect();
    found
        .records
        .sort_by_key(|record| record.key.direction.is_some());
    ledger.keep(PLACE, found)
}

/// Some tokens of the batch.
struct Slice<'a> {
    plan: &'a Plan<'a>,
    around: &'a Around,
    first_token: usize,
    launch: Launch,
}

impl<'a> Slice<'a> {
    /// Takes all chains to the end and adds what they are off by; notes what was read where it is asked to.
    fn go(
        &self,
        start: &Start,
        mut read: Option<&mut Read>,
        squares: &mut Vec<Squares<'a>>,
        told: &mut dyn FnMut(usize, usize, &str) -> Result<(), SuiteError>,
    ) -> Result<(), SuiteError> {
        let plan = self.plan;
        let order = Order::of(plan.checkpoint.model().family);
        let mut truth = Truth::new(plan.level, start, order);
        let mut altered: Vec<Altered<'a>> = Vec::new();
        let total = plan.layers.len();
        for (done, &layer) in plan.layers.iter().enumerate() {
            for direction in Direction::ALL {
                altered.push(self.perturbed(&truth, start.hc, direction, layer));
            }
            for site in Site::ALL {
                let place = (layer, site);
                let stand_in =
                    StandIn::load(plan, self.around.sublayer, place, self.launch.tokens)?;
                let here = self.first_token..self.first_token + start.x.nrows();
                let link = Link::load(plan, layer, site, stand_in.tokens(here))?;
                if let Some(read) = &mut read {
                    link.note(plan, read);
                }
                let mut begun = Vec::with_capacity(plan.recipes.len());
                for recipe in plan.recipes {
                    begun.push(self.at_one_site(&truth, &link, recipe)?);
                }
                altered.par_iter_mut().for_each(|altered| {
                    altered.chain.pass(&link);
                });
                truth.pass(&link);
                altered.extend(begun);
            }
            told(done + 1, total, &format!("layer {layer}"))?;
        }
        for one in &altered {
            let (mut error, mut reference) = (0.0, 0.0);
            Zip::from(&one.chain.x)
                .and(&truth.x)
                .for_each(|&other, &truth| {
                    error += (other - truth) * (other - truth);
                    reference += truth * truth;
                });
            match squares.iter_mut().find(|known| known.origin == one.origin) {
                Some(known) => {
                    known.error += error;
                    known.reference += reference;
                }
                None => squares.push(Squares {
                    origin: one.origin,
                    error,
                    reference,
                }),
            }
        }
        Ok(())
    }

    fn perturbed(&self, truth: &Truth, hc: usize, direction: Direction, layer: u32) -> Altered<'a> {
        let mut chain = truth.clone();
        let width = chain.x.ncols() / hc.max(1);
        for (token, mut row) in chain.x.rows_mut().into_iter().enumerate() {
            let token = self.first_token + token;
            let perturbation = direction.draw(self.plan.seed, layer, token, hc, width);
            let norm: f64 = row.iter().map(|value| value * value).sum();
            for (value, off) in row.iter_mut().zip(perturbation) {
                *value += SIZE * norm.sqrt() * off;
            }
        }
        Altered {
            origin: Origin::Perturbed { direction, layer },
            chain,
        }
    }

    /// The fp64 chain with the variant's kernel at this site, behind it.
    fn at_one_site(
        &self,
        truth: &Truth,
        link: &Link,
        recipe: &'a MixRecipe,
    ) -> Result<Altered<'a>, SuiteError> {
        let offsets = Offsets::of(self.plan, self.around, truth, link, recipe, self.launch)?;
        let mut chain = truth.clone();
        let mixes = chain.mixes(&link.site) + &offsets.all;
        let is_finite = mixes.iter().all(|mix| mix.is_finite());
        let mut split = split_sinkhorn(mixes.view(), &link.site.split_params());
        split.pre += &offsets.pre;
        split.post += &offsets.post;
        split.comb += &offsets.comb;
        let y = chain.collapse(chain.gates(&split).view());
        chain.leave(link, &y, split);
        if !is_finite {
            // The gates saturate, and what is lost would look like none.
            chain.x.fill(f64::NAN);
        }
        Ok(Altered {
            origin: Origin::Kernel {
                recipe,
                layer: link.site.layer,
                site: link.site.site,
            },
            chain,
        })
    }
}

fn record(plan: &Plan<'_>, around: &Around, tokens: usize, squares: &Squares<'_>) -> Record {
    let rel_l2 = if squares.error == 0.0 {
        0.0
    } else {
        (squares.error / squares.reference).sqrt()
    };
    let shared = Key {
        suite: "gains".to_owned(),
        stage: Some("streams".to_owned()),
        depth: plan.layers.last().map(|layer| layer + 1),
        token_class: "all".to_owned(),
        ..rows::key_of(plan, around, tokens)
    };
    let (key, gain) = match squares.origin {
        Origin::Kernel {
            recipe,
            layer,
            site,
        } => {
            let key = Key {
                variant: recipe.name.clone(),
                layer: Some(layer),
                site: Some(site.to_string()),
                sms: u32::try_from(plan.sms).ok(),
                ..shared
            };
            (key, None)
        }
        Origin::Perturbed { direction, layer } => {
            let key = Key {
                variant: NO_VARIANT.to_owned(),
                layer: Some(layer),
                direction: Some(direction.to_string()),
                ..shared
            };
            // Streams of zeros were not perturbed.
            let gain = (squares.reference != 0.0).then(|| Value(rel_l2 / SIZE));
            (key, gain)
        }
    };
    Record {
        key,
        measures: Measures {
            rel_l2: Some(Value(rel_l2)),
            gain,
            ..Measures::default()
        },
    }
}
