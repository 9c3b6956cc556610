//! The vendor's library and the clock of a device, as a suite asks for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
};

use ndarray::Array2;

use super::{Cuda, blas::Blas, error::CudaError, options::Stored, time};
use crate::{
    backend::{
        BackendError, MixInputs,
        hardware::{Hardware, Timed, Timing},
    },
    recipe::library::LibraryProduct,
};

impl Cuda {
    /// What `ask` gets from the library, which is loaded the first time.
    fn with_blas<T>(
        &self,
        ask: impl FnOnce(&Blas) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        self.device.bind()?;
        // What is there is whole even if another thread panicked.
        let mut blas = self.blas.lock().unwrap_or_else(PoisonError::into_inner);
        let blas = match &mut *blas {
            Some(blas) => blas,
            none => none.insert(Blas::new(&self.device)?),
        };
        ask(blas)
    }
}

impl Hardware for Cuda {
    fn library(&self) -> Result<String, BackendError> {
        let version = self.with_blas(Blas::version)?;
        Ok(format!("cuBLAS {version}"))
    }

    fn product(
        &self,
        product: LibraryProduct,
        inputs: &MixInputs<'_>,
    ) -> Result<Array2<f32>, BackendError> {
        Ok(self.with_blas(|blas| blas.dot(&self.device, product, inputs))?)
    }

    fn copy_rate(&self) -> Result<f64, BackendError> {
        self.device.bind()?;
        Ok(time::copy_rate(&self.device)?)
    }

    fn time(&self, timed: Timed<'_>, inputs: &MixInputs<'_>) -> Result<Timing, BackendError> {
        self.device.bind()?;
        Ok(match timed {
            Timed::Recipe(recipe) => {
                let stored = Stored::for_format(inputs.x_exact_in);
                time::recipe(&self.device, recipe, inputs, stored)?
            }
            Timed::Library(product) => {
                self.with_blas(|blas| time::cublas(&self.device, blas, product, inputs))?
            }
        })
    }

    fn options(&self) -> Vec<String> {
        self.device.own_options()
    }

    fn macros(&self) -> BTreeMap<&'static str, BTreeSet<String>> {
        self.device.macros()
    }
}
