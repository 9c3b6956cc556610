//! What one site adds to the report: layer input and streams of every variant against the fp64 chain.

use std::ops::Range;

use ndarray::{ArrayView2, s};
use rayon::prelude::*;

use super::{
    Around,
    candidate::{Passed, Walker, rounded},
    link::Link,
    truth::{self, Truth},
};
use crate::{
    activations::Inputs,
    format::Format,
    measure::error,
    report::{Key, Measures, Record},
    suite::{Plan, SuiteError},
};

/// A site that all variants have passed.
pub struct Rows<'a> {
    /// The run.
    pub plan: &'a Plan<'a>,
    /// What lies around the kernel.
    pub around: &'a Around,
    /// The site.
    pub link: &'a Link,
}

/// Tokens that a row is over.
struct Class {
    name: &'static str,
    tokens: Range<usize>,
}

/// The classes of a batch: all tokens, and where one row is unlike the others, that one and those.
fn classes(inputs: &Inputs, tokens: usize) -> Vec<Class> {
    let class = |name, tokens| Class { name, tokens };
    let mut classes = vec![class("all", 0..tokens)];
    if *inputs == Inputs::Outlier && tokens > 1 {
        classes.extend([class("outlier", 0..1), class("ordinary", 1..tokens)]);
    }
    classes
}

/// One tensor to be measured.
pub struct Compared<'a> {
    /// Where.
    pub stage: &'static str,
    /// What the variant has.
    pub got: ArrayView2<'a, f32>,
    /// What the fp64 chain has.
    pub reference: ArrayView2<'a, f64>,
    /// What the variant has that all are compared with.
    pub other: Option<ArrayView2<'a, f32>>,
    /// What it is stored in.
    pub format: Format,
}

impl Rows<'_> {
    /// The records of every variant; the first walker is the one that all are compared with.
    pub fn records(
        &self,
        truth: &Truth,
        reference: &truth::Passed,
        walkers: &[Walker<'_>],
        passed: &[Passed],
    ) -> Result<Vec<Record>, SuiteError> {
        let others = passed.first().and_then(|passed| passed.y.as_ref());
        let others = others.map(|y| (y, rounded(y.view(), Format::Bf16), walkers[0].x.view()));
        let of_variant = |(walker, passed): (&Walker<'_>, &Passed)| {
            let Some(y) = &passed.y else {
                return Ok(Vec::new());
            };
            let y_bf16 = rounded(y.view(), Format::Bf16);
            let other = others.as_ref();
            let compared = [
                Compared {
                    stage: "y",
                    got: y.view(),
                    reference: reference.y.view(),
                    other: other.map(|(y, ..)| y.view()),
                    format: Format::F32,
                },
                Compared {
                    stage: "y_bf16",
                    got: y_bf16.view(),
                    reference: reference.y.view(),
                    other: other.map(|(_, y_bf16, _)| y_bf16.view()),
                    format: Format::Bf16,
                },
                Compared {
                    stage: "streams",
                    got: walker.x.view(),
                    reference: truth.x.view(),
                    other: other.map(|(.., x)| x.view()),
                    format: self.around.residual,
                },
            ];
            let rows = compared
                .iter()
                .map(|compared| self.rows(walker, passed.splits, compared));
            rows.collect::<Result<Vec<_>, _>>()
                .map(|rows| rows.concat())
        };
        let pairs: Vec<_> = walkers.iter().zip(passed).collect();
        let wanted = pairs
            .into_par_iter()
            .filter(|(walker, _)| is_asked_for(self.plan, walker));
        let records = wanted
            .map(of_variant)
            .collect::<Result<Vec<_>, SuiteError>>()?;
        Ok(records.concat())
    }

    fn rows(
        &self,
        walker: &Walker<'_>,
        splits: Option<usize>,
        compared: &Compared<'_>,
    ) -> Result<Vec<Record>, SuiteError> {
        let key = Key {
            layer: Some(self.link.site.layer),
            site: Some(self.link.site.site.to_string()),
            depth: Some(self.link.depth()),
            splits: splits.and_then(|splits| u32::try_from(splits).ok()),
            sms: splits.and_then(|_| u32::try_from(self.plan.sms).ok()),
            ..key(self.plan, self.around, walker)
        };
        measure(self.plan, &key, compared)
    }
}

/// Whether a walker's rows are wanted: the one that all are compared with may not be a candidate.
pub fn is_asked_for(plan: &Plan<'_>, walker: &Walker<'_>) -> bool {
    plan.variants().any(|variant| variant == walker.variant)
}

/// What the key of all rows of a variant shares.
pub fn key(plan: &Plan<'_>, around: &Around, walker: &Walker<'_>) -> Key {
    Key {
        variant: walker.variant.recipe.name.clone(),
        fault: walker.variant.fault.map(|fault| fault.to_string()),
        ..key_of(plan, around, walker.x.nrows())
    }
}

/// What the key of all rows of a chain shares.
pub fn key_of(plan: &Plan<'_>, around: &Around, tokens: usize) -> Key {
    let info = plan.backend.info();
    Key {
        suite: "chain".to_owned(),
        inputs: plan.inputs.to_string(),
        tokens: tokens as u64,
        residual: Some(flag(around.residual).to_owned()),
        layer_io: Some(flag(around.layer_io).to_owned()),
        sublayer: Some(around.sublayer.to_string()),
        sites_on: Some(around.sites_on.to_string()),
        seed: plan.seed,
        backend: info.name.to_owned(),
        arch: info.arch.to_string(),
        ..Key::default()
    }
}

/// A format as the flags name it.
fn flag(format: Format) -> &'static str {
    match format {
        Format::F32 => "fp32",
        Format::F16 => "fp16",
        _ => "bf16",
    }
}

/// A row per class of tokens.
pub fn measure(
    plan: &Plan<'_>,
    key: &Key,
    compared: &Compared<'_>,
) -> Result<Vec<Record>, SuiteError> {
    let classes = classes(plan.inputs, compared.got.nrows());
    let row = |class: &Class| {
        let rows = s![class.tokens.clone(), ..];
        let (got, reference) = (compared.got.slice(rows), compared.reference.slice(rows));
        let other = compared.other.as_ref().map(|other| other.slice(rows));
        let stage = error::Stage {
            got: got.to_slice().unwrap_or_default(),
            reference: reference.to_slice().unwrap_or_default(),
            exact: None,
            other: other
                .as_ref()
                .map(|other| other.to_slice().unwrap_or_default()),
            tokens: class.tokens.len(),
            format: compared.format,
        };
        let measures: Measures = stage.measure_at(plan.level)?.into();
        let key = Key {
            stage: Some(compared.stage.to_owned()),
            token_class: class.name.to_owned(),
            ..key.clone()
        };
        Ok(Record { key, measures })
    };
    classes.iter().map(row).collect()
}
