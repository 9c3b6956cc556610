//! One variant's walk through the chain, on its own streams.

use ndarray::{ArcArray2, Array2, ArrayView2};

use super::{
    Around, Order,
    finite::Watch,
    link::{Link, Start},
    truth::first_stream,
};
use crate::{
    backend::RecombineInputs,
    format::{Format, Rounding},
    recipe::{MixRecipe, Recombine, splits::Launch},
    report::NonFinite,
    suite::{Plan, SuiteError, fault::Variant, mix::Candidate},
};

/// A variant as far as it has come.
pub struct Walker<'a> {
    plan: &'a Plan<'a>,
    /// What lies around the kernel.
    pub around: &'a Around,
    /// Its recipe, and the bug in it.
    pub variant: Variant<'a>,
    /// What runs where its own recipe does not.
    elsewhere: &'a MixRecipe,
    order: Order,
    /// X [T, hc·d], as stored.
    pub x: ArcArray2<f32>,
    exact_in: Format,
    /// The gates of the site before [T, hc].
    pub carried: Array2<f32>,
    /// Whether it is still finite.
    pub walks: bool,
}

/// What a variant had at one site, beside the streams that it left.
pub struct Passed {
    /// The layer input, fp32 and unrounded [T, d]; `None` of a variant that has ended.
    pub y: Option<Array2<f32>>,
    /// Ranges K was cut into.
    pub splits: Option<usize>,
    /// Where it ended, if it did here.
    pub non_finite: Option<NonFinite>,
}

impl<'a> Walker<'a> {
    /// A variant before its first site.
    pub(in crate::suite) fn new(
        plan: &'a Plan<'a>,
        around: &'a Around,
        variant: Variant<'a>,
        elsewhere: &'a MixRecipe,
        start: &Start,
        order: Order,
    ) -> Self {
        let is_exact = around.residual == Format::F32 || around.residual == start.exact_in;
        let x = match is_exact {
            true => start.x.clone(),
            false => rounded(start.x.view(), around.residual),
        };
        Self {
            plan,
            around,
            variant,
            elsewhere,
            order,
            x: x.into_shared(),
            exact_in: match around.residual {
                Format::F32 => start.exact_in,
                stored => stored,
            },
            carried: first_stream(start.x.nrows(), start.hc),
            walks: true,
        }
    }

    /// Goes through one site; a variant that has ended stays where it is.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn pass(&mut self, link: &Link) -> Result<Passed, SuiteError> {
        if !self.walks {
            return Ok(Passed {
                y: None,
                splits: None,
                non_finite: None,
            });
        }
        let variant = match self
            .around
            .sites_on
            .includes(link.site.layer, link.site.site)
        {
            true => self.variant,
            false => self.elsewhere.into(),
        };
        let backend = self.plan.backend;
        let case = link.case(&self.x, self.exact_in);
        let launch = Launch {
            tokens: self.x.nrows(),
            sms: self.plan.sms,
        };
        let mut made = Candidate::run(backend, variant, &case, launch)?;
        let pre = match self.order {
            Order::Own => made.pre.view(),
            Order::Delayed => self.carried.view(),
        };
        let y = backend
            .collapse(&variant.recipe.epilogue, pre, self.x.view(), self.exact_in)?
            .rows(0..self.x.nrows())
            .into_owned();
        let f = link.stored_sublayer(self.plan.level, y.view(), self.around.layer_io);
        let inputs = RecombineInputs {
            x: self.x.view(),
            x_exact_in: self.exact_in,
            f: f.view(),
            f_exact_in: self.around.layer_io,
            post: made.post.view(),
            comb: made.comb.view(),
        };
        let next = backend.recombine(&Recombine::FP32, &inputs)?;
        let next = rounded(next.view(), self.around.residual);
        let mut watch = Watch::new(self.variant, link, self.x.view());
        for (stage, values) in [
            ("x", self.x.view()),
            ("dot", made.dot.view()),
            ("mixes", made.mixes.view()),
            ("pre", made.pre.view()),
            ("post", made.post.view()),
            ("comb", made.comb.view()),
            ("y", y.view()),
            ("f", f.view()),
            ("streams", next.view()),
        ] {
            watch.see(stage, values);
        }
        let non_finite = watch.found();
        self.walks = non_finite.is_none();
        self.x = next.into_shared();
        self.exact_in = self.around.residual;
        self.carried = std::mem::take(&mut made.pre);
        Ok(Passed {
            y: Some(y),
            splits: made.splits,
            non_finite,
        })
    }

    /// The collapse at the end of the model, with the gates of `head` or those of the last site; `None` of a
    /// variant that has ended.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn head(&self, head: Option<&Link>) -> Result<Option<Array2<f32>>, SuiteError> {
        if !self.walks {
            return Ok(None);
        }
        let backend = self.plan.backend;
        let tokens = self.x.nrows();
        let own = match head {
            None => None,
            Some(link) => {
                let launch = Launch {
                    tokens,
                    sms: self.plan.sms,
                };
                let case = link.case(&self.x, self.exact_in);
                Some(Candidate::run(backend, self.variant, &case, launch)?.pre)
            }
        };
        let pre = own.as_ref().unwrap_or(&self.carried);
        let epilogue = &self.variant.recipe.epilogue;
        let y = backend.collapse(epilogue, pre.view(), self.x.view(), self.exact_in)?;
        Ok(Some(y.rows(0..tokens).into_owned()))
    }
}

/// Values as a format holds them, to nearest even.
pub fn rounded(values: ArrayView2<'_, f32>, format: Format) -> Array2<f32> {
    let mut values = values.to_owned();
    if format != Format::F32 {
        values.par_mapv_inplace(|value| format.round_f32(value, Rounding::NearestEven));
    }
    values
}
