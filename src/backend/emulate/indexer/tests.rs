//! Oracles: the definitions written out one number at a time. An fp32 operation is done in f64 and rounded to fp32,
//! which is the fp32 operation (f64 has more than twice the bits and two to spare); roundings to bf16 and f16 are
//! those of the `half` crate; units follow the scalar rules of [`crate::tensor_core`].

mod linear;
mod logits;
mod reduce;
mod steps;

use ndarray::Array2;
use ulpdrift_reference::simd::Level;

use crate::{
    recipe::{
        Storage,
        indexer::{IndexRecipe, catalogue},
    },
    tensor_core::{Arch, Instruction, Operand, scalar},
};

fn add(a: f32, b: f32) -> f32 {
    (f64::from(a) + f64::from(b)) as f32
}

fn multiply(a: f32, b: f32) -> f32 {
    (f64::from(a) * f64::from(b)) as f32
}

fn divide(a: f32, b: f32) -> f32 {
    (f64::from(a) / f64::from(b)) as f32
}

fn stored(x: f32, storage: Storage) -> f32 {
    match storage {
        Storage::F32 => x,
        Storage::Bf16 => half::bf16::from_f32(x).to_f32(),
    }
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn assert_same(got: &Array2<f32>, expected: &Array2<f32>, what: &str) {
    assert_eq!(got.dim(), expected.dim(), "{what}");
    for ((at, got), expected) in got.indexed_iter().zip(expected) {
        assert!(
            same(*got, *expected),
            "{what}: {got:e} is not {expected:e} at {at:?}"
        );
    }
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

/// Numbers of about unit size from a multiplicative congruence.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 * 2f32.powi(-23) - 1.0
    }

    fn matrix(&mut self, rows: usize, columns: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, columns), |_| self.next())
    }

    fn bf16(&mut self, rows: usize, columns: usize) -> Array2<f32> {
        self.matrix(rows, columns)
            .mapv(|x| stored(x, Storage::Bf16))
    }
}

fn recipe(name: &str) -> IndexRecipe {
    let is_it = |recipe: &IndexRecipe| recipe.name == name;
    catalogue::builtin().into_iter().find(is_it).unwrap()
}

/// One chain of the unit: instruction after instruction, from 0.
fn unit_chain(arch: Arch, instruction: Instruction, a: &[f32], b: &[f32]) -> f32 {
    let rule = arch.rule(instruction).unwrap();
    let code = |operand: Operand, x: &[f32]| -> Vec<u32> {
        x.iter().map(|&x| operand.to_code(x)).collect()
    };
    let steps = a.chunks(instruction.k).zip(b.chunks(instruction.k));
    let c = steps.fold(0, |c, (a, b)| {
        let (a, b) = (code(rule.operand, a), code(rule.operand, b));
        scalar::mma(&rule, &a, &b, c)
    });
    f32::from_bits(c)
}

/// An fma chain from 0.
fn fma_chain(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum))
}
