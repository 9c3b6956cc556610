//! The indexer's logits and the exact selection on a device.
//!
//! Codes and scales are packed here, as the head of `index_logits.cu` wants them; nothing is rounded on the way. What
//! comes back of a selection is a set, which is ranked here.

use std::cmp::Reverse;

use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use super::{
    device::{Argument, Device},
    error::CudaError,
    options::{self, Dot, IndexShape},
    stream::Buffer,
};
use crate::{
    backend::BackendError,
    format::{e2m1, ue8m0},
    ranking::Score,
    recipe::indexer::{IndexRecipe, Operands, QueryOperands},
    tensor_core::Operand,
};

/// The logits [Q, N].
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub fn logits(
    device: &Device,
    recipe: &IndexRecipe,
    queries: &QueryOperands,
    keys: &Operands,
) -> Result<Array2<f32>, BackendError> {
    let dot = Dot::of(recipe, device.arch)?;
    let shape = IndexShape::of(recipe, queries.weights.dim(), keys.values.dim());
    let dim = (shape.queries, shape.keys);
    if dim.0 == 0 || dim.1 == 0 {
        return Ok(Array2::zeros(dim));
    }
    let build = options::index_logits(recipe, device.arch, dot, shape);
    let function = device.function(&build, "index_logits")?;
    let side = |what, operands| Side::upload(device, what, recipe, dot, shape, operands);
    let (q, k) = (side("q", &queries.q)?, side("k", keys)?);
    let weights = queries.weights.as_standard_layout();
    let weights = device.upload("the head weights", weights.as_slice().unwrap_or_default())?;
    let key_scales = match keys.row_scales(recipe.unit) {
        Some(scales) => device.upload("the keys' scales", &scales.to_vec())?,
        None => device.zeros("the keys' scales", 1)?,
    };
    let logits = device.zeros::<f32>("the logits", shape.queries * shape.keys)?;
    let (count, dot_scale) = (shape.keys as i32, recipe.dot_scale(shape.width));
    let dot_scale = dot_scale.unwrap_or(1.0);
    let arguments = [
        Argument::Words(&q.codes),
        Argument::Words(&k.codes),
        Argument::Words(&q.scales),
        Argument::Words(&k.scales),
        Argument::Floats(&weights),
        Argument::Floats(&key_scales),
        Argument::Floats(&logits),
        Argument::Int(&count),
        Argument::Float(&dot_scale),
    ];
    device.launch(&function, build.grid, "index_logits", &arguments)?;
    let values = device.download("the logits", &logits)?;
    Ok(Array2::from_shape_vec(dim, values).unwrap_or_default())
}

/// q or k on the device.
struct Side {
    codes: Buffer<u32>,
    /// The scales that are part of the dot; one word where there are none.
    scales: Buffer<u32>,
}

impl Side {
    fn upload(
        device: &Device,
        what: &str,
        recipe: &IndexRecipe,
        dot: Dot,
        shape: IndexShape,
        operands: &Operands,
    ) -> Result<Self, CudaError> {
        let scales = match (dot, operands.block_scales(recipe.unit)) {
            (Dot::MmaMxf4, Some(scales)) => unit_scales(scales, dot.steps(shape.width)),
            (_, Some(scales)) => scales.iter().map(|scale| scale.to_bits()).collect(),
            (_, None) => vec![0],
        };
        Ok(Self {
            codes: device.upload(what, &codes(operands.values.view(), dot))?,
            scales: device.upload(what, &scales)?,
        })
    }
}

/// The codes of rows [rows, W] as words, the first in the low bits, each row with zeros behind it.
fn codes(values: ArrayView2<'_, f32>, dot: Dot) -> Vec<u32> {
    let (rows, width) = values.dim();
    let (bits, row_words) = (dot.code_bits(), dot.row_words(width));
    let code = |x: f32| match dot {
        Dot::Fma => x.to_bits(),
        Dot::Mma(operand) => operand.to_code(x),
        Dot::WgmmaE4m3 => Operand::E4m3.to_code(x),
        Dot::MmaMxf4 => u32::from(e2m1::to_bits(x)),
    };
    let values = values.as_standard_layout();
    let values = values.as_slice().unwrap_or_default();
    let mut words = vec![0; rows * row_words];
    words
        .par_chunks_mut(row_words.max(1))
        .zip(values.par_chunks(width.max(1)))
        .for_each(|(words, row)| {
            for (word, values) in words.iter_mut().zip(row.chunks(32 / bits)) {
                *word = values
                    .iter()
                    .rev()
                    .fold(0, |word: u32, &x| word.unbounded_shl(bits as u32) | code(x));
            }
        });
    words
}

/// The codes of power-of-two scales [rows, blocks of 32], two to an instruction's word; 1 behind the last.
fn unit_scales(scales: ArrayView2<'_, f32>, steps: usize) -> Vec<u32> {
    let (rows, blocks) = scales.dim();
    let code = |row: usize, block: usize| match block < blocks {
        true => u32::from(ue8m0::ceil(scales[[row, block]])),
        false => u32::from(ue8m0::ceil(1.0)),
    };
    let word = |row, step: usize| code(row, 2 * step) | code(row, 2 * step + 1) << 8;
    (0..rows)
        .flat_map(|row| (0..steps).map(move |step| word(row, step)))
        .collect()
}

/// The `k` largest of each row's first `visible` logits.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub fn top_k(
    device: &Device,
    logits: ArrayView2<'_, f32>,
    visible: &[usize],
    k: usize,
) -> Result<Vec<Vec<u32>>, CudaError> {
    let (rows, keys) = logits.dim();
    let visible: Vec<usize> = visible.iter().map(|&count| count.min(keys)).collect();
    let k = k.min(keys);
    if rows == 0 || k == 0 {
        return Ok(vec![Vec::new(); rows]);
    }
    let build = options::top_k(rows);
    let function = device.function(&build, "top_k")?;
    let logits = logits.as_standard_layout();
    let values = logits.as_slice().unwrap_or_default();
    let counts: Vec<u32> = visible.iter().map(|&count| count as u32).collect();
    let on_device = device.upload("the logits", values)?;
    let counts = device.upload("the numbers of visible keys", &counts)?;
    let selected = device.zeros::<u32>("the selection", rows * k)?;
    let (width, depth) = (keys as i32, k as i32);
    let arguments = [
        Argument::Floats(&on_device),
        Argument::Words(&counts),
        Argument::Words(&selected),
        Argument::Int(&width),
        Argument::Int(&depth),
    ];
    device.launch(&function, build.grid, "top_k", &arguments)?;
    let selected = device.download("the selection", &selected)?;
    let of_rows = selected.chunks(k).zip(values.chunks(keys)).zip(&visible);
    Ok(of_rows
        .map(|((selected, scores), &visible)| ranked(&selected[..k.min(visible)], scores))
        .collect())
}

/// Keys, which come in ascending order, by descending score.
fn ranked(selected: &[u32], scores: &[f32]) -> Vec<u32> {
    let mut order = selected.to_vec();
    // Stable: equal scores stay ascending. A key that a user's kernel made up ranks last.
    order.sort_by_key(|&key| Reverse(scores.get(key as usize).map(|score| score.rank())));
    order
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
        random::{Key, Purpose, Stream},
        recipe::indexer::{Selector, catalogue::builtin},
    };

    #[test]
    fn codes_lie_one_after_another_with_zeros_behind() {
        let rows = ndarray::array![[1.0, -2.0, 0.5], [0.0, 1.5, 6.0]];
        let of = |dot| codes(rows.view(), dot);
        assert_eq!(
            of(Dot::Fma)[..4],
            [0x3f80_0000, 0xc000_0000, 0x3f00_0000, 0]
        );
        let bf16 = of(Dot::Mma(Operand::Bf16));
        assert_eq!(bf16[..3], [0xc000_3f80, 0x3f00, 0]);
        assert_eq!(bf16[8..10], [0x3fc0_0000, 0x40c0]);
        let e4m3 = of(Dot::WgmmaE4m3);
        assert_eq!((e4m3[0], e4m3[8]), (0x0030_c038, 0x004c_3c00));
        let e2m1 = of(Dot::MmaMxf4);
        assert_eq!((e2m1.len(), e2m1[0], e2m1[8]), (16, 0x1c2, 0x730));
    }

    #[test]
    fn scales_of_the_unit_go_two_to_a_word() {
        let scales = ndarray::array![[1.0, 2.0, 0.5], [f32::NAN, 4.0, 1.0]];
        let words = unit_scales(scales.view(), 2);
        assert_eq!(words, [0x807f, 0x7f7e, 0x81ff, 0x7f7f]);
    }

    #[test]
    fn a_selection_is_ranked_with_ties_ascending() {
        let scores = [1.0, f32::NAN, 2.0, 1.0, -0.0, 0.0];
        assert_eq!(ranked(&[0, 1, 2, 3, 4, 5], &scores), [2, 0, 3, 4, 5, 1]);
    }

    /// Logits and selections of every recipe, a few keys and heads that fill no tile.
    #[test]
    fn the_device_gives_the_emulators_bits() {
        let Ok(device) = Device::open(0, pinned_nvrtc().as_deref(), Sources::default()) else {
            return skipped("no device");
        };
        let emulate = Emulate::new(device.arch, Level::detect());
        let mut random = Stream::new(Key {
            seed: 9,
            purpose: Purpose::Activations,
            layer: 0,
            token: 0,
        });
        let mut normals = |rows| Array2::from_shape_fn((rows, 128), |_| random.normal() as f32);
        let (queries, heads, count) = (3, 13, 77);
        let (q, k) = (normals(queries * heads), normals(count));
        let weights = normals(queries).slice_move(ndarray::s![.., ..heads]);
        for recipe in builtin() {
            let queries = QueryOperands {
                q: recipe.query.format.quantise(q.clone()),
                weights: weights.clone(),
            };
            let keys = recipe.key.format.quantise(k.clone());
            let got = match logits(&device, &recipe, &queries, &keys) {
                Ok(got) => got,
                Err(
                    lacking @ (BackendError::NoKernel { .. } | BackendError::Unsupported { .. }),
                ) => {
                    skipped(&lacking.to_string());
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let expected = emulate.index_logits(&recipe, &queries, &keys).unwrap();
            assert_eq!(
                got.mapv(f32::to_bits),
                expected.mapv(f32::to_bits),
                "{}",
                recipe.name
            );
            let visible = [0, 5, count];
            for k in [1, 6, 100] {
                let selected = top_k(&device, got.view(), &visible, k).unwrap();
                let expected = emulate.top_k(Selector::Exact, got.view(), &visible, k);
                assert_eq!(selected, expected.unwrap(), "{}, k {k}", recipe.name);
            }
        }
    }
}
