//! How much of an interval a right kernel uses, and how many logits of a wrong one lie outside.

use ndarray::{Array2, Axis};
use ulpdrift_reference::simd::Level;

use super::{
    definition::{Definition, has_unit},
    draw::{Category, Noise, Size, operands},
    named,
};
use crate::{
    format::{Format, Rounding},
    measure::{
        fold::nan_max,
        interval::{Intervals, intervals},
    },
    recipe::{
        Contraction, Storage,
        indexer::{
            HeadOrder, IndexRecipe, Reduce, Reduction, Relu, catalogue,
            operands::{Operands, QueryOperands},
        },
    },
    tensor_core::Arch,
};

const SIZE: Size = Size {
    queries: 1,
    heads: 64,
    keys: 64,
    width: 128,
};

/// A recipe with operands like a model's.
struct Case {
    arch: Arch,
    recipe: IndexRecipe,
    queries: QueryOperands,
    keys: Operands,
}

impl Case {
    fn new(recipe: IndexRecipe, arch: Arch) -> Self {
        let mut noise = Noise(17);
        let (queries, keys) = operands(&recipe, SIZE, [Category::Normal; 2], &mut noise);
        Self {
            arch,
            recipe,
            queries,
            keys,
        }
    }

    fn intervals(&self) -> Intervals {
        let level = Level::detect();
        intervals(level, self.arch, &self.recipe, &self.queries, &self.keys).unwrap()
    }

    fn logits(&self) -> Array2<f32> {
        Definition {
            arch: self.arch,
            recipe: &self.recipe,
            queries: &self.queries,
            keys: &self.keys,
        }
        .logits()
    }

    /// The ratios of what `change` makes of the kernel against the intervals of what it should be.
    fn ratios(&self, change: impl Fn(&mut Self)) -> Vec<f64> {
        let mut changed = Self {
            arch: self.arch,
            recipe: self.recipe.clone(),
            queries: self.queries.clone(),
            keys: self.keys.clone(),
        };
        change(&mut changed);
        let found = self.intervals();
        let logits = changed.logits();
        let ratio = |((query, key), &got): ((usize, usize), &f32)| {
            found.at(query, key).ratio(f64::from(got))
        };
        logits.indexed_iter().map(ratio).collect()
    }

    /// The share of logits outside their intervals.
    fn outside(&self, change: impl Fn(&mut Self)) -> f64 {
        let ratios = self.ratios(change);
        let inside = ratios.iter().filter(|&&ratio| ratio <= 1.0).count();
        1.0 - inside as f64 / ratios.len() as f64
    }
}

/// A right kernel never leaves its intervals, and uses more than a hundredth of one.
#[test]
fn right_kernels_use_their_intervals() {
    for recipe in catalogue::builtin() {
        for arch in Arch::ALL {
            if !has_unit(arch, recipe.unit) {
                continue;
            }
            let case = Case::new(recipe.clone(), arch);
            let ratios = case.ratios(|_| {});
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let largest = ratios.iter().copied().fold(0.0, nan_max);
            let found = case.intervals();
            let norm = |of: &Array2<f64>| of.iter().map(|x| x * x).sum::<f64>().sqrt();
            let width = norm(&(&found.hi - &found.lo)) / norm(&found.exact);
            let name = &recipe.name;
            println!("{name:20} {arch:7} mean {mean:.3} largest {largest:.3} width {width:.1e}");
            assert!(largest > 0.01 && largest <= 1.0, "{name} {arch}: {largest}");
        }
    }
}

/// Whether the kernel multiplies by a scale of the keys, apart from the product.
fn has_row_scales(case: &Case) -> bool {
    let scales = case.keys.scales.as_ref();
    scales.is_some_and(|scales| scales.ncols() == 1)
}

/// The reduction spelled out.
fn steps(case: &Case) -> Reduce {
    case.recipe.reduction.on(case.arch, has_row_scales(case))
}

fn without_relu(case: &mut Case) {
    let mut steps = steps(case);
    steps.relu = Relu::Absent;
    case.recipe.reduction = Reduction::Steps(steps);
}

fn shifted(rows: &Array2<f32>) -> Array2<f32> {
    let count = rows.nrows();
    let order: Vec<usize> = (0..count).map(|row| (row + 1) % count).collect();
    rows.select(Axis(0), &order)
}

fn keys_shifted(case: &mut Case) {
    case.keys.values = shifted(&case.keys.values);
    case.keys.scales = case.keys.scales.as_ref().map(shifted);
}

/// q in the next format below the recipe's.
fn coarser_query(case: &mut Case) {
    let values = &mut case.queries.q.values;
    let below = match case.recipe.query.format.format() {
        Format::F32 => Format::Tf32,
        Format::Tf32 | Format::F16 => Format::Bf16,
        Format::E2m1 => {
            values.mapv_inplace(|x| f32::from_bits(x.to_bits() & !(1 << 22)));
            return;
        }
        _ => {
            // One bit fewer.
            values.mapv_inplace(|x| f32::from_bits(x.to_bits() & !(1 << 16) & !(1 << 20)));
            return;
        }
    };
    values.mapv_inplace(|x| below.round_f32(x, Rounding::NearestEven));
}

fn scales_dropped(case: &mut Case) {
    if let Some(scales) = &mut case.keys.scales {
        scales.fill(1.0);
    }
}

fn rounded_dot(case: &mut Case) {
    case.recipe.dot = Storage::Bf16;
}

type Fault = (&'static str, fn(&mut Case));

const FAULTS: [Fault; 5] = [
    ("no relu", without_relu),
    ("keys shifted", keys_shifted),
    ("coarser q", coarser_query),
    ("scales dropped", scales_dropped),
    ("dot in bf16", rounded_dot),
];

#[test]
fn wrong_kernels_leave_the_intervals() {
    for recipe in catalogue::builtin() {
        let rounds = recipe.dot == Storage::Bf16;
        // There half-precision logits hide a TF32 rounding of q from most, and a dot in bf16 from half.
        let seen = match recipe.name.as_str() {
            "f16-logits" => 0.3,
            "bf16-dot" => 0.5,
            _ => 0.85,
        };
        let case = Case::new(recipe, Arch::Sm120);
        for (name, fault) in FAULTS {
            let share = case.outside(fault);
            println!("{:20} {name:15} {share:.3}", case.recipe.name);
            let expected = match name {
                "scales dropped" if !has_row_scales(&case) => continue,
                "dot in bf16" if rounds => continue,
                "no relu" | "keys shifted" | "scales dropped" => 1.0,
                _ => seen,
            };
            assert!(share >= expected, "{} {name}: {share}", case.recipe.name);
        }
    }
}

/// The FP8 unit of `sm_90` keeps 13 bits: what is smaller than that is not seen, what is larger is.
#[test]
fn a_coarse_unit_hides_what_is_finer() {
    let case = Case::new(named("fp8-f32scale"), Arch::Sm90);
    for fault in [without_relu, keys_shifted, scales_dropped] {
        assert_eq!(case.outside(fault), 1.0);
    }
    assert_eq!(case.outside(rounded_dot), 0.0);
}

/// Another order of the heads, or another contraction, of logits in fp32 costs less than what the unit may do.
#[test]
fn another_order_stays_within() {
    for name in ["fp32", "tf32", "transformers", "bf16-keys", "fp8-f32scale"] {
        let case = Case::new(named(name), Arch::Sm120);
        let kept = steps(&case);
        let contraction = match kept.contraction {
            Contraction::Fma => Contraction::MulAdd,
            Contraction::MulAdd => Contraction::Fma,
        };
        let orders = [HeadOrder::Ascending, HeadOrder::Tree, HeadOrder::FourLanes];
        let reordered = orders.map(|order| Reduce { order, ..kept });
        let contracted = Reduce {
            contraction,
            ..kept
        };
        for other in reordered.into_iter().chain([contracted]) {
            let share = case.outside(|case| case.recipe.reduction = Reduction::Steps(other));
            assert_eq!(share, 0.0, "{name} {other:?}");
        }
    }
}
