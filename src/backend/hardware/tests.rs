use std::sync::Mutex;

use ndarray::ArrayView2;
use ulpdrift_reference::simd::Level;

use super::*;
use crate::{
    backend::{
        Backend, BackendInfo, LayerInput, Mix, RecombineInputs, Split, SplitInputs,
        cuda::error::CudaError, emulate::Emulate,
    },
    format::Rounding,
    recipe::{
        Epilogue, Recombine, Storage,
        catalogue::builtin,
        indexer::{IndexRecipe, Operands, QueryOperands, Selector},
    },
    tensor_core::Arch,
};

/// A user's own kernels of the projection, beside the emulator.
pub(crate) type UsersKernels =
    Box<dyn Fn(&Emulate, &MixRecipe, &MixInputs<'_>) -> Result<Mix, BackendError> + Send + Sync>;

/// A user's own recombination, beside the emulator.
pub(crate) type UsersRecombination = Box<
    dyn Fn(&Emulate, &Recombine, &RecombineInputs<'_>) -> Result<Array2<f32>, BackendError>
        + Send
        + Sync,
>;

/// A device made of the emulator: its library's products are those of recipes, its times are made up.
pub(crate) struct Pretend {
    pub(crate) emulate: Emulate,
    /// What projects in place of the emulator.
    pub(crate) kernels: Option<UsersKernels>,
    /// What recombines in place of the emulator.
    pub(crate) recombination: Option<UsersRecombination>,
    /// How it stores gates and combination matrix.
    pub(crate) gates: Storage,
    /// The recipes that stand in for the products.
    pub(crate) stand_ins: [&'static str; 3],
    /// Whether it has the library.
    pub(crate) has_library: bool,
    /// What was timed: variant and tokens.
    pub(crate) timed: Mutex<Vec<(String, usize)>>,
}

impl Pretend {
    pub(crate) fn new() -> Self {
        Self {
            emulate: Emulate::new(Arch::Sm90, Level::detect()),
            kernels: None,
            recombination: None,
            gates: Storage::F32,
            stand_ins: ["fp32", "tf32", "bf16"],
            has_library: true,
            timed: Mutex::default(),
        }
    }

    /// With kernels of its own.
    pub(crate) fn with_kernels(kernels: UsersKernels) -> Self {
        Self {
            kernels: Some(kernels),
            ..Self::new()
        }
    }

    pub(crate) fn stand_in(&self, product: LibraryProduct) -> MixRecipe {
        let position = LibraryProduct::ALL.iter().position(|&one| one == product);
        let name = self.stand_ins[position.expect("one of all")];
        let is_it = |recipe: &MixRecipe| recipe.name == name;
        builtin().into_iter().find(is_it).expect("in the catalogue")
    }
}

impl Backend for Pretend {
    fn info(&self) -> BackendInfo {
        BackendInfo {
            name: "cuda",
            ..self.emulate.info()
        }
    }

    fn hardware(&self) -> Option<&dyn Hardware> {
        Some(self)
    }

    fn mix(&self, recipe: &MixRecipe, inputs: &MixInputs<'_>) -> Result<Mix, BackendError> {
        match &self.kernels {
            Some(kernels) => kernels(&self.emulate, recipe, inputs),
            None => self.emulate.mix(recipe, inputs),
        }
    }

    fn split_sinkhorn<'a>(
        &self,
        epilogue: &'a Epilogue,
        inputs: &SplitInputs<'a>,
    ) -> Result<Split, BackendError> {
        let mut split = self.emulate.split_sinkhorn(epilogue, inputs)?;
        let format = self.gates.format();
        for gates in [&mut split.pre, &mut split.post, &mut split.comb] {
            gates.mapv_inplace(|gate| format.round_f32(gate, Rounding::NearestEven));
        }
        Ok(split)
    }

    fn collapse<'a>(
        &'a self,
        epilogue: &'a Epilogue,
        pre: ArrayView2<'a, f32>,
        x: ArrayView2<'a, f32>,
        x_exact_in: Format,
    ) -> Result<LayerInput<'a>, BackendError> {
        self.emulate.collapse(epilogue, pre, x, x_exact_in)
    }

    fn recombine(
        &self,
        recombine: &Recombine,
        inputs: &RecombineInputs<'_>,
    ) -> Result<Array2<f32>, BackendError> {
        match &self.recombination {
            Some(recombination) => recombination(&self.emulate, recombine, inputs),
            None => self.emulate.recombine(recombine, inputs),
        }
    }

    fn index_logits(
        &self,
        recipe: &IndexRecipe,
        queries: &QueryOperands,
        keys: &Operands,
    ) -> Result<Array2<f32>, BackendError> {
        self.emulate.index_logits(recipe, queries, keys)
    }

    fn top_k(
        &self,
        selector: Selector,
        logits: ArrayView2<'_, f32>,
        visible: &[usize],
        k: usize,
    ) -> Result<Vec<Vec<u32>>, BackendError> {
        self.emulate.top_k(selector, logits, visible, k)
    }
}

impl Hardware for Pretend {
    fn library(&self) -> Result<String, BackendError> {
        if self.has_library {
            return Ok("cuBLAS 13.1.0".to_owned());
        }
        let reason = "the loader finds none".to_owned();
        Err(CudaError::NoCublas { reason }.into())
    }

    fn product(
        &self,
        product: LibraryProduct,
        inputs: &MixInputs<'_>,
    ) -> Result<Array2<f32>, BackendError> {
        self.library()?;
        Ok(self.emulate.mix(&self.stand_in(product), inputs)?.dot)
    }

    fn copy_rate(&self) -> Result<f64, BackendError> {
        Ok(4000.0)
    }

    fn time(&self, timed: Timed<'_>, inputs: &MixInputs<'_>) -> Result<Timing, BackendError> {
        let name = timed.name().to_owned();
        let microseconds = name.len() as f64;
        let tokens = inputs.x.nrows();
        self.timed.lock().unwrap().push((name, tokens));
        Ok(Timing {
            microseconds,
            bytes: 2_000_000,
        })
    }

    fn options(&self) -> Vec<String> {
        vec!["--fmad=false".to_owned()]
    }

    fn macros(&self) -> BTreeMap<&'static str, BTreeSet<String>> {
        let macros = ["-DA=1 -DB=2", "-DA=2 -DB=2"].map(str::to_owned);
        BTreeMap::from([("rms.cu", BTreeSet::from(macros))])
    }
}

fn probed(pretend: &Pretend, product: LibraryProduct, tokens: usize) -> InputRoundings {
    let (x, function) = (Array2::zeros((tokens, 64)), Array2::zeros((5, 64)));
    let inputs = MixInputs {
        x: x.view(),
        x_exact_in: Format::Bf16,
        function: function.view(),
        norm_eps: 1e-6,
        launch: Launch { tokens, sms: 132 },
    };
    input_roundings(pretend, product, &inputs).expect("the library is here")
}

/// Fewer tokens, and fewer outputs, than there are probes; as many; and more.
#[test]
fn what_a_product_does_to_its_operands_is_found_in_any_shape() {
    let tf32 = InputRounding::Tf32;
    for (stand_in, expected) in [
        ("tf32", tf32(Rounding::NearestEven)),
        ("tf32-rna", tf32(Rounding::NearestAway)),
        ("tf32-rz", tf32(Rounding::TowardZero)),
        ("fp32", InputRounding::AsItIs),
        ("bf16", InputRounding::Unknown),
    ] {
        let mut pretend = Pretend::new();
        pretend.stand_ins[1] = stand_in;
        for tokens in [1, 3, 7, 64] {
            let found = probed(&pretend, LibraryProduct::Tf32, tokens);
            let both = InputRoundings {
                x: expected,
                weight: expected,
            };
            assert_eq!(found, both, "{stand_in}, {tokens} tokens");
        }
    }
    let found = probed(&Pretend::new(), LibraryProduct::Bf16, 3);
    assert_eq!(
        found.words(LibraryProduct::Bf16),
        "takes its bf16 operands as handed over"
    );
}

/// Known faults D2, D4: a library that goes through TF32 though it was asked for fp32 arithmetic, as it does where
/// `NVIDIA_TF32_OVERRIDE` says so, is found out by its first product.
#[test]
fn d2_d4_a_pedantic_product_that_rounds_is_found_out() {
    let words = |pretend: &Pretend| {
        let product = LibraryProduct::Fp32Pedantic;
        probed(pretend, product, 64).words(product)
    };
    let mut pretend = Pretend::new();
    assert_eq!(words(&pretend), "takes its fp32 operands as handed over");
    pretend.stand_ins[0] = "tf32";
    assert_eq!(
        words(&pretend),
        "rounds its fp32 operands to TF32, nearest, ties to even"
    );
}

#[test]
fn a_timing_in_bytes_per_second() {
    let timing = Timing {
        microseconds: 4.0,
        bytes: 8_000_000,
    };
    assert_eq!(
        timing.gigabytes_per_second().to_bits(),
        2000.0_f64.to_bits()
    );
}
