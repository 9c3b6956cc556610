//! Gates, Sinkhorn, the layer input and the streams after the sublayer on a device.

use ndarray::{Array2, ArrayView2};

use super::{
    device::{Argument, Device},
    error::CudaError,
    mix::Streams,
    options::{self, Stored, StreamShape},
};
use crate::{
    backend::{RecombineInputs, Split, SplitInputs},
    recipe::{Epilogue, Recombine},
};

/// Gates and combination matrix.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub fn split_sinkhorn(
    device: &Device,
    epilogue: &Epilogue,
    inputs: &SplitInputs<'_>,
) -> Result<Split, CudaError> {
    let (tokens, hc) = (inputs.mixes.nrows(), inputs.hc);
    let build = options::split_sinkhorn(epilogue, hc, tokens);
    let function = device.function(&build, "split_sinkhorn")?;
    let mixes = inputs.mixes.as_standard_layout();
    let mixes = device.upload("mixes", mixes.as_slice().unwrap_or_default())?;
    let base = device.upload("hc_base", inputs.base)?;
    let scale = device.upload("hc_scale", &inputs.scale)?;
    let pre = device.zeros::<f32>("pre", tokens * hc)?;
    let post = device.zeros::<f32>("post", tokens * hc)?;
    let comb = device.zeros::<f32>("comb", tokens * hc * hc)?;
    let (count, iters, eps) = (tokens as i32, inputs.iters as i32, inputs.eps as f32);
    device.launch(
        &function,
        build.grid,
        "split_sinkhorn",
        &[
            Argument::Floats(&mixes),
            Argument::Floats(&base),
            Argument::Floats(&scale),
            Argument::Floats(&pre),
            Argument::Floats(&post),
            Argument::Floats(&comb),
            Argument::Int(&count),
            Argument::Int(&iters),
            Argument::Float(&eps),
        ],
    )?;
    let array = |what, values, width| -> Result<Array2<f32>, CudaError> {
        let values = device.download(what, values)?;
        Ok(Array2::from_shape_vec((tokens, width), values).unwrap_or_default())
    };
    Ok(Split {
        pre: array("pre", &pre, hc)?,
        post: array("post", &post, hc)?,
        comb: array("comb", &comb, hc * hc)?,
    })
}

/// The layer input [T, d].
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub fn collapse(
    device: &Device,
    epilogue: &Epilogue,
    pre: ArrayView2<'_, f32>,
    x: ArrayView2<'_, f32>,
    stored: Stored,
) -> Result<Array2<f32>, CudaError> {
    let (tokens, hc) = pre.dim();
    let width = x.ncols() / hc.max(1);
    let build = options::collapse(epilogue, hc, tokens, width, stored);
    let function = device.function(&build, "collapse")?;
    let (pre, x) = (pre.as_standard_layout(), x.as_standard_layout());
    let streams = Streams::upload(device, x.as_slice().unwrap_or_default(), stored)?;
    let pre = device.upload("pre", pre.as_slice().unwrap_or_default())?;
    let y = device.zeros::<f32>("y", tokens * width)?;
    let (count, columns) = (tokens as i32, width as i32);
    let arguments = [
        streams.argument(),
        Argument::Floats(&pre),
        Argument::Floats(&y),
        Argument::Int(&count),
        Argument::Int(&columns),
    ];
    device.launch(&function, build.grid, "collapse", &arguments)?;
    let values = device.download("y", &y)?;
    Ok(Array2::from_shape_vec((tokens, width), values).unwrap_or_default())
}

/// The streams after the sublayer [T, hc·d].
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub fn recombine(
    device: &Device,
    recombine: &Recombine,
    inputs: &RecombineInputs<'_>,
) -> Result<Array2<f32>, CudaError> {
    let (tokens, width) = inputs.f.dim();
    let shape = StreamShape {
        tokens,
        hc: inputs.post.ncols(),
        width,
        x: Stored::for_format(inputs.x_exact_in),
        f: Stored::for_format(inputs.f_exact_in),
    };
    let build = options::recombine(recombine, shape);
    let function = device.function(&build, "recombine")?;
    let (x, f) = (inputs.x.as_standard_layout(), inputs.f.as_standard_layout());
    let post = inputs.post.as_standard_layout();
    let comb = inputs.comb.as_standard_layout();
    let x = Streams::upload(device, x.as_slice().unwrap_or_default(), shape.x)?;
    let f = Streams::upload(device, f.as_slice().unwrap_or_default(), shape.f)?;
    let post = device.upload("post", post.as_slice().unwrap_or_default())?;
    let comb = device.upload("comb", comb.as_slice().unwrap_or_default())?;
    let next = device.zeros::<f32>("the streams", inputs.x.len())?;
    let (count, columns) = (tokens as i32, width as i32);
    let arguments = [
        x.argument(),
        f.argument(),
        Argument::Floats(&post),
        Argument::Floats(&comb),
        Argument::Floats(&next),
        Argument::Int(&count),
        Argument::Int(&columns),
    ];
    device.launch(&function, build.grid, "recombine", &arguments)?;
    let values = device.download("the streams", &next)?;
    Ok(Array2::from_shape_vec(inputs.x.dim(), values).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use ulpdrift_reference::simd::Level;

    use super::*;
    use crate::{
        backend::{
            Backend,
            cuda::{
                source::Sources,
                testing::{pinned_nvrtc, skipped},
            },
            emulate::Emulate,
        },
        format::{Format, Rounding},
        random::{Key, Purpose, Stream},
    };

    const TOKENS: usize = 5;
    const HC: usize = 4;
    /// More than a block has threads, and no multiple of them.
    const WIDTH: usize = 333;

    fn normals(item: u64, columns: usize) -> Array2<f32> {
        let mut stream = Stream::new(Key {
            seed: 8,
            purpose: Purpose::Activations,
            layer: 0,
            token: item,
        });
        Array2::from_shape_fn((TOKENS, columns), |_| stream.normal() as f32)
    }

    /// Values as they are stored, some of them not finite, subnormal or the largest.
    fn stored(item: u64, columns: usize, format: Format) -> Array2<f32> {
        let mut values = normals(item, columns);
        let hostile = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40];
        for (value, hostile) in values
            .row_mut(1)
            .iter_mut()
            .step_by(7)
            .zip(hostile.iter().cycle())
        {
            *value = *hostile;
        }
        values.mapv(|value| format.round_f32(value, Rounding::NearestEven))
    }

    #[test]
    fn the_device_recombines_with_the_emulators_bits() {
        let Ok(device) = Device::open(0, pinned_nvrtc().as_deref(), Sources::default()) else {
            return skipped("no device");
        };
        let emulate = Emulate::new(device.arch, Level::detect());
        let (post, comb) = (normals(2, HC), normals(3, HC * HC));
        for x_exact_in in [Format::Bf16, Format::F32] {
            for f_exact_in in [Format::Bf16, Format::F32] {
                let (x, f) = (
                    stored(0, HC * WIDTH, x_exact_in),
                    stored(1, WIDTH, f_exact_in),
                );
                let inputs = RecombineInputs {
                    x: x.view(),
                    x_exact_in,
                    f: f.view(),
                    f_exact_in,
                    post: post.view(),
                    comb: comb.view(),
                };
                for variant in [
                    Recombine::FP32,
                    Recombine::MUL_ADD,
                    Recombine::STREAM_FIRST,
                    Recombine::TRANSFORMERS,
                ] {
                    let got = recombine(&device, &variant, &inputs).unwrap();
                    let expected = emulate.recombine(&variant, &inputs).unwrap();
                    // Every NaN as one.
                    let bits = |v: f32| if v.is_nan() { u32::MAX } else { v.to_bits() };
                    assert_eq!(got.mapv(bits), expected.mapv(bits), "{variant:?}");
                }
            }
        }
    }
}
