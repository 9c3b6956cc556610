//! The tensors behind the rows of one site, in a file of their own: `recombine.L3.attn`.
//!
//! | name | what |
//! |---|---|
//! | `L3.attn.x`, `L3.attn.f` | the flattened streams as stored, and what stands in for the sublayer's output |
//! | `L3.attn.post`, `L3.attn.comb` | the gates, fp32, of which variants round their own |
//! | `L3.attn.streams.reference` | the truth, F64 |
//! | `L3.attn.streams.transformers`, `L3.attn.streams_bf16.transformers` | what the variant got |
//! | `L3.attn.streams.transformers.exact` | its recipe-exact value, F64 |

use ndarray::Array2;

use super::{Variants, operands::rounded, streams::Streams};
use crate::{
    backend::BackendError,
    recipe::{RecombineRecipe, Storage},
    suite::tensors::{NamedTensor, Stored, Tensors, Values},
};

/// The tensors behind the rows of one site; X' is made again when it is written.
pub struct SiteTensors<'a> {
    pub streams: Streams<'a>,
    pub variants: &'a Variants,
}

impl Tensors for SiteTensors<'_> {
    fn place(&self) -> String {
        format!("recombine.{}", self.streams.case.place())
    }

    fn named(&self) -> Vec<NamedTensor<'_>> {
        let name = |what: &str| format!("{}.{what}", self.streams.case.place());
        let (x, operands) = (self.streams.case.x.view(), self.streams.operands);
        let mut tensors = vec![
            NamedTensor::fp32(name("x"), Stored::holding(x), x),
            NamedTensor::fp32(name("f"), Stored::Bf16, operands.f.view()),
            NamedTensor::fp32(name("post"), Stored::F32, operands.post.view()),
            NamedTensor::fp32(name("comb"), Stored::F32, operands.comb.view()),
            self.fp64(name("streams.reference"), Storage::F32),
        ];
        for recipe in &self.variants.recipes {
            let streams = name(&format!("streams.{}", recipe.name));
            let deployed = name(&format!("streams_bf16.{}", recipe.name));
            let exact = format!("{streams}.exact");
            tensors.push(self.got(streams, recipe, Stored::F32));
            tensors.push(self.fp64(exact, recipe.arithmetic.gates));
            tensors.push(self.got(deployed, recipe, Stored::Bf16));
        }
        tensors
    }
}

impl SiteTensors<'_> {
    fn shape(&self) -> [usize; 2] {
        let (tokens, width) = self.streams.case.x.dim();
        [tokens, width]
    }

    fn got<'s>(
        &'s self,
        name: String,
        recipe: &'s RecombineRecipe,
        stored: Stored,
    ) -> NamedTensor<'s> {
        NamedTensor::made(name, stored, self.shape(), move || {
            let streams = self.next(recipe)?;
            let values = match stored {
                Stored::Bf16 => streams.mapv(rounded),
                _ => streams,
            };
            Ok(Values::F32(values.into()))
        })
    }

    fn next(&self, recipe: &RecombineRecipe) -> Result<Array2<f32>, BackendError> {
        let Streams {
            plan,
            case,
            operands,
        } = self.streams;
        plan.backend
            .recombine(&recipe.arithmetic, &operands.inputs(case))
    }

    fn fp64(&self, name: String, gates: Storage) -> NamedTensor<'_> {
        NamedTensor::made(name, Stored::F64, self.shape(), move || {
            let tokens = 0..self.streams.case.x.nrows();
            Ok(Values::F64(self.streams.fp64(gates, tokens).into()))
        })
    }
}
