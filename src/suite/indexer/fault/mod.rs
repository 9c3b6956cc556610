//! Known bugs of other implementations of the indexer, to be built into a candidate: what a bug looks like beside
//! rounding, and whether the diagnosis finds it.
//!
//! [`IndexFault`] is a bug by name ([`catalogue`]: what it is and where it was); [`Fault`] the same with its
//! parameters, drawn by seed and layer. It is data, and [`spoil`] applies it, at one place per stage:
//!
//! | stage | bugs |
//! |---|---|
//! | recipe | `no-relu`, `hadamard-one-side`, `mask-filled-with-zero`, the relu of `nan-swallowed` |
//! | geometry | `rope-wrong-half`, `rope-position-i`, `window-overlap-dropped` |
//! | operands | `keys-shifted`, `pages-swapped`, `scales-misread`, `q-scale-omitted`, `nan-swallowed`, and the two below |
//! | keys in sight | `stale-length` |
//! | selection | `tie-overflow` |
//!
//! What a candidate with a bug is held against is the recipe that it claims to be ([`claimed`]) on the right operands:
//! its recipe-exact logits, and the intervals around them.
//!
//! Ten of the bugs show on any input. Three need one of their own ([`trigger`]), which truth, recipe and candidate see
//! alike: without the bug the recipe is sound on it. `heads-permuted` and `channel-sign-flipped` are there because the
//! diagnosis knows nothing of them.

pub mod catalogue;
pub mod spoil;
#[cfg(test)]
mod tests;
pub mod trigger;

use std::fmt;

use crate::{
    random::{Key, Purpose, Stream},
    recipe::indexer::{IndexRecipe, catalogue as recipes},
};

/// Keys of a page of the key cache.
pub const PAGE: usize = 64;
/// The furthest that keys are shifted.
pub const FURTHEST: usize = 8;
/// Keys of a chunk of 8192 tokens, the most that a stale length lacks.
const CHUNK: usize = 2048;
/// The NaN swallowed is that of a key among so many true top keys.
const AMONG: usize = 8;
/// What a slot holds that nobody wrote: nothing, or the bits of an fp32 NaN.
const UNWRITTEN: [i64; 2] = [-1, 0x7fc0_0000];

/// A known bug by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFault {
    /// relu is left out.
    NoRelu,
    /// Only one of q and k is rotated.
    HadamardOneSide,
    /// Slot i of the key cache is read as key i + s.
    KeysShifted,
    /// Two pages of the key cache are exchanged.
    PagesSwapped,
    /// The newest keys are missing.
    StaleLength,
    /// Slots out of sight hold 0 and are selected from.
    MaskFilledWithZero,
    /// The keys' fp32 scales are read as powers of two.
    ScalesMisread,
    /// Rope turns the first half of the channels.
    RopeWrongHalf,
    /// Key i is turned as position i.
    RopePositionI,
    /// A key's window does not reach back.
    WindowOverlapDropped,
    /// The head weights lack the query's scale.
    QScaleOmitted,
    /// A NaN code in a top key, hidden by max.
    NanSwallowed,
    /// The selector's buffer for ties is too small.
    TieOverflow,
    /// Head weights meet another head's dots.
    HeadsPermuted,
    /// One channel of k has the wrong sign.
    ChannelSignFlipped,
}

/// Which side of the dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// q.
    Query,
    /// k.
    Key,
}

/// What becomes of an fp32 scale that is read as a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misread {
    /// Its exponent byte alone: the power of two at or below it.
    Below,
    /// Rounded up to a power of two, the codes left as they are.
    Above,
}

/// A known bug with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// [`IndexFault::NoRelu`].
    NoRelu,
    /// [`IndexFault::HadamardOneSide`]: the side that is treated unlike the recipe.
    HadamardOneSide(Side),
    /// [`IndexFault::KeysShifted`]: slot i holds key i + this; 0 where there is none.
    KeysShifted(i64),
    /// [`IndexFault::PagesSwapped`].
    PagesSwapped([usize; 2]),
    /// [`IndexFault::StaleLength`]: how many keys.
    StaleLength(usize),
    /// [`IndexFault::MaskFilledWithZero`].
    MaskFilledWithZero,
    /// [`IndexFault::ScalesMisread`].
    ScalesMisread(Misread),
    /// [`IndexFault::RopeWrongHalf`].
    RopeWrongHalf,
    /// [`IndexFault::RopePositionI`].
    RopePositionI,
    /// [`IndexFault::WindowOverlapDropped`].
    WindowOverlapDropped,
    /// [`IndexFault::QScaleOmitted`].
    QScaleOmitted,
    /// [`IndexFault::NanSwallowed`]: the rank of the key, from 1, by each query's true logits, and the channel.
    NanSwallowed {
        /// Rank.
        rank: usize,
        /// Channel.
        channel: usize,
    },
    /// [`IndexFault::TieOverflow`]: what an unwritten slot holds.
    TieOverflow(i64),
    /// [`IndexFault::HeadsPermuted`]: head h has the weight of head h + this.
    HeadsPermuted(usize),
    /// [`IndexFault::ChannelSignFlipped`].
    ChannelSignFlipped(usize),
}

/// What parameters are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Keys of the context.
    pub keys: usize,
    /// Index heads.
    pub heads: usize,
    /// Channels of a head.
    pub width: usize,
}

/// The recipe that a candidate with a bug claims to be unless another is named: the most widely run one with everything that the bugs are of,
/// scales apart, a rotation and relu.
#[must_use]
pub fn claimed() -> IndexRecipe {
    let mut all = recipes::builtin().into_iter();
    let own = all.find(|recipe| recipe.name == "fp8-f32scale");
    own.unwrap_or_else(recipes::fp32)
}

impl IndexFault {
    /// The bug with parameters that seed and layer decide.
    ///
    /// # Errors
    /// Why so few keys or heads cannot have it.
    pub fn draw(self, seed: u64, layer: u32, size: Size) -> Result<Fault, &'static str> {
        let mut stream = Stream::new(Key {
            seed,
            purpose: Purpose::Fault,
            layer,
            token: self as u64,
        });
        Ok(match self {
            Self::NoRelu => Fault::NoRelu,
            Self::HadamardOneSide => Fault::HadamardOneSide(match stream.below(2) {
                0 => Side::Query,
                _ => Side::Key,
            }),
            Self::KeysShifted => {
                let by = 1 + stream.below(FURTHEST) as i64;
                Fault::KeysShifted(if stream.below(2) == 0 { by } else { -by })
            }
            Self::PagesSwapped => {
                let pages = size.keys / PAGE;
                if pages < 2 {
                    return Err("the context has fewer than two pages of 64 keys");
                }
                let first = stream.below(pages);
                let second = (first + 1 + stream.below(pages - 1)) % pages;
                Fault::PagesSwapped([first.min(second), first.max(second)])
            }
            Self::StaleLength => {
                let most = CHUNK.min(size.keys / 2).max(1);
                // Every order of magnitude is as likely as any other.
                let missing = libm::exp(stream.unit() * libm::log((most + 1) as f64));
                Fault::StaleLength((missing as usize).clamp(1, most))
            }
            Self::MaskFilledWithZero => Fault::MaskFilledWithZero,
            Self::ScalesMisread => Fault::ScalesMisread(match stream.below(2) {
                0 => Misread::Below,
                _ => Misread::Above,
            }),
            Self::RopeWrongHalf => Fault::RopeWrongHalf,
            Self::RopePositionI => Fault::RopePositionI,
            Self::WindowOverlapDropped => Fault::WindowOverlapDropped,
            Self::QScaleOmitted => Fault::QScaleOmitted,
            Self::NanSwallowed => Fault::NanSwallowed {
                rank: 1 + stream.below(AMONG),
                channel: stream.below(size.width),
            },
            Self::TieOverflow => Fault::TieOverflow(UNWRITTEN[stream.below(UNWRITTEN.len())]),
            Self::HeadsPermuted if size.heads < 2 => return Err("there is one index head"),
            Self::HeadsPermuted => Fault::HeadsPermuted(1 + stream.below(size.heads - 1)),
            Self::ChannelSignFlipped => Fault::ChannelSignFlipped(stream.below(size.width)),
        })
    }
}

impl Fault {
    /// Its name.
    #[must_use]
    pub fn kind(self) -> IndexFault {
        match self {
            Self::NoRelu => IndexFault::NoRelu,
            Self::HadamardOneSide(_) => IndexFault::HadamardOneSide,
            Self::KeysShifted(_) => IndexFault::KeysShifted,
            Self::PagesSwapped(_) => IndexFault::PagesSwapped,
            Self::StaleLength(_) => IndexFault::StaleLength,
            Self::MaskFilledWithZero => IndexFault::MaskFilledWithZero,
            Self::ScalesMisread(_) => IndexFault::ScalesMisread,
            Self::RopeWrongHalf => IndexFault::RopeWrongHalf,
            Self::RopePositionI => IndexFault::RopePositionI,
            Self::WindowOverlapDropped => IndexFault::WindowOverlapDropped,
            Self::QScaleOmitted => IndexFault::QScaleOmitted,
            Self::NanSwallowed { .. } => IndexFault::NanSwallowed,
            Self::TieOverflow(_) => IndexFault::TieOverflow,
            Self::HeadsPermuted(_) => IndexFault::HeadsPermuted,
            Self::ChannelSignFlipped(_) => IndexFault::ChannelSignFlipped,
        }
    }
}

/// Its parameters in words; nothing where it has none.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HadamardOneSide(Side::Query) => f.write_str("q"),
            Self::HadamardOneSide(Side::Key) => f.write_str("k"),
            Self::KeysShifted(by) => write!(f, "by {by:+}"),
            Self::PagesSwapped([one, other]) => write!(f, "{one} and {other}"),
            Self::StaleLength(missing) => write!(f, "{missing} missing"),
            Self::ScalesMisread(Misread::Below) => f.write_str("power of two below"),
            Self::ScalesMisread(Misread::Above) => f.write_str("power of two above"),
            Self::NanSwallowed { rank, channel } => write!(f, "rank {rank}, channel {channel}"),
            Self::TieOverflow(garbage) => write!(f, "slots hold {garbage}"),
            Self::HeadsPermuted(by) => write!(f, "by {by}"),
            Self::ChannelSignFlipped(channel) => write!(f, "{channel}"),
            Self::NoRelu
            | Self::MaskFilledWithZero
            | Self::RopeWrongHalf
            | Self::RopePositionI
            | Self::WindowOverlapDropped
            | Self::QScaleOmitted => Ok(()),
        }
    }
}
