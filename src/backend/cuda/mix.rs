//! The mixing projection on a device: RMS factor, projection, sum of the splits.

use cudarc::driver::{CudaFunction, CudaSlice};
use ndarray::{Array1, Array2};
use rayon::prelude::*;

use super::{
    device::{Argument, Device},
    error::CudaError,
    options::{self, Build, Grid, ROW_THREADS, Shape, Stored},
};
use crate::{
    backend::{Mix, MixInputs},
    format::bf16,
    recipe::MixRecipe,
};

/// x in the device's memory, as it is stored there.
pub enum Streams {
    /// bf16 codes.
    Bf16(CudaSlice<u16>),
    /// fp32.
    F32(CudaSlice<f32>),
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
    builds: Builds,
    functions: Functions,
    buffers: Buffers,
    sizes: Sizes,
}

struct Builds {
    rms: Build,
    pack: Option<Build>,
    project: Build,
    finish: Build,
}

struct Functions {
    squares: CudaFunction,
    factor: CudaFunction,
    pack: Option<CudaFunction>,
    project: CudaFunction,
    finish: CudaFunction,
}

struct Buffers {
    weight: CudaSlice<f32>,
    bounds: CudaSlice<i32>,
    groups: CudaSlice<i32>,
    packed: CudaSlice<u32>,
    squares: CudaSlice<f32>,
    rms: CudaSlice<f32>,
    partials: CudaSlice<f32>,
    dot: CudaSlice<f32>,
    mixes: CudaSlice<f32>,
}

/// The scalars of the launches.
#[derive(Clone, Copy)]
struct Sizes {
    tokens: i32,
    outputs: i32,
    depth: i32,
    splits: i32,
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
        let ranges = recipe.projection.order.ranges(depth, inputs.launch);
        let shape = Shape {
            tokens,
            outputs,
            depth,
            ranges: &ranges,
            x: stored,
        };
        let (rms, square_parts) = options::rms(&recipe.projection, &shape);
        let (pack, packed_words) = options::pack_weights(&recipe.projection, &shape).unzip();
        let project = options::projection(&recipe.projection, &shape);
        let finish = options::finish(&recipe.projection, recipe.output, recipe.scaled, &shape);
        let functions = Functions {
            squares: device.function(&rms, "squares")?,
            factor: device.function(&rms, "factor")?,
            pack: pack
                .as_ref()
                .map(|pack| device.function(pack, "pack_weights"))
                .transpose()?,
            project: device.function(&project, "project")?,
            finish: device.function(&finish, "finish")?,
        };
        let starts = ranges.iter().map(|range| range.start as i32);
        let bounds: Vec<i32> = starts.chain([depth as i32]).collect();
        let groups: Vec<i32> = shape.groups().iter().map(|&group| group as i32).collect();
        let weight = inputs.function.as_standard_layout();
        let size = tokens * outputs;
        let buffers = Buffers {
            weight: device.upload("hc_fn", weight.as_slice().unwrap_or_default())?,
            bounds: device.upload("the ranges of k", &bounds)?,
            groups: device.upload("the groups of k", &groups)?,
            packed: device.zeros("packed weights", packed_words.unwrap_or_default())?,
            squares: device.zeros("square sums", square_parts * tokens)?,
            rms: device.zeros("the RMS factor", tokens)?,
            partials: device.zeros("partial sums", ranges.len() * size)?,
            dot: device.zeros("dot", size)?,
            mixes: device.zeros("mixes", size)?,
        };
        Ok(Self {
            device,
            builds: Builds {
                rms,
                pack,
                project,
                finish,
            },
            functions,
            buffers,
            sizes: Sizes {
                tokens: tokens as i32,
                outputs: outputs as i32,
                depth: depth as i32,
                splits: ranges.len() as i32,
                square_parts: square_parts as i32,
                reciprocal: (1.0 / depth as f64) as f32,
                eps: inputs.norm_eps as f32,
            },
        })
    }

    /// Everything, in the recipe's order.
    pub fn run(&self, x: &Streams) -> Result<(), CudaError> {
        self.normalise(x)?;
        self.project(x)?;
        self.finish()
    }

    /// The RMS factor.
    fn normalise(&self, x: &Streams) -> Result<(), CudaError> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let function = &self.functions.squares;
        let grid = self.builds.rms.grid;
        let arguments = [
            x.argument(),
            Argument::Ints(&buffers.bounds),
            Argument::Floats(&buffers.squares),
            Argument::Int(&sizes.tokens),
            Argument::Int(&sizes.depth),
        ];
        self.device.launch(function, grid, "squares", &arguments)?;
        let grid = Grid {
            blocks: ((sizes.tokens as usize).div_ceil(ROW_THREADS), 1),
            threads: ROW_THREADS,
            shared: 0,
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

    /// The partial sums, from x and the fp32 weight.
    pub fn project(&self, x: &Streams) -> Result<(), CudaError> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let mut arguments = vec![x.argument()];
        match (&self.builds.pack, &self.functions.pack) {
            (Some(build), Some(pack)) => {
                let of_pack = [
                    Argument::Floats(&buffers.weight),
                    Argument::Ints(&buffers.bounds),
                    Argument::Ints(&buffers.groups),
                    Argument::Words(&buffers.packed),
                    Argument::Int(&sizes.outputs),
                    Argument::Int(&sizes.depth),
                ];
                self.device
                    .launch(pack, build.grid, "pack_weights", &of_pack)?;
                arguments.extend([
                    Argument::Words(&buffers.packed),
                    Argument::Floats(&buffers.rms),
                    Argument::Ints(&buffers.bounds),
                    Argument::Ints(&buffers.groups),
                ]);
            }
            _ => arguments.extend([
                Argument::Floats(&buffers.weight),
                Argument::Floats(&buffers.rms),
                Argument::Ints(&buffers.bounds),
            ]),
        }
        arguments.extend([
            Argument::Floats(&buffers.partials),
            Argument::Int(&sizes.tokens),
            Argument::Int(&sizes.outputs),
            Argument::Int(&sizes.depth),
        ]);
        let grid = self.builds.project.grid;
        let function = &self.functions.project;
        self.device.launch(function, grid, "project", &arguments)
    }

    /// Their sum, dot and mixes.
    pub fn finish(&self) -> Result<(), CudaError> {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        self.device.launch(
            &self.functions.finish,
            self.builds.finish.grid,
            "finish",
            &[
                Argument::Floats(&buffers.partials),
                Argument::Floats(&buffers.rms),
                Argument::Floats(&buffers.dot),
                Argument::Floats(&buffers.mixes),
                Argument::Int(&sizes.tokens),
                Argument::Int(&sizes.outputs),
                Argument::Int(&sizes.splits),
            ],
        )
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
