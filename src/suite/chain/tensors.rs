//! The tensors behind the rows of a chain.
//!
//! | file | tensors |
//! |---|---|
//! | `chain.start` | `chain.x0` [T, d], where the streams are copies of one row, else [T, hc·d] |
//! | `chain.L3.attn` | `L3.attn.y.tf32` and `L3.attn.streams.tf32`; `.reference` in place of the variant for the fp64 chain |
//! | `chain.head` | `head.tf32`, `head.reference` |

use ndarray::{Array2, ArrayView2, s};

use super::{
    candidate::{Passed, Walker},
    link::{Link, Start},
    rows,
    truth::{self, Truth},
};
use crate::{
    format::Format,
    suite::{
        Plan,
        fault::Variant,
        tensors::{NamedTensor, Stored, Tensors},
    },
};

/// What the chain starts with.
pub struct Begin<'a>(pub &'a Start);

impl Begin<'_> {
    /// One stream where all are alike, else all.
    fn rows(&self) -> ArrayView2<'_, f32> {
        let x = self.0.x.view();
        let width = x.ncols() / self.0.hc.max(1);
        let first = x.slice_move(s![.., ..width]);
        let is_copy =
            |stream| self.0.x.slice(s![.., stream * width..(stream + 1) * width]) == first;
        if (1..self.0.hc).all(is_copy) {
            first
        } else {
            self.0.x.view()
        }
    }
}

impl Tensors for Begin<'_> {
    fn place(&self) -> String {
        "chain.start".to_owned()
    }

    fn named(&self) -> Vec<NamedTensor<'_>> {
        vec![NamedTensor::fp32(
            "chain.x0".to_owned(),
            Stored::F32,
            self.rows(),
        )]
    }
}

/// What all chains have behind a site.
pub struct Behind<'a> {
    pub plan: &'a Plan<'a>,
    pub link: &'a Link,
    pub truth: &'a Truth,
    pub reference: &'a truth::Passed,
    pub walkers: &'a [Walker<'a>],
    pub passed: &'a [Passed],
}

impl Tensors for Behind<'_> {
    fn place(&self) -> String {
        format!("chain.{}", self.link.place())
    }

    fn named(&self) -> Vec<NamedTensor<'_>> {
        let name = |stage: &str, of: &str| format!("{}.{stage}.{of}", self.link.place());
        let mut tensors = vec![
            NamedTensor::fp64(name("y", "reference"), self.reference.y.view()),
            NamedTensor::fp64(name("streams", "reference"), self.truth.x.view()),
        ];
        for (walker, passed) in self.walkers.iter().zip(self.passed) {
            let Some(y) = &passed.y else { continue };
            if !rows::is_asked_for(self.plan, walker) {
                continue;
            }
            let variant = walker.variant.to_string();
            let stored = Stored::of(walker.around.residual);
            tensors.push(NamedTensor::fp32(
                name("y", &variant),
                Stored::F32,
                y.view(),
            ));
            tensors.push(NamedTensor::fp32(
                name("streams", &variant),
                stored,
                walker.x.view(),
            ));
        }
        tensors
    }
}

/// What all chains end with.
pub struct End<'a> {
    pub reference: &'a Array2<f64>,
    /// What each variant has, by name.
    pub variants: Vec<(Variant<'a>, Array2<f32>)>,
    pub stored: Format,
}

impl Tensors for End<'_> {
    fn place(&self) -> String {
        "chain.head".to_owned()
    }

    fn named(&self) -> Vec<NamedTensor<'_>> {
        let stored = Stored::of(self.stored);
        let reference = NamedTensor::fp64("head.reference".to_owned(), self.reference.view());
        let variants = self
            .variants
            .iter()
            .map(|(variant, y)| NamedTensor::fp32(format!("head.{variant}"), stored, y.view()));
        std::iter::once(reference).chain(variants).collect()
    }
}
