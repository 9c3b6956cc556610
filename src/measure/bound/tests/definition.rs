//! The bound against its definition, read off the module's documentation one product at a time.

use ndarray::{Array2, ArrayView1};
use ulpdrift_reference::simd::Level;

use crate::format::Format;

use super::{
    super::{Addition, BoundError, BoundOutput, ChainRule, Chains, Operands, Order, Rule},
    CATEGORIES, Category, Noise,
    oracle::{UNITS, Unit},
};

/// One output's partial result.
#[derive(Clone, Copy, Default)]
struct Partial {
    s: f64,
    b: f64,
    drift: f64,
    variance: f64,
}

fn floor_log2(x: f64) -> i32 {
    if x == 0.0 {
        -1023
    } else {
        ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
    }
}

fn two_to(exponent: i32) -> f64 {
    2.0_f64.powi(exponent)
}

fn exponent(x: f32, rule: ChainRule) -> i32 {
    floor_log2(f64::from(x)).max(rule.operand_min_exponent)
}

impl Partial {
    fn block(&mut self, rule: ChainRule, products: &[(f32, f32)], started: bool) {
        let term = |&(x, w): &(f32, f32)| f64::from(x) * f64::from(w);
        let exponents: Vec<i32> = products
            .iter()
            .filter(|product| term(product) != 0.0)
            .map(|&(x, w)| exponent(x, rule) + exponent(w, rule))
            .collect();
        let top = exponents
            .iter()
            .copied()
            .fold(rule.exponent_floor, i32::max)
            .max(floor_log2(self.s.abs() + self.b));
        let whole = rule.fraction_bits - rule.product_fraction_bits;
        let cut = exponents.iter().filter(|&e| top - e > whole).count();
        let quantum = two_to(top - rule.fraction_bits);
        let d = (cut + usize::from(started)) as f64 * quantum;
        self.s = products.iter().map(term).fold(self.s, |s, term| s + term);
        let v = self.s.abs() + (self.b + d);
        self.b = self.b + d + two_to(floor_log2(v).max(-126) - rule.output_bits);
        let ulp = two_to(floor_log2(self.s.abs()) - rule.output_bits);
        if self.s != 0.0 && ulp > quantum {
            self.drift -= self.s.signum() * (ulp - quantum) / 2.0;
            self.variance += (ulp * ulp - quantum * quantum) / 12.0;
        }
    }

    fn step(&mut self, (x, w): (f32, f32)) {
        self.s += f64::from(x) * f64::from(w);
        self.b += two_to(-24) * (self.s.abs() + self.b) + two_to(-150);
        self.add_ulp();
    }

    fn join(&mut self, other: Self) {
        self.s += other.s;
        self.b += other.b;
        self.b += two_to(-24) * (self.s.abs() + self.b);
        self.drift += other.drift;
        self.variance += other.variance;
        self.add_ulp();
    }

    /// The variance of a rounding to nearest of the sum in fp32.
    fn add_ulp(&mut self) {
        if self.s != 0.0 {
            let ulp = two_to(floor_log2(self.s.abs()) - 23);
            self.variance += ulp * ulp / 12.0;
        }
    }
}

type Pair<'a> = (ArrayView1<'a, f32>, ArrayView1<'a, f32>);

fn output(rule: Rule, terms: &[Pair<'_>], order: &Order) -> Partial {
    let chain = |ranges: &Vec<std::ops::Range<usize>>| {
        let mut partial = Partial::default();
        let mut started = false;
        for (x, w) in terms {
            for range in ranges {
                let products: Vec<_> = range.clone().map(|k| (x[k], w[k])).collect();
                match rule {
                    Rule::Fma32 => products.iter().for_each(|&pair| partial.step(pair)),
                    Rule::TensorCore(rule) => {
                        for block in products.chunks(rule.block_len) {
                            partial.block(rule, block, started);
                            started = true;
                        }
                    }
                }
            }
        }
        if order.stored != Format::F32 {
            let ulp = order.stored.ulp_at(partial.s.abs() + partial.b);
            partial.b += ulp / 2.0;
            partial.variance += ulp * ulp / 12.0;
        }
        partial
    };
    let mut partials: Vec<Partial> = order.chains.iter().map(chain).collect();
    for &Addition { into, from } in &order.additions {
        let other = partials[from];
        partials[into].join(other);
    }
    partials[0]
}

/// Terms of a projection.
struct Terms(Vec<(Array2<f32>, Array2<f32>)>);

impl Terms {
    fn evaluate(&self, rule: Rule, order: &Order, level: Level) -> BoundOutput {
        let terms: Vec<Operands<'_>> = self
            .0
            .iter()
            .map(|(x, weight)| Operands {
                x: x.view(),
                weight: weight.view(),
            })
            .collect();
        let chains = Chains {
            rule,
            terms: &terms,
            order,
        };
        chains.evaluate(level).expect("shapes fit")
    }

    /// Holds every level to the definition, and to the bits of the first.
    fn check(&self, rule: Rule, order: &Order, what: &str) {
        let portable = self.evaluate(rule, order, Level::Portable);
        for level in Level::ALL {
            let got = self.evaluate(rule, order, level);
            assert_eq!(got, portable, "{what} {level}");
            for ((token, n), &exact) in got.exact.indexed_iter() {
                let rows: Vec<Pair<'_>> = self
                    .0
                    .iter()
                    .map(|(x, w)| (x.row(token), w.row(n)))
                    .collect();
                let expected = output(rule, &rows, order);
                let at = [token, n];
                for (name, got, expected) in [
                    ("exact", exact, expected.s),
                    ("bound", got.bound[at], expected.b),
                    ("drift", got.drift[at], expected.drift),
                    ("variance", got.drift_variance[at], expected.variance),
                ] {
                    let error = (got - expected).abs();
                    assert!(
                        error <= 1e-12 * expected.abs(),
                        "{what} {level} {name} {at:?}: {got:e} for {expected:e}"
                    );
                }
            }
        }
    }
}

/// Splits, threads, and a chain that jumps about with ranges of every length.
fn orders(k: usize) -> Vec<Order> {
    let jumps = Order {
        chains: vec![
            vec![k / 2..k, 0..3, 5..5, 7..k / 3],
            vec![],
            vec![3..7, k / 3..k / 2],
        ],
        stored: Format::F32,
        additions: vec![Addition { into: 2, from: 1 }, Addition { into: 0, from: 2 }],
    };
    let mut rounded = super::even_splits(k, 5);
    rounded.stored = Format::Bf16;
    vec![
        super::even_splits(k, 1),
        rounded,
        Order::strided(k, 16),
        Order::strided(k, 11),
        jumps,
    ]
}

/// Two terms; 33 and 50 tokens leave a tile ragged and take several batches.
fn terms(unit: &Unit, category: Category, noise: &mut Noise, k: usize) -> Terms {
    let tokens = [1, 33, 50][noise.bits() as usize % 3];
    let outputs = 1 + noise.bits() as usize % 9;
    let x = category.matrix(unit, noise, tokens, k);
    let weights = [Category::Normal, category].map(|of| of.matrix(unit, noise, outputs, k));
    Terms(weights.map(|weight| (x.clone(), weight)).into())
}

#[test]
fn tensor_core_bounds_are_those_of_the_definition() {
    let mut noise = Noise(21);
    for unit in &UNITS {
        for (category, k) in CATEGORIES
            .into_iter()
            .zip([65, 97, 300].into_iter().cycle())
        {
            let terms = terms(unit, category, &mut noise, k);
            for order in orders(k) {
                terms.check(Rule::TensorCore(unit.rule), &order, unit.name);
            }
        }
    }
}

#[test]
fn blocks_of_any_length_are_those_of_the_definition() {
    let mut noise = Noise(22);
    let unit = UNITS[1];
    let k = 131;
    for block_len in 1..=32 {
        let rule = Rule::TensorCore(ChainRule {
            block_len,
            ..unit.rule
        });
        let terms = terms(&unit, Category::Sparse, &mut noise, k);
        for order in orders(k) {
            terms.check(rule, &order, &format!("blocks of {block_len}"));
        }
    }
}

#[test]
fn fp32_bounds_are_those_of_the_definition() {
    let mut noise = Noise(23);
    for (category, k) in CATEGORIES
        .into_iter()
        .zip([65, 97, 300].into_iter().cycle())
    {
        let terms = terms(&UNITS[4], category, &mut noise, k);
        for order in orders(k) {
            terms.check(Rule::Fma32, &order, &format!("{category:?}"));
        }
    }
}

/// Two terms that share their x, and views that are not stored in rows, are only other ways to say
/// the same.
#[test]
fn how_operands_are_stored_does_not_matter() {
    let mut noise = Noise(24);
    let (unit, k) = (UNITS[4], 200);
    let rule = Rule::TensorCore(unit.rule);
    let separate = terms(&unit, Category::Normal, &mut noise, k);
    let [(x, low), (_, high)] = &separate.0[..] else {
        panic!("two terms");
    };
    for order in orders(k) {
        let expected = separate.evaluate(rule, &order, Level::detect());
        let columns = x.t().as_standard_layout().into_owned();
        for x in [x.view(), columns.t()] {
            let terms = [low, high].map(|weight| Operands {
                x,
                weight: weight.view(),
            });
            let chains = Chains {
                rule,
                terms: &terms,
                order: &order,
            };
            assert_eq!(chains.evaluate(Level::detect()), Ok(expected.clone()));
        }
    }
}

#[test]
fn a_partial_result_is_used_once() {
    let order = |additions: &[(usize, usize)]| Order {
        chains: vec![vec![0..8]; 3],
        stored: Format::F32,
        additions: additions
            .iter()
            .map(|&(into, from)| Addition { into, from })
            .collect(),
    };
    let matrix = Array2::ones((2, 8));
    let evaluate = |order: &Order, block_len| {
        let terms = [Operands {
            x: matrix.view(),
            weight: matrix.view(),
        }];
        let rule = ChainRule {
            block_len,
            ..UNITS[1].rule
        };
        Chains {
            rule: Rule::TensorCore(rule),
            terms: &terms,
            order: &order.clone(),
        }
        .evaluate(Level::detect())
    };
    for twice in [&[(0, 1), (2, 1)][..], &[(0, 1), (1, 2)]] {
        let result = evaluate(&order(twice), 8);
        assert!(matches!(result, Err(BoundError::Order { .. })), "{twice:?}");
    }
    // What nobody adds does not count.
    let dropped = evaluate(&order(&[(0, 2)]), 8).expect("an order");
    assert!(dropped.exact.iter().all(|&e| e == 16.0));
    for length in [0, 33] {
        let result = evaluate(&order(&[]), length);
        assert_eq!(result, Err(BoundError::Block { length }));
    }
}
