//! What a known bug does, stage by stage.

use ndarray::{Array2, Axis};

use super::{Fault, Misread, PAGE, Side};
use crate::{
    backend::emulate::indexer::{Geometry, RopeHalf},
    format::ue8m0,
    ranking::Ranking,
    recipe::indexer::{
        DotUnit, Fill, IndexRecipe, Operands, QueryOperands, Reduce, Reduction, Relu,
    },
    suite::indexer::asked::Asked,
    tensor_core::Arch,
};

impl Fault {
    /// What it changes of the recipe upstream of the operands: the rotation.
    pub fn rotate(self, recipe: &mut IndexRecipe) {
        match self {
            Self::HadamardOneSide(Side::Query) => recipe.query.hadamard ^= true,
            Self::HadamardOneSide(Side::Key) => recipe.key.hadamard ^= true,
            _ => {}
        }
    }

    /// Where rope turns, and which tokens a key is made of.
    #[must_use]
    pub fn geometry(self) -> Geometry {
        let right = Geometry::default();
        match self {
            Self::RopeWrongHalf => Geometry {
                rope_half: RopeHalf::First,
                ..right
            },
            Self::RopePositionI => Geometry {
                rope_stride: 1,
                ..right
            },
            Self::WindowOverlapDropped => Geometry {
                overlap: false,
                ..right
            },
            _ => right,
        }
    }

    /// What it does to q, the head weights and k.
    pub fn spoil_operands(
        self,
        unit: DotUnit,
        asked: &Asked,
        queries: &mut QueryOperands,
        keys: &mut Operands,
    ) {
        match self {
            Self::KeysShifted(_) | Self::PagesSwapped(_) => *keys = self.moved(keys),
            Self::ScalesMisread(misread) => {
                let scales = keys.scales.iter_mut();
                scales.for_each(|scales| scales.mapv_inplace(|scale| misread.of(scale)));
            }
            Self::QScaleOmitted => {
                if let Some(scales) = queries.q.row_scales(unit) {
                    for (weight, scale) in queries.weights.iter_mut().zip(scales) {
                        *weight /= scale;
                    }
                }
            }
            Self::NanSwallowed { rank, channel } => {
                for (row, &visible) in asked.logits.rows().into_iter().zip(asked.visible()) {
                    let row = row.to_slice().unwrap_or_default();
                    let ranking = Ranking::new(&row[..visible], rank);
                    if let Some(&key) = ranking.top(rank).last() {
                        keys.values[[key as usize, channel]] = f32::NAN;
                    }
                }
            }
            Self::HeadsPermuted(by) => {
                for mut weights in queries.weights.rows_mut() {
                    let mut permuted = weights.to_vec();
                    permuted.rotate_left(by);
                    weights.assign(&ndarray::aview1(&permuted));
                }
            }
            Self::ChannelSignFlipped(channel) => {
                let mut channel = keys.values.column_mut(channel);
                channel.mapv_inplace(|value| -value);
            }
            _ => {}
        }
    }

    /// What it changes of the recipe downstream of the operands: relu and the slots out of sight.
    pub fn spoil_steps(self, recipe: &mut IndexRecipe, arch: Arch, keys: &Operands) {
        let relu = match self {
            Self::NoRelu => Relu::Absent,
            Self::NanSwallowed { .. } => Relu::Max,
            Self::MaskFilledWithZero => {
                recipe.fill = Fill::Zero;
                return;
            }
            _ => return,
        };
        let scales = keys.row_scales(recipe.unit).is_some();
        let steps = recipe.reduction.on(arch, scales);
        recipe.reduction = Reduction::Steps(Reduce { relu, ..steps });
    }

    /// What it does to how many keys are in sight.
    pub fn lose(self, visible: &mut [usize]) {
        if let Self::StaleLength(missing) = self {
            for visible in visible {
                *visible = visible.saturating_sub(missing);
            }
        }
    }

    /// What it does to the selection of k, best first.
    ///
    /// A buffer holds half of k: 1024 of 2048, as published.
    pub fn spoil_selection(self, selected: &mut [Vec<i64>], logits: &Array2<f32>, k: usize) {
        let Self::TieOverflow(garbage) = self else {
            return;
        };
        let buffer = k / 2;
        for (selected, logits) in selected.iter_mut().zip(logits.rows()) {
            let logit = |key: &i64| usize::try_from(*key).map_or(f32::NAN, |key| logits[key]);
            let Some(cut) = selected.last().map(logit) else {
                continue;
            };
            let ties = logits.iter().filter(|&&logit| logit == cut).count();
            let winners = selected.iter().filter(|key| logit(key) > cut).count();
            if selected.len() == k && ties > buffer {
                let unwritten = selected.iter_mut().skip(winners + buffer);
                unwritten.for_each(|slot| *slot = garbage);
            }
        }
    }

    /// The keys where the bug looks for them; zeros where it finds none.
    fn moved(self, keys: &Operands) -> Operands {
        let count = keys.values.nrows();
        let sources: Vec<Option<usize>> = (0..count).map(|key| self.source(key, count)).collect();
        let moved = |rows: &Array2<f32>| {
            let mut moved = Array2::zeros(rows.dim());
            for (mut row, source) in moved.axis_iter_mut(Axis(0)).zip(&sources) {
                if let Some(source) = source {
                    row.assign(&rows.row(*source));
                }
            }
            moved
        };
        let scales = keys.scales.as_ref().map(|scales| {
            let mut scales = moved(scales);
            // A scale of zero is none.
            scales.mapv_inplace(|scale| if scale == 0.0 { 1.0 } else { scale });
            scales
        });
        Operands {
            values: moved(&keys.values),
            scales,
        }
    }

    /// The key that stands in a slot, of `count`.
    #[must_use]
    pub fn source(self, slot: usize, count: usize) -> Option<usize> {
        let source = match self {
            Self::KeysShifted(by) => slot.checked_add_signed(isize::try_from(by).ok()?)?,
            Self::PagesSwapped([one, other]) => {
                let (page, offset) = (slot / PAGE, slot % PAGE);
                match page {
                    _ if page == one => other * PAGE + offset,
                    _ if page == other => one * PAGE + offset,
                    _ => slot,
                }
            }
            _ => slot,
        };
        (source < count).then_some(source)
    }
}

impl Misread {
    /// What an fp32 scale becomes.
    fn of(self, scale: f32) -> f32 {
        match self {
            Self::Below => f32::from_bits(scale.to_bits() & 0x7f80_0000),
            Self::Above => ue8m0::ceil_f32(scale),
        }
    }
}
