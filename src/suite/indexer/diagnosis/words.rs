//! A finding in one sentence that somebody can act on.

use std::fmt;

use super::{Cause, Finding, Scored};
use crate::{
    recipe::indexer::Selector,
    report::number::{plain, sci},
    suite::indexer::fault::{Fault, Misread, Side},
};

/// Pages that a sentence names.
const NAMED: usize = 4;

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity => f.write_str("the recipe as it is"),
            Self::Mask => f.write_str("slots out of sight that hold 0"),
            Self::Unwritten(1) => f.write_str("1 slot without a key"),
            Self::Unwritten(slots) => write!(f, "{slots} slots without a key"),
            Self::Truncated(1) => f.write_str("the newest key missing"),
            Self::Truncated(missing) => write!(f, "the newest {missing} keys missing"),
            Self::Shifted(by) => write!(f, "keys shifted by {by:+}"),
            Self::Pages(moved) => {
                let named = moved.iter().take(NAMED);
                let named: Vec<String> = named
                    .map(|(page, origin)| format!("{origin} in place of {page}"))
                    .collect();
                let more = moved.len().saturating_sub(NAMED);
                write!(f, "pages of 64 keys moved ({}", named.join(", "))?;
                match more {
                    0 => f.write_str(")"),
                    more => write!(f, " and {more} more)"),
                }
            }
            Self::ZeroKeys(1) => f.write_str("1 key that scores 0"),
            Self::ZeroKeys(keys) => write!(f, "{keys} keys that score 0"),
            Self::Step(step) => f.write_str(match step {
                Fault::NoRelu => "relu left out",
                Fault::HadamardOneSide(Side::Key) => "the rotation of k left out or added",
                Fault::HadamardOneSide(Side::Query) => "the rotation of q left out or added",
                Fault::QScaleOmitted => "head weights without q's scale",
                Fault::ScalesMisread(Misread::Below) => "key scales cut to a power of two",
                Fault::ScalesMisread(Misread::Above) => "key scales raised to a power of two",
                Fault::WindowOverlapDropped => "windows without the four tokens before their own",
                Fault::RopeWrongHalf => "rope on the first half of the channels",
                Fault::RopePositionI => "rope at position i instead of 4i",
                _ => "a step done wrongly",
            }),
            Self::Selector(Selector::Exact) => f.write_str("the exact selector"),
            Self::Selector(Selector::Bf16Ties) => f.write_str("another selector, bf16-ties"),
            Self::Selector(Selector::CoarseRadix { key_bits, buffer }) => write!(
                f,
                "another selector, coarse-radix of {key_bits} bits with a buffer of {buffer}"
            ),
            Self::QueryScale => f.write_str("logits off by a factor per query"),
            Self::Recipe(name) => write!(f, "another recipe, {name}"),
            Self::KeyScale => f.write_str("logits off by a factor per key"),
        }
    }
}

impl Cause {
    /// What to do about it.
    fn advice(&self) -> &'static str {
        match self {
            Self::Identity => "look at the kernel itself",
            Self::Mask => "fill them with -inf, or tell the selector how many keys each query sees",
            Self::Unwritten(_) => "check the selector's buffer for ties, and what fills its slots",
            Self::Truncated(_) => "check the sequence lengths that the kernel is given",
            Self::Shifted(_) => "check the offset into the key cache",
            Self::Pages(_) => "check the block table of the key cache",
            Self::ZeroKeys(_) => {
                "look for NaN codes in these keys, which relu by max(s, 0) turns into 0"
            }
            Self::Step(step) => match step {
                Fault::NoRelu => "put relu between the dots and the head weights",
                Fault::HadamardOneSide(_) => "rotate q and k alike",
                Fault::QScaleOmitted => "fold q's scale into the head weights",
                Fault::ScalesMisread(_) => {
                    "check which format and layout of key scales the kernel expects"
                }
                Fault::WindowOverlapDropped => "check the compressor's overlap",
                Fault::RopeWrongHalf => "turn the last 64 channels",
                Fault::RopePositionI => "turn key i as the position of its first token, 4i",
                _ => "check this step",
            },
            Self::Selector(_) => "use an exact selector, or name this one in the recipe",
            Self::QueryScale => "check the constants and scales in the head weights",
            Self::Recipe(_) => "this is no bug: name that recipe with --variants",
            Self::KeyScale => "check the scales of the keys, their format and their layout",
        }
    }
}

impl Scored {
    fn figures(&self) -> String {
        let recall = plain(self.recall, 3);
        match self.misfit {
            Some(misfit) => format!("recall {recall}, logits off by {}", sci(misfit, 2)),
            None => format!("recall {recall}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            best,
            next,
            is_explained,
            tried,
        } = self;
        if *is_explained {
            write!(
                f,
                "matches {} ({}; next best: {}, {}): {}",
                best.cause,
                best.figures(),
                next.cause,
                next.figures(),
                best.cause.advice()
            )
        } else {
            write!(
                f,
                "structural, cause unknown: of {tried} hypotheses {} is nearest ({}; next best: {}, {}), which explains \
                 too little",
                best.cause,
                best.figures(),
                next.cause,
                next.figures()
            )
        }
    }
}
