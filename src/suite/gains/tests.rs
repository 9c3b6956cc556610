//! Laws of perturbations, and errors at one site against a chain that runs the variant there alone. That the numbers
//! are right where the chain begins is shown against NumPy, by tests/oracle.

use ulpdrift_reference::simd::Level;

use super::*;
use crate::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, SyntheticModel},
    format::Format,
    recipe::catalogue::{self, builtin},
    report::Records,
    suite::chain::{self, SitesOn, Sublayer},
    suite::{ledger::whole, tensors::NoDump},
    tensor_core::Arch,
};

const EXACT: Around = Around {
    residual: Format::F32,
    layer_io: Format::F32,
    sublayer: Sublayer::RmsNorm,
    sites_on: SitesOn::All,
};
const DEPLOYED: Around = Around {
    residual: Format::Bf16,
    layer_io: Format::Bf16,
    ..EXACT
};

/// What a test's plan is made of.
#[derive(Clone, Copy)]
struct Of<'a> {
    model: SyntheticModel,
    layers: &'a [u32],
    variants: &'a [&'a str],
    tokens: usize,
}

const TINY: Of<'_> = Of {
    model: SyntheticModel::Tiny,
    layers: &[0, 1, 2, 3],
    variants: &["fp32", "tf32", "bf16"],
    tokens: 13,
};

fn with_plan<T>(of: Of<'_>, run: impl FnOnce(&Plan<'_>) -> T) -> T {
    let checkpoint = Checkpoint::synthetic(of.model, 0).expect("a synthetic model opens");
    let recipes: Vec<MixRecipe> = builtin()
        .into_iter()
        .filter(|recipe| of.variants.contains(&recipe.name.as_str()))
        .collect();
    let inputs = Inputs::Normal;
    let activations = Activations::open(&inputs, 0, checkpoint.model()).expect("the inputs open");
    run(&Plan {
        backend: &Emulate::new(Arch::Sm120, Level::detect()),
        recipes: &recipes,
        faults: &[],
        products: &[],
        time: false,
        repeat: 1,
        against: &catalogue::fp32(),
        layers: of.layers,
        sites: &Site::ALL,
        inputs: &inputs,
        activations: &activations,
        tokens: Some(of.tokens),
        seed: 0,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level: Level::detect(),
        checkpoint: &checkpoint,
    })
}

fn gains(of: Of<'_>, around: &Around) -> Vec<Record> {
    let outcome = with_plan(of, |plan| {
        whole(|ledger| run(plan, around, ledger)).expect("the suite runs")
    });
    assert_eq!(outcome.read.skipped, []);
    let records = Records::new(outcome.records).expect("every key is unique");
    records.to_vec()
}

fn rel_l2(record: &Record) -> f64 {
    record.measures.rel_l2.expect("rel_l2").0
}

/// Every stream's part of a vector.
fn streams(vector: &[f64], hc: usize) -> Vec<&[f64]> {
    vector.chunks(vector.len() / hc).collect()
}

#[test]
fn directions_are_unit_vectors_of_what_they_are_for() {
    for direction in Direction::ALL {
        let draw = |seed, layer, token| direction.draw(seed, layer, token, 4, 256);
        let drawn = draw(1, 2, 3);
        assert_eq!(drawn.len(), 4 * 256);
        let norm = drawn.iter().map(|value| value * value).sum::<f64>().sqrt();
        assert!((norm - 1.0).abs() < 1e-14, "{direction}: {norm}");
        assert_eq!(drawn, draw(1, 2, 3));
        for other in [draw(0, 2, 3), draw(1, 0, 3), draw(1, 2, 0)] {
            let along: f64 = drawn.iter().zip(&other).map(|(a, b)| a * b).sum();
            assert!(along.abs() < 0.25, "{direction}: {along}");
        }
    }
}

#[test]
fn common_is_alike_in_all_streams_and_independent_is_not() {
    let common = Direction::Common.draw(0, 0, 0, 4, 64);
    let independent = Direction::Independent.draw(0, 0, 0, 4, 64);
    for stream in &streams(&common, 4)[1..] {
        assert_eq!(*stream, streams(&common, 4)[0]);
    }
    for (at, stream) in streams(&independent, 4).into_iter().enumerate() {
        for other in &streams(&independent, 4)[at + 1..] {
            let along: f64 = stream.iter().zip(*other).map(|(a, b)| a * b).sum();
            assert!(along.abs() < 0.15, "{along}");
        }
    }
}

#[test]
fn a_row_per_variant_and_site_and_two_per_layer() {
    for around in [DEPLOYED, EXACT] {
        let records = gains(TINY, &around);
        let (sites, perturbed): (Vec<&Record>, Vec<&Record>) = records
            .iter()
            .partition(|record| record.key.direction.is_none());
        assert_eq!((sites.len(), perturbed.len()), (3 * 4 * 2, 2 * 4));
        for record in &records {
            let error = rel_l2(record);
            assert!(error > 0.0 && error < 1e-2, "{} {error:e}", record.key);
            assert_eq!(record.key.depth, Some(4));
            assert_eq!(record.key.stage.as_deref(), Some("streams"));
        }
        for record in perturbed {
            let gain = record.measures.gain.expect("a gain").0;
            assert_eq!(gain, rel_l2(record) / SIZE);
            assert!((0.1..3.0).contains(&gain), "{} {gain}", record.key);
        }
    }
}

#[test]
fn the_delayed_order_runs() {
    let of = Of {
        model: SyntheticModel::V41,
        layers: &[0, 1],
        variants: &["tf32"],
        tokens: 2,
    };
    let records = gains(of, &DEPLOYED);
    assert_eq!(records.len(), 2 * 2 + 2 * 2);
    for record in &records {
        let error = rel_l2(record);
        assert!(error > 0.0 && error < 1e-2, "{} {error:e}", record.key);
    }
}

/// All tokens at once, not in slices.
fn in_one_go(of: Of<'_>, around: &Around) -> Vec<Record> {
    with_plan(of, |plan| {
        let start = link::start(plan).expect("the inputs are there");
        let whole = Slice {
            plan,
            around,
            first_token: 0,
            launch: Launch {
                tokens: of.tokens,
                sms: plan.sms,
            },
        };
        let mut squares = Vec::new();
        whole
            .go(&start, None, &mut squares, &mut |_, _, _| Ok(()))
            .expect("the chains run");
        let rows = squares
            .iter()
            .map(|squares| record(plan, around, of.tokens, squares));
        rows.collect()
    })
}

/// The split rule of tf32 sees the batch, wherever it is cut.
#[test]
fn slices_of_tokens_come_to_what_all_of_them_do() {
    assert_eq!(TINY.tokens, SLICE + 5);
    let sliced = gains(TINY, &DEPLOYED);
    let whole = in_one_go(TINY, &DEPLOYED);
    assert_eq!(sliced.len(), whole.len());
    for row in &sliced {
        let same = whole.iter().find(|other| other.key == row.key);
        let (sliced, whole) = (rel_l2(row), rel_l2(same.expect("the same row")));
        let apart = (sliced - whole).abs();
        assert!(apart <= 1e-12 * whole, "{}: {sliced:e}, {whole:e}", row.key);
    }
}

/// What the end makes of a perturbation before layer 0 that is 1, 1/10 and 1/100 of its size.
fn ends(plan: &Plan<'_>, direction: Direction) -> [f64; 3] {
    let start = link::start(plan).expect("the inputs are there");
    let slice = Slice {
        plan,
        around: &EXACT,
        first_token: 0,
        launch: Launch {
            tokens: start.x.nrows(),
            sms: plan.sms,
        },
    };
    let order = Order::of(plan.checkpoint.model().family);
    let mut truth = Truth::new(plan.level, &start, order);
    let whole = slice.perturbed(&truth, start.hc, direction, 0).chain;
    let mut chains = [1.0, 0.1, 0.01].map(|size| {
        let mut chain = truth.clone();
        chain.x += &((&whole.x - &truth.x) * size);
        chain
    });
    for &layer in plan.layers {
        for site in Site::ALL {
            let stand_in = StandIn::load(plan, Sublayer::RmsNorm, (layer, site), start.x.nrows());
            let link = Link::load(plan, layer, site, stand_in.expect("it needs nothing"));
            let link = link.expect("the weights are there");
            chains.iter_mut().for_each(|chain| {
                chain.pass(&link);
            });
            truth.pass(&link);
        }
    }
    let norm = |x: &ndarray::Array2<f64>| x.iter().map(|value| value * value).sum::<f64>().sqrt();
    chains.map(|chain| norm(&(&chain.x - &truth.x)) / norm(&truth.x))
}

/// To first order the end is linear in the perturbation, and what it is off by shrinks with the size.
#[test]
fn a_tenth_of_a_perturbation_is_a_tenth_at_the_end() {
    with_plan(TINY, |plan| {
        let records = gains(TINY, &EXACT);
        for direction in Direction::ALL {
            let [whole, tenth, hundredth] = ends(plan, direction);
            let row = records.iter().find(|row| {
                row.key.layer == Some(0)
                    && row.key.direction.as_deref() == Some(&direction.to_string())
            });
            let reported = rel_l2(row.expect("a row"));
            assert!((reported - whole).abs() <= 1e-12 * whole, "{direction}");
            let off = (whole / (10.0 * tenth) - 1.0).abs();
            let less = (tenth / (10.0 * hundredth) - 1.0).abs();
            assert!(off < 1e-3, "{direction}: {off:e}");
            assert!(less < off / 5.0, "{direction}: {off:e}, then {less:e}");
        }
    });
}

/// Token by token, whichever of a batch they are.
#[test]
fn streams_are_perturbed_by_the_declared_part_of_their_norm() {
    with_plan(TINY, |plan| {
        let start = link::start(plan).expect("the inputs are there");
        let slice = Slice {
            plan,
            around: &EXACT,
            first_token: 5,
            launch: Launch {
                tokens: start.x.nrows(),
                sms: plan.sms,
            },
        };
        let truth = Truth::new(plan.level, &start, Order::Own);
        for direction in Direction::ALL {
            let perturbed = slice.perturbed(&truth, start.hc, direction, 2).chain;
            for (token, (with, without)) in perturbed
                .x
                .rows()
                .into_iter()
                .zip(truth.x.rows())
                .enumerate()
            {
                let norm = |row: &ndarray::Array1<f64>| row.dot(row).sqrt();
                let off = &with - &without;
                let part = norm(&off) / norm(&without.to_owned());
                assert!((part / SIZE - 1.0).abs() < 1e-11, "{direction}: {part:e}");
                let drawn = direction.draw(0, 2, token + 5, start.hc, off.len() / start.hc);
                let along = off.dot(&ndarray::Array1::from(drawn)) / norm(&off);
                assert!((along - 1.0).abs() < 1e-11, "{direction}: {along}");
            }
        }
    });
}

/// One layer, and the variant at one of its sites, in a chain that runs everything else in fp32 as kernels do.
#[test]
fn at_one_site_it_is_a_chain_with_the_variant_there_alone() {
    let of = Of {
        layers: &[3],
        variants: &["tf32", "bf16", "bf16-patch"],
        ..TINY
    };
    let records = gains(of, &EXACT);
    for site in Site::ALL {
        let around = Around {
            sites_on: SitesOn::Of(site),
            ..EXACT
        };
        let beside = with_plan(of, |plan| {
            whole(|ledger| chain::run(plan, &around, &mut NoDump, ledger)).expect("the chain runs")
        });
        for variant in of.variants {
            let is_it = |row: &&Record| {
                row.key.variant == *variant
                    && row.key.site.as_deref() == Some(&site.to_string())
                    && row.key.direction.is_none()
            };
            let own = rel_l2(records.iter().find(is_it).expect("a row"));
            let is_end = |row: &&Record| {
                row.key.variant == *variant
                    && row.key.site.as_deref() == Some("ffn")
                    && row.key.stage.as_deref() == Some("streams")
            };
            let whole = rel_l2(beside.records.iter().find(is_end).expect("a row"));
            // The other kernels' fp32, at most 3e-7 of the streams and at an angle.
            let apart = (own - whole).abs();
            assert!(
                apart < 0.1 * 3e-7,
                "{variant} at {site}: {own:e} and {whole:e}"
            );
        }
    }
}
