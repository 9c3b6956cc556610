//! The sum over the heads, by the table of [`crate::recipe::indexer::reduce`].
//!
//! With W = 1 and fp32 on the CUDA cores a head's dot is the product of two numbers, so that every step behind it can
//! be fed what it should meet.

use super::{super::*, *};
use crate::recipe::{
    Contraction,
    indexer::{
        Fold, HeadOrder, LogitFormat, Operands, QueryOperands, Reduce, Reduction, Relu,
        ScalePosition,
    },
};

/// Heads of one query, keys, and what lies behind the dot.
struct Case {
    q: Vec<f32>,
    weights: Vec<f32>,
    k: Vec<f32>,
    scales: Option<Vec<f32>>,
    recipe: IndexRecipe,
}

impl Case {
    fn got(&self, level: Level) -> Vec<f32> {
        let column =
            |values: &[f32]| Array2::from_shape_vec((values.len(), 1), values.to_vec()).unwrap();
        let queries = QueryOperands {
            q: Operands {
                values: column(&self.q),
                scales: None,
            },
            weights: Array2::from_shape_vec((1, self.q.len()), self.weights.clone()).unwrap(),
        };
        let keys = Operands {
            values: column(&self.k),
            scales: self.scales.as_deref().map(column),
        };
        let logits = index_logits(level, Arch::Sm120, &self.recipe, &queries, &keys).unwrap();
        logits.into_raw_vec_and_offset().0
    }

    fn expected(&self) -> Vec<f32> {
        let logit = |(key, k): (usize, &f32)| {
            let scale = self.scales.as_ref().map_or(1.0, |scales| scales[key]);
            let dots: Vec<f32> = self.q.iter().map(|q| add(multiply(*q, *k), 0.0)).collect();
            self.logit(&dots, scale)
        };
        self.k.iter().enumerate().map(logit).collect()
    }

    fn steps(&self) -> Reduce {
        match self.recipe.reduction {
            Reduction::Steps(steps) => steps,
            Reduction::DeepGemm => unreachable!("the tests spell it out"),
        }
    }

    fn logit(&self, dots: &[f32], scale: f32) -> f32 {
        let steps = self.steps();
        let activations: Vec<f32> = dots
            .iter()
            .map(|dot| self.activation(*dot, scale))
            .collect();
        let mut heads: Vec<(f32, f32)> = activations
            .into_iter()
            .zip(self.weights.iter().copied())
            .collect();
        let at_lanes = |x: f32| match steps.scale {
            ScalePosition::BeforeLanes => self.scaled(x, scale),
            _ => x,
        };
        let mut total = match steps.order {
            HeadOrder::Ascending => at_lanes(self.chain(&heads)),
            HeadOrder::FourLanes => {
                let lane = |lane: usize| {
                    let of = |parity: usize| -> Vec<(f32, f32)> {
                        let mine = |head: &usize| head % 8 == 2 * lane + parity;
                        (0..heads.len())
                            .filter(mine)
                            .map(|head| heads[head])
                            .collect()
                    };
                    at_lanes(self.sum(self.chain(&of(0)), self.chain(&of(1))))
                };
                let [a, b, c, d] = [lane(0), lane(1), lane(2), lane(3)];
                self.sum(self.sum(a, b), self.sum(c, d))
            }
            HeadOrder::FourChains => {
                let chain = |first: usize| {
                    let mine: Vec<_> = heads.iter().skip(first).step_by(4).copied().collect();
                    at_lanes(self.chain(&mine))
                };
                self.sum(self.sum(chain(0), chain(2)), self.sum(chain(1), chain(3)))
            }
            HeadOrder::ChunksOfEight => heads.chunks(8).fold(0.0, |total, chunk| {
                self.sum(total, at_lanes(self.chain(chunk)))
            }),
            HeadOrder::Tree => {
                // Pairs from the far end of a power of two; a head without a partner stays.
                let product = |(x, w): (f32, f32)| stored(multiply(x, w), steps.product);
                let mut terms: Vec<f32> = heads
                    .drain(..)
                    .map(|head| at_lanes(product(head)))
                    .collect();
                let mut stride = 64;
                while stride >= 1 {
                    for head in 0..stride {
                        if head + stride < terms.len() {
                            terms[head] = self.sum(terms[head], terms[head + stride]);
                        }
                    }
                    terms.truncate(stride);
                    stride /= 2;
                }
                terms[0]
            }
        };
        if steps.relu == Relu::HalfSum {
            total = multiply(total, 0.5);
        }
        if steps.scale == ScalePosition::Last {
            total = self.scaled(total, scale);
        }
        match self.recipe.output {
            LogitFormat::F32 => total,
            LogitFormat::Bf16 => half::bf16::from_f32(total).to_f32(),
            LogitFormat::F16 => half::f16::from_f32(total).to_f32(),
        }
    }

    fn activation(&self, dot: f32, scale: f32) -> f32 {
        let mut x = dot;
        if self.recipe.weights.fold == Fold::Split {
            // W^-½ is 1 here; the suite of whole recipes has another W.
            x = multiply(x, 1.0);
        }
        x = stored(x, self.recipe.dot);
        if self.steps().scale == ScalePosition::BeforeRelu {
            x = multiply(x, scale);
        }
        match self.steps().relu {
            Relu::Max if x.is_nan() => 0.0,
            Relu::Max | Relu::MaxKeepsNan if x <= 0.0 => 0.0,
            Relu::HalfSum => add(x, x.abs()),
            _ => x,
        }
    }

    fn chain(&self, heads: &[(f32, f32)]) -> f32 {
        let steps = self.steps();
        heads.iter().fold(0.0, |sum, &(x, w)| {
            match (steps.contraction, steps.product, steps.sum) {
                (Contraction::Fma, Storage::F32, Storage::F32) => x.mul_add(w, sum),
                (Contraction::Fma, Storage::F32, Storage::Bf16) => fma_to_bf16(x, w, sum),
                (_, product, _) => self.sum(sum, stored(multiply(x, w), product)),
            }
        })
    }

    fn sum(&self, a: f32, b: f32) -> f32 {
        stored(add(a, b), self.steps().sum)
    }

    fn scaled(&self, x: f32, scale: f32) -> f32 {
        let storage = self.steps().sum;
        stored(multiply(x, stored(scale, storage)), storage)
    }
}

/// a·b + c to the nearest bf16 in exact integers: the candidates around an estimate, compared by distance.
fn fma_to_bf16(a: f32, b: f32, c: f32) -> f32 {
    let estimate = a.mul_add(b, c);
    let product = f64::from(a) * f64::from(b);
    // In units 110 bits below the larger term; a term that is no whole number of them decides no tie here.
    let largest = product.abs().max(f64::from(c).abs());
    let middle = half::bf16::from_f32(estimate);
    if !largest.is_finite() || largest == 0.0 || !middle.is_finite() {
        return middle.to_f32();
    }
    let unit = 2f64.powi(largest.log2().floor() as i32 - 110);
    let units = |x: f64| x / unit;
    if units(product).fract() != 0.0 || units(f64::from(c)).fract() != 0.0 {
        return middle.to_f32();
    }
    let exact = units(product) as i128 + units(f64::from(c)) as i128;
    let bits = middle.to_bits();
    let around = [bits, bits.wrapping_add(1), bits.wrapping_sub(1)];
    let best = around
        .into_iter()
        .filter(|bits| half::bf16::from_bits(*bits).is_finite())
        .min_by_key(|bits| {
            let value = units(half::bf16::from_bits(*bits).to_f64()) as i128;
            ((exact - value).abs(), bits % 2)
        })
        .unwrap();
    half::bf16::from_bits(best).to_f32()
}

const ORDERS: [HeadOrder; 5] = [
    HeadOrder::Ascending,
    HeadOrder::FourLanes,
    HeadOrder::FourChains,
    HeadOrder::ChunksOfEight,
    HeadOrder::Tree,
];
const RELUS: [Relu; 4] = [Relu::Max, Relu::MaxKeepsNan, Relu::HalfSum, Relu::Absent];
const SCALES: [ScalePosition; 4] = [
    ScalePosition::InProduct,
    ScalePosition::BeforeRelu,
    ScalePosition::BeforeLanes,
    ScalePosition::Last,
];
const OUTPUTS: [LogitFormat; 3] = [LogitFormat::F32, LogitFormat::Bf16, LogitFormat::F16];
const STORAGES: [Storage; 2] = [Storage::F32, Storage::Bf16];

fn all_steps() -> impl Iterator<Item = Reduce> {
    SCALES.into_iter().flat_map(|scale| {
        RELUS.into_iter().flat_map(move |relu| {
            ORDERS.into_iter().flat_map(move |order| {
                [Contraction::Fma, Contraction::MulAdd]
                    .into_iter()
                    .flat_map(move |contraction| {
                        STORAGES.into_iter().flat_map(move |product| {
                            STORAGES.into_iter().map(move |sum| Reduce {
                                scale,
                                relu,
                                order,
                                contraction,
                                product,
                                sum,
                            })
                        })
                    })
            })
        })
    })
}

fn with(steps: Reduce) -> IndexRecipe {
    IndexRecipe {
        reduction: Reduction::Steps(steps),
        ..recipe("fp32")
    }
}

/// Every step of every kind with every other, on numbers that round, on NaN and on infinities.
#[test]
fn every_reduction_follows_its_definition() {
    let mut numbers = Numbers(3);
    let mut checked = 0;
    for (index, steps) in all_steps().enumerate() {
        for heads in [1, 5, 21, 64] {
            let mut case = Case {
                q: numbers.matrix(1, heads).into_raw_vec_and_offset().0,
                weights: numbers.matrix(1, heads).into_raw_vec_and_offset().0,
                k: numbers.matrix(1, 37).into_raw_vec_and_offset().0,
                scales: (steps.scale != ScalePosition::InProduct).then(|| {
                    numbers
                        .matrix(1, 37)
                        .mapv(f32::abs)
                        .into_raw_vec_and_offset()
                        .0
                }),
                recipe: with(steps),
            };
            case.recipe.dot = STORAGES[index % 2];
            case.recipe.output = OUTPUTS[index % 3];
            if index % 5 == 0 {
                case.recipe.weights.fold = Fold::Split;
            }
            // bf16 weights, as bf16 sums have them, make ties possible.
            if index % 2 == 0 {
                case.weights
                    .iter_mut()
                    .for_each(|w| *w = stored(*w, Storage::Bf16));
            }
            let strange = [
                f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                0.0,
                -0.0,
                1e38,
                -1e38,
                1e-42,
            ];
            case.k[3..11].copy_from_slice(&strange);
            let expected = case.expected();
            for level in levels() {
                for (key, (got, expected)) in case.got(level).iter().zip(&expected).enumerate() {
                    assert!(
                        same(*got, *expected),
                        "{steps:?} of {heads} heads, key {key}: {got:e} is not {expected:e}"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, 640 * 4 * 37 * levels().count());
}

fn logit(steps: Reduce, dots: &[f32], weights: &[f32], scale: Option<f32>) -> f32 {
    let case = Case {
        q: dots.to_vec(),
        weights: weights.to_vec(),
        k: vec![1.0],
        scales: scale.map(|scale| vec![scale]),
        recipe: with(steps),
    };
    case.got(Level::detect())[0]
}

/// Sixteen heads, 2²⁴ and fifteen ones: a one that meets 2²⁴ alone is lost. By hand.
#[test]
fn the_order_decides_which_heads_are_lost() {
    let mut dots = [1.0; 16];
    dots[0] = 16_777_216.0;
    let by_hand = [
        (HeadOrder::Ascending, 16_777_216.0),
        // Lane 0 has 2²⁴ + 2 of its own; then 4, and the sum of 4 and 4.
        (HeadOrder::FourLanes, 16_777_230.0),
        // 2²⁴ is left of the first chain, 4 of each other: + 4, then + 8.
        (HeadOrder::FourChains, 16_777_228.0),
        (HeadOrder::ChunksOfEight, 16_777_224.0),
        // 2²⁴ (+ 1) + 2 + 4 + 8.
        (HeadOrder::Tree, 16_777_230.0),
    ];
    for (order, expected) in by_hand {
        for contraction in [Contraction::Fma, Contraction::MulAdd] {
            let steps = Reduce {
                order,
                contraction,
                ..Reduce::default()
            };
            assert_eq!(logit(steps, &dots, &[1.0; 16], None), expected, "{order:?}");
        }
    }
}

/// (1 + 2⁻¹²)² = 1 + 2⁻¹¹ + 2⁻²⁴: fused with −1 the last bit stays.
#[test]
fn contraction_keeps_the_low_half_of_a_product() {
    let x = 1.0 + 2f32.powi(-12);
    let both = [Contraction::Fma, Contraction::MulAdd].map(|contraction| {
        let steps = Reduce {
            contraction,
            ..Reduce::default()
        };
        logit(steps, &[1.0, x], &[-1.0, x], None)
    });
    assert_eq!(both, [2f32.powi(-11) + 2f32.powi(-24), 2f32.powi(-11)]);
}

/// f32(0.1) + 13·f32(0.1), each rounded, is one bit above 14·f32(0.1).
#[test]
fn the_scale_multiplies_where_the_recipe_says() {
    let logit = |scale, order, dots: &[f32]| {
        let steps = Reduce {
            scale,
            order,
            ..Reduce::default()
        };
        logit(steps, dots, &vec![1.0; dots.len()], Some(0.1))
    };
    let (apart, together) = (f32::from_bits(0x3fb3_3334), f32::from_bits(0x3fb3_3333));
    // Heads 0 and 4 are of different lanes, of one chain of the four, and of one chunk.
    let dots = [1.0, -3.0, 0.0, 0.0, 13.0, 0.0, 0.0, 0.0];
    for order in ORDERS {
        assert_eq!(
            logit(ScalePosition::InProduct, order, &dots),
            14.0,
            "{order:?}"
        );
        assert_eq!(
            logit(ScalePosition::Last, order, &dots),
            together,
            "{order:?}"
        );
        let lanes = match order {
            HeadOrder::FourLanes | HeadOrder::Tree => apart,
            HeadOrder::Ascending | HeadOrder::FourChains | HeadOrder::ChunksOfEight => together,
        };
        assert_eq!(
            logit(ScalePosition::BeforeLanes, order, &dots),
            lanes,
            "{order:?}"
        );
        // Fused, a scaled dot of 13·f32(0.1) still has been rounded.
        assert_eq!(
            logit(ScalePosition::BeforeRelu, order, &dots),
            apart,
            "{order:?}"
        );
    }
}

#[test]
fn a_nan_is_swallowed_or_kept_as_the_relu_says() {
    let of = |relu, dot| {
        let steps = Reduce {
            relu,
            ..Reduce::default()
        };
        logit(steps, &[dot, 2.0], &[1.0; 2], None)
    };
    assert_eq!(of(Relu::Max, f32::NAN), 2.0);
    assert!(of(Relu::MaxKeepsNan, f32::NAN).is_nan());
    assert!(of(Relu::HalfSum, f32::NAN).is_nan());
    assert!(of(Relu::Absent, f32::NAN).is_nan());
    assert_eq!(of(Relu::Max, f32::NEG_INFINITY), 2.0);
    assert_eq!(of(Relu::MaxKeepsNan, f32::NEG_INFINITY), 2.0);
    assert!(of(Relu::HalfSum, f32::NEG_INFINITY).is_nan());
    assert_eq!(of(Relu::Absent, f32::NEG_INFINITY), f32::NEG_INFINITY);
    // Twice a number beyond half the largest overflows.
    assert_eq!(of(Relu::HalfSum, 2e38), f32::INFINITY);
    assert_eq!(of(Relu::Max, 2e38), 2e38);
    // A NaN weight is no score, and relu does not hide it.
    for relu in RELUS {
        let steps = Reduce {
            relu,
            ..Reduce::default()
        };
        assert!(logit(steps, &[0.0], &[f32::NAN], None).is_nan(), "{relu:?}");
    }
}

/// The row of a public fault list: sums of 64 heads in a narrow format, and logits beyond its range.
#[test]
fn narrow_sums_stick_and_narrow_logits_overflow() {
    let steps = Reduce {
        sum: Storage::Bf16,
        ..Reduce::default()
    };
    let ones = [1.0; 64];
    let mut dots = [4.0; 64];
    assert_eq!(logit(steps, &dots, &ones, None), 256.0);
    // From 512 on a 1 is less than half a unit of bf16.
    dots[0] = 512.0;
    dots[1..].fill(1.0);
    assert_eq!(logit(steps, &dots, &ones, None), 512.0);
    assert_eq!(logit(Reduce::default(), &dots, &ones, None), 575.0);
    for (value, expected) in [
        (65_504.0, 65_504.0),
        (65_519.0, 65_504.0),
        (65_520.0, f32::INFINITY),
        (-70_000.0, f32::NEG_INFINITY),
    ] {
        let steps = Reduce {
            relu: Relu::Absent,
            ..Reduce::default()
        };
        let mut recipe = with(steps);
        recipe.output = LogitFormat::F16;
        let case = Case {
            q: vec![value / 64.0; 64],
            weights: ones.to_vec(),
            k: vec![1.0],
            scales: None,
            recipe,
        };
        assert_eq!(case.got(Level::detect()), [expected]);
    }
}

/// Blackwell's packed sums round a fused product once: 1 + (2⁻⁸ + a little) is above the tie that fp32 would see.
#[test]
fn a_fused_bf16_sum_rounds_once() {
    let x = 1.0 + 2f32.powi(-7);
    let steps = |contraction| Reduce {
        contraction,
        sum: Storage::Bf16,
        ..Reduce::default()
    };
    // The product is 2⁻⁸ + 2⁻²⁹: fp32 would give 1 + 2⁻⁸, a tie that goes to the even 1.
    let (dots, weights) = (
        [1.0, x],
        [1.0, 2f32.powi(-8) * (1.0 - 2f32.powi(-7) + 2f32.powi(-14))],
    );
    let exact = f64::from(x) * f64::from(weights[1]);
    assert!(exact > 2f64.powi(-8) && exact < 2f64.powi(-8) + 2f64.powi(-24));
    assert_eq!(logit(steps(Contraction::Fma), &dots, &weights, None), x);
    assert_eq!(
        logit(steps(Contraction::MulAdd), &dots, &weights, None),
        1.0
    );
}
