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
