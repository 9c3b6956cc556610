//! The mixing projection on a device: RMS factor, projection, and the sum of its ranges where the
//! projection does not add them itself.

use ndarray::{Array1, Array2};
use rayon::prelude::*;

use super::{
    device::{Argument, Device},
    error::CudaError,
    options::{Grid, Mixing, ROW_THREADS, Shape, Stored},
    source::Kernel,
    stream::{Buffer, Function},
};
use crate::{
    backend::{Mix, MixInputs},
    format::bf16,
    recipe::MixRecipe,
};

/// x in the device's memory, as it is stored there.
pub enum Streams {
    /// bf16 codes.
    Bf16(Buffer<u16>),
    /// fp32.
    F32(Buffer<f32>),
}

impl Streams {
    /// Copies x, whose values are exact in the format that `stored` stands for.
    pub fn upload(device: &Device, values: &[f32], stored: Stored) -> Result<Self, CudaError> {
        match stored {
            Stored::Bf16 => {
                let codes = values.par_iter().map(|&value| bf16::to_bits(value));
                let codes: Vec<u16> = codes.collect();
                device.upload("x", &codes).map(Self::Bf16)
            }
            Stored::F32 => device.upload("x", values).map(Self::F32),
        }
    }

    /// It, as a kernel takes it.
    pub fn argument(&self) -> Argument<'_> {
        match self {
            Self::Bf16(codes) => Argument::Codes(codes),
            Self::F32(values) => Argument::Floats(values),
        }
    }
}

/// A recipe's projection, compiled, with its operands and its scratch on the device: everything but the
/// launches.
pub struct MixOnDevice<'a> {
    device: &'a Device,
    builds: Mixing,
    functions: Functions,
    buffers: Buffers,
    sizes: Sizes,
}

struct Functions {
    squares: Function,
    factor: Function,
    project: Function,
    finish: Option<Function>,
}

struct Buffers {
    weight: Weight,
    squares: Buffer<f32>,
    rms: Buffer<f32>,
    partials: Buffer<f32>,
    dot: Buffer<f32>,
    mixes: Buffer<f32>,
}

/// hc_fn as the projection takes it.
enum Weight {
    /// As it is stored.
    Plain(Buffer<f32>),
    /// By `pack_weights.cu` or `pack_columns.cu`.
    Packed(Buffer<u32>),
}

impl Weight {
    fn argument(&self) -> Argument<'_> {
        match self {
            Self::Plain(values) => Argument::Floats(values),
            Self::Packed(words) => Argument::Words(words),
        }
    }
}

/// The scalars of the launches.
#[derive(Clone, Copy)]
struct Sizes {
    tokens: i32,
    outputs: i32,
    depth: i32,
    splits: i32,
    unit: i32,
    each: i32,
    extra: i32,
    square_parts: i32,
    reciprocal: f32,
    eps: f32,
}

impl<'a> MixOnDevice<'a> {
    /// Compiles what `recipe` needs and brings the weight over.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    pub fn new(
        device: &'a Device,
        recipe: &MixRecipe,
        inputs: &MixInputs<'_>,
        stored: Stored,
    ) -> Result<Self, CudaError> {
        let (tokens, depth) = inputs.x.dim();
        let outputs = inputs.function.nrows();
        let shape = Shape::new(
            &recipe.projection,
            (tokens, outputs, depth),
            inputs.launch,
            stored,
            device.target(),
        );
        let builds = Mixing::of(recipe, &shape);
        let functions = Functions {
            squares: device.function(&builds.rms, "squares")?,
            factor: device.function(&builds.rms, "factor")?,
            project: device.function(&builds.project, "project")?,
            finish: builds
                .finish
                .as_ref()
                .map(|finish| device.function(finish, "finish"))
                .transpose()?,
        };
        let weight = inputs.function.as_standard_layout();
        let (size, cuts) = (tokens * outputs, shape.cuts);
        let partials = builds.finish.as_ref().map_or(0, |_| cuts.count * size);
        let buffers = Buffers {
            weight: Weight::Plain(device.upload("hc_fn", weight.as_slice().unwrap_or_default())?),
            squares: device.zeros("square sums", builds.square_parts * tokens)?,
            rms: device.zeros("the RMS factor", tokens)?,
            partials: device.zeros("partial sums", partials)?,
            dot: device.zeros("dot", size)?,
            mixes: device.zeros("mixes", size)?,
        };
        let mut mix = Self {
            device,
            functions,
            buffers,
            sizes: Sizes {
                tokens: tokens as i32,
                outputs: outputs as i32,
                depth: depth as i32,
                splits: cuts.count as i32,
                unit: cuts.unit as i32,
                each: cuts.each as i32,
                extra: cuts.extra as i32,
                square_parts: builds.square_parts as i32,
                reciprocal: (1.0 / depth as f64) as f32,
                eps: inputs.norm_eps as f32,
            },
            builds,
        };
        mix.pack()?;
        Ok(mix)
    }

    /// Brings the weight into the order of the projection: once, as an engine does when it loads a model.
    fn pack(&mut self) -> Result<(), CudaError> {
        let (Some((build, words)), Weight::Plain(plain)) =
            (&self.builds.pack, &self.buffers.weight)
        else {
            return Ok(());
        };
        let packed = self.device.zeros("packed weights", *words)?;
        let sizes = &self.sizes;
        let arguments = [
            Argument::Floats(plain),
            Argument::Words(&packed),
            Argument::Int(&sizes.outputs),
            Argument::Int(&sizes.depth),
            Argument::Int(&sizes.splits),
            Argument::Int(&sizes.unit),
            Argument::Int(&sizes.each),
            Argument::Int(&sizes.extra),
        ];
        let (name, arguments) = match build.kernel {
            Kernel::PackColumns => ("pack_columns", &arguments[..4]),
            _ => ("pack_weights", &arguments[..]),
        };
        let function = self.device.function(build, name)?;
        self.device.launch(&function, build.grid, name, arguments)?;
        self.buffers.weight = Weight::Packed(packed);
        Ok(())
    }

    /// Everything, in the recipe's order.
    pub fn run(&self, x: &Streams) -> Result<(), CudaError> {
        self.normalise(x)?;
        self.project(x)
    }

    /// The RMS factor.
    fn normalise(&self, x: &Streams) -> Result<(), CudaError> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let function = &self.functions.squares;
        let grid = self.builds.rms.grid;
        let arguments = [
            x.argument(),
            Argument::Floats(&buffers.squares),
            Argument::Int(&sizes.tokens),
            Argument::Int(&sizes.depth),
            Argument::Int(&sizes.unit),
            Argument::Int(&sizes.each),
            Argument::Int(&sizes.extra),
        ];
        self.device.launch(function, grid, "squares", &arguments)?;
        let grid = Grid {
            blocks: ((sizes.tokens as usize).div_ceil(ROW_THREADS), 1),
            threads: ROW_THREADS,
            shared: 0,
            waits: false,
        };
        self.device.launch(
            &self.functions.factor,
            grid,
            "factor",
            &[
                Argument::Floats(&buffers.squares),
                Argument::Floats(&buffers.rms),
                Argument::Int(&sizes.tokens),
                Argument::Int(&sizes.square_parts),
                Argument::Int(&sizes.depth),
                Argument::Float(&sizes.reciprocal),
                Argument::Float(&sizes.eps),
            ],
        )
    }

    /// From x and the weight to dot and mixes.
    pub fn project(&self, x: &Streams) -> Result<(), CudaError> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let arguments = [
            x.argument(),
            buffers.weight.argument(),
            Argument::Floats(&buffers.rms),
            Argument::Floats(&buffers.partials),
            Argument::Floats(&buffers.dot),
            Argument::Floats(&buffers.mixes),
            Argument::Int(&sizes.tokens),
            Argument::Int(&sizes.outputs),
            Argument::Int(&sizes.depth),
            Argument::Int(&sizes.splits),
            Argument::Int(&sizes.unit),
            Argument::Int(&sizes.each),
            Argument::Int(&sizes.extra),
        ];
        let grid = self.builds.project.grid;
        let function = &self.functions.project;
        self.device.launch(function, grid, "project", &arguments)?;
        let (Some(build), Some(function)) = (&self.builds.finish, &self.functions.finish) else {
            return Ok(());
        };
        let arguments = [
            Argument::Floats(&buffers.partials),
            Argument::Floats(&buffers.rms),
            Argument::Floats(&buffers.dot),
            Argument::Floats(&buffers.mixes),
            Argument::Int(&sizes.tokens),
            Argument::Int(&sizes.outputs),
            Argument::Int(&sizes.splits),
        ];
        self.device
            .launch(function, build.grid, "finish", &arguments)
    }

    /// What the launches left.
    pub fn results(&self) -> Result<Mix, CudaError> {
        let (tokens, outputs) = (self.sizes.tokens as usize, self.sizes.outputs as usize);
        let array = |what, values| -> Result<Array2<f32>, CudaError> {
            let values = self.device.download(what, values)?;
            Ok(Array2::from_shape_vec((tokens, outputs), values).unwrap_or_default())
        };
        let rms = self.device.download("the RMS factor", &self.buffers.rms)?;
        Ok(Mix {
            dot: array("dot", &self.buffers.dot)?,
            mixes: array("mixes", &self.buffers.mixes)?,
            rms: Array1::from_vec(rms),
            splits: self.sizes.splits as usize,
        })
    }
}
