//! Intervals against logits computed by definition, exact values against integers, and wrong kernels against intervals.

use std::collections::BTreeMap;

use ndarray::Array2;
use ulpdrift_reference::simd::Level;

use super::{Interval, IntervalError, Intervals, intervals};
use crate::{
    backend::emulate::top_k,
    measure::{
        certificate::{Certificate, Claim, certificates},
        fold::nan_max,
    },
    recipe::{
        Contraction, Storage,
        indexer::{
            DotUnit, Floor, Fold, HeadOrder, Held, IndexRecipe, LogitFormat, Quantiser, Reduce,
            Reduction, Relu, ScaleFormat, ScalePosition, Scaling, Selector, Ties, catalogue,
        },
    },
    tensor_core::Arch,
};
use definition::{Definition, has_unit};
use draw::{CATEGORIES, Category, Noise, Size, operands};

mod definition;
mod draw;
mod exact;
mod faults;

fn named(name: &str) -> IndexRecipe {
    let mut all = catalogue::builtin().into_iter();
    all.find(|recipe| recipe.name == name).expect(name)
}

/// A recipe that no engine has: every switch on its own.
fn invented(noise: &mut Noise) -> IndexRecipe {
    let e4m3 = |noise: &mut Noise| Quantiser::E4m3 {
        scale: noise.pick(&[ScaleFormat::F32, ScaleFormat::Ue8m0]),
        block: noise.pick(&[32, 64, 128]),
        scaling: Scaling::Divide,
        held: Held::Codes,
    };
    let mxfp4 = Quantiser::Mxfp4 {
        floor: Floor::LeastNormal,
        scaling: Scaling::Divide,
        ties: Ties::Even,
        held: Held::Codes,
    };
    let unit = noise.pick(&[
        DotUnit::FmaF32,
        DotUnit::MmaTf32K8,
        DotUnit::MmaBf16K16,
        DotUnit::MmaF16K16,
        DotUnit::Fp8K32,
        DotUnit::Mxf4K64,
    ]);
    let format = |noise: &mut Noise| {
        let codes = e4m3(noise);
        match unit {
            DotUnit::FmaF32 => noise.pick(&[Quantiser::F32, Quantiser::Bf16, codes, mxfp4]),
            DotUnit::MmaTf32K8 => noise.pick(&[Quantiser::Tf32, Quantiser::Bf16, codes]),
            DotUnit::MmaBf16K16 => noise.pick(&[Quantiser::Bf16, codes, mxfp4]),
            DotUnit::MmaF16K16 => noise.pick(&[Quantiser::F16, codes]),
            DotUnit::Fp8K32 => noise.pick(&[codes, mxfp4]),
            DotUnit::Mxf4K64 => mxfp4,
        }
    };
    let storage = [Storage::F32, Storage::F32, Storage::Bf16];
    let mut recipe = catalogue::fp32();
    recipe.name = "invented".to_owned();
    recipe.unit = unit;
    recipe.query.format = format(noise);
    recipe.key.format = format(noise);
    recipe.dot = noise.pick(&storage);
    recipe.weights.fold = noise.pick(&[Fold::ConstantFirst, Fold::Split]);
    recipe.output = noise.pick(&[LogitFormat::F32, LogitFormat::Bf16, LogitFormat::F16]);
    recipe.reduction = Reduction::Steps(Reduce {
        scale: noise.pick(&[
            ScalePosition::BeforeRelu,
            ScalePosition::BeforeLanes,
            ScalePosition::Last,
        ]),
        relu: noise.pick(&[Relu::Max, Relu::MaxKeepsNan, Relu::HalfSum, Relu::Absent]),
        order: noise.pick(&[
            HeadOrder::Ascending,
            HeadOrder::FourLanes,
            HeadOrder::FourChains,
            HeadOrder::ChunksOfEight,
            HeadOrder::Tree,
        ]),
        contraction: noise.pick(&[Contraction::Fma, Contraction::MulAdd]),
        product: noise.pick(&storage),
        sum: noise.pick(&storage),
    });
    recipe
}

fn largest(intervals: &Intervals, logits: &Array2<f32>) -> f64 {
    let visible = vec![logits.ncols(); logits.nrows()];
    intervals.largest_ratio(logits.view(), &visible).unwrap()
}

/// The certificates against the exact top k of logits.
fn suspicions(found: &Intervals, logits: &Array2<f32>, k: usize) -> Vec<Certificate> {
    let ends = found.lo.rows().into_iter().zip(found.hi.rows());
    let rows = logits.rows().into_iter().zip(ends).enumerate();
    rows.flat_map(|(query, (logits, (lo, hi)))| {
        let logits = logits.to_slice().unwrap();
        let top = top_k::select(Selector::Exact, logits, logits.len(), k);
        let selected: Vec<i64> = top.into_iter().map(i64::from).collect();
        let claim = Claim {
            selected: &selected,
            k,
            visible: logits.len(),
            logits,
            lo: lo.to_slice().unwrap(),
            hi: hi.to_slice().unwrap(),
        };
        certificates(query, &claim)
    })
    .collect()
}

/// 10,000 cases: no recipe leaves its intervals, whatever the operands, and no certificate fires at any k.
#[test]
fn no_logit_leaves_its_interval() {
    let mut noise = Noise(1);
    let catalogue = catalogue::builtin();
    let mut worst: BTreeMap<String, f64> = BTreeMap::new();
    let mut bounded = 0_usize;
    let mut all = 0_usize;
    for case in 0..10_000 {
        let recipe = match case % 2 {
            0 => catalogue[case / 2 % catalogue.len()].clone(),
            _ => invented(&mut noise),
        };
        let arch = loop {
            let arch = noise.pick(&Arch::ALL);
            if has_unit(arch, recipe.unit) {
                break arch;
            }
        };
        let size = Size {
            queries: 1 + noise.below(2),
            heads: 1 + noise.below(8),
            keys: 1 + noise.below(6),
            width: noise.pick(&[32, 64, 96, 128]),
        };
        let of_q = noise.pick(&CATEGORIES);
        let kinds = match noise.below(3) {
            0 => [of_q; 2],
            _ => [of_q, noise.pick(&CATEGORIES)],
        };
        let (queries, keys) = operands(&recipe, size, kinds, &mut noise);
        let found = intervals(Level::detect(), arch, &recipe, &queries, &keys).unwrap();
        let logits = Definition {
            arch,
            recipe: &recipe,
            queries: &queries,
            keys: &keys,
        }
        .logits();
        let ratio = largest(&found, &logits);
        assert!(
            ratio <= 1.0,
            "case {case}: {ratio}\n{recipe:#?}\n{arch} {size:?} {kinds:?}\n{found:?}\n{logits}"
        );
        for k in 1..=size.keys {
            assert_eq!(suspicions(&found, &logits, k), [], "case {case}, k {k}");
        }
        let finite = |&&width: &&f64| width.is_finite();
        bounded += (&found.hi - &found.lo).iter().filter(finite).count();
        all += found.hi.len();
        let entry = worst.entry(recipe.name).or_insert(0.0);
        *entry = nan_max(*entry, ratio);
    }
    println!("bounded: {bounded} of {all}");
    for (name, ratio) in &worst {
        println!("{name:20} {ratio:.3}");
    }
    // Most operands are such that an interval says something.
    assert!(bounded * 10 > all * 9, "{bounded} of {all}");
}

/// A level, a tile that is not full and other keys beside it change nothing.
#[test]
fn bits_depend_on_operands_alone() {
    let size = Size {
        queries: 2,
        heads: 6,
        keys: 37,
        width: 128,
    };
    let mut noise = Noise(7);
    for recipe in catalogue::builtin() {
        let (queries, keys) = operands(&recipe, size, [Category::Normal; 2], &mut noise);
        let at = |level| intervals(level, Arch::Sm120, &recipe, &queries, &keys).unwrap();
        let all = at(Level::detect());
        for level in Level::ALL {
            assert_eq!(at(level), all, "{} {level}", recipe.name);
        }
        let mut few = keys.clone();
        let last = ndarray::s![20.., ..];
        few.values = keys.values.slice(last).to_owned();
        few.scales = keys.scales.as_ref().map(|of| of.slice(last).to_owned());
        let few = intervals(Level::detect(), Arch::Sm120, &recipe, &queries, &few).unwrap();
        let of = |of: &Array2<f64>| of.slice(ndarray::s![.., 20..]).to_owned();
        let rest = [of(&all.exact), of(&all.lo), of(&all.hi)];
        assert_eq!([few.exact, few.lo, few.hi], rest, "{}", recipe.name);
    }
}

#[test]
fn a_nan_is_what_the_recipe_makes_of_it() {
    let size = Size {
        queries: 1,
        heads: 4,
        keys: 2,
        width: 128,
    };
    let recipe = named("fp8-f32scale");
    let mut noise = Noise(3);
    let (queries, mut keys) = operands(&recipe, size, [Category::Normal; 2], &mut noise);
    keys.values[[1, 5]] = f32::NAN;
    // `sm_90` takes max(s, 0) as fmaxf does, `sm_100` s + |s|.
    let swallowed = intervals(Level::detect(), Arch::Sm90, &recipe, &queries, &keys).unwrap();
    let kept = intervals(Level::detect(), Arch::Sm100, &recipe, &queries, &keys).unwrap();
    for all in [&swallowed, &kept] {
        assert!(all.at(0, 0).exact.is_finite());
        assert!(all.at(0, 1).exact.is_nan());
    }
    let zero = swallowed.at(0, 1);
    assert_eq!([zero.lo, zero.hi], [0.0, 0.0]);
    assert_eq!(zero.ratio(0.0), 0.0);
    assert!(zero.ratio(1.0).is_nan() && zero.ratio(f64::NAN).is_nan());
    let nan = kept.at(0, 1);
    assert!(nan.lo.is_nan() && nan.hi.is_nan());
    assert_eq!(nan.ratio(f64::NAN), 0.0);
    assert!(nan.ratio(0.0).is_nan() && nan.ratio(f64::INFINITY).is_nan());
    for (arch, all) in [(Arch::Sm90, swallowed), (Arch::Sm100, kept)] {
        let definition = Definition {
            arch,
            recipe: &recipe,
            queries: &queries,
            keys: &keys,
        };
        assert!(largest(&all, &definition.logits()) <= 1.0, "{arch}");
    }
}

#[test]
fn overflow_is_within_an_infinite_end() {
    let size = Size {
        queries: 1,
        heads: 2,
        keys: 1,
        width: 64,
    };
    let recipe = named("f16-logits");
    let (mut queries, mut keys) = operands(&recipe, size, [Category::Normal; 2], &mut Noise(3));
    keys.values.fill(1.0);
    queries.q.values.fill(1.0);
    queries.weights.fill(600.0);
    let at = |queries: &_| {
        intervals(Level::detect(), Arch::Sm120, &recipe, queries, &keys)
            .unwrap()
            .at(0, 0)
    };
    // 64·1200 is beyond half's 65,504.
    let beyond = at(&queries);
    assert_eq!(
        [beyond.exact, beyond.lo, beyond.hi],
        [76_800.0, 76_800.0, f64::INFINITY]
    );
    assert_eq!(beyond.ratio(f64::INFINITY), 0.0);
    assert!(beyond.ratio(f64::NEG_INFINITY).is_nan() && beyond.ratio(f64::NAN).is_nan());
    // A dot beyond fp32's range: nothing is known.
    queries.q.values.fill(3e38);
    let unknown = at(&queries);
    assert!(unknown.exact.is_finite());
    assert_eq!([unknown.lo, unknown.hi], [f64::NEG_INFINITY, f64::INFINITY]);
    assert_eq!(unknown.ratio(f64::NAN), 0.0);
}

#[test]
fn a_ratio_counts_from_the_exact_value_to_the_end() {
    let interval = Interval {
        exact: 1.0,
        lo: 0.0,
        hi: 5.0,
    };
    for (got, ratio) in [
        (1.0, 0.0),
        (2.0, 0.25),
        (5.0, 1.0),
        (9.0, 2.0),
        (0.5, 0.5),
        (-1.0, 2.0),
    ] {
        assert_eq!(interval.ratio(got), ratio, "{got}");
    }
    assert!(interval.ratio(f64::NAN).is_nan());
    assert!(interval.ratio(f64::INFINITY).is_nan());
    let point = Interval {
        exact: 1.0,
        lo: 1.0,
        hi: 1.0,
    };
    assert_eq!(point.ratio(1.0), 0.0);
    assert_eq!(point.ratio(1.5), f64::INFINITY);
}

#[test]
fn what_cannot_be_bounded_is_refused() {
    let size = Size {
        queries: 1,
        heads: 2,
        keys: 3,
        width: 64,
    };
    let recipe = named("fp8-f32scale");
    let (queries, mut keys) = operands(&recipe, size, [Category::Normal; 2], &mut Noise(3));
    let lacking = intervals(Level::detect(), Arch::Sm80, &recipe, &queries, &keys);
    assert!(
        matches!(lacking, Err(IntervalError::Unit { .. })),
        "{lacking:?}"
    );
    keys.scales = Some(Array2::zeros((2, 1)));
    let misfit = intervals(Level::detect(), Arch::Sm90, &recipe, &queries, &keys);
    assert!(
        matches!(misfit, Err(IntervalError::Shape { .. })),
        "{misfit:?}"
    );
}
