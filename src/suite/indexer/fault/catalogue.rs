//! The known bugs of the indexer: what each is, and where it was.

use super::IndexFault;

/// A bug in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What users call it.
    pub name: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// Where it was seen.
    pub origin: &'static str,
}

const fn entry(name: &'static str, what: &'static str, origin: &'static str) -> Entry {
    Entry { name, what, origin }
}

impl IndexFault {
    /// All, in the order they are listed; the two that the diagnosis knows nothing of last.
    pub const ALL: [Self; 15] = [
        Self::NoRelu,
        Self::HadamardOneSide,
        Self::KeysShifted,
        Self::PagesSwapped,
        Self::StaleLength,
        Self::MaskFilledWithZero,
        Self::ScalesMisread,
        Self::RopeWrongHalf,
        Self::RopePositionI,
        Self::WindowOverlapDropped,
        Self::QScaleOmitted,
        Self::NanSwallowed,
        Self::TieOverflow,
        Self::HeadsPermuted,
        Self::ChannelSignFlipped,
    ];

    /// The bug in words.
    #[must_use]
    pub const fn entry(self) -> Entry {
        match self {
            Self::NoRelu => entry(
                "no-relu",
                "relu is left out of the sum over the heads",
                "SGLang's sm_80 path (pull request 33271), transformers (44398)",
            ),
            Self::HadamardOneSide => entry(
                "hadamard-one-side",
                "one of q and k is rotated, the other is not; which one, by seed",
                "ROCm ATOM (issue 1507): needles beyond 18,000 tokens missed",
            ),
            Self::KeysShifted => entry(
                "keys-shifted",
                "slot i holds another key than i, 1 to 8 keys away",
                "off-by-one offsets into paged key caches",
            ),
            Self::PagesSwapped => entry(
                "pages-swapped",
                "two pages of 64 keys are exchanged",
                "stale block tables of paged key caches",
            ),
            Self::StaleLength => entry(
                "stale-length",
                "the newest keys are missing, from one to those of a chunk of 8192 tokens",
                "sequence lengths read before the last chunk was appended",
            ),
            Self::MaskFilledWithZero => entry(
                "mask-filled-with-zero",
                "slots out of sight hold 0, which beats a negative logit",
                "SGLang's generic torch fallback and its sm_120 Triton kernel",
            ),
            Self::ScalesMisread => entry(
                "scales-misread",
                "fp32 scales of the keys are read as powers of two, the codes being as they were",
                "vLLM (pull requests 53680, 57218), transformers (issue 47030)",
            ),
            Self::RopeWrongHalf => entry(
                "rope-wrong-half",
                "rope turns the first 64 channels instead of the last",
                "ports of the V3.2 indexer, which turns the first",
            ),
            Self::RopePositionI => entry(
                "rope-position-i",
                "key i is turned as position i instead of 4i",
                "ports that count keys where the model counts tokens",
            ),
            Self::WindowOverlapDropped => entry(
                "window-overlap-dropped",
                "a key is made of its own four tokens, without the four before",
                "ports of the main compressor that leave out its overlap",
            ),
            Self::QScaleOmitted => entry(
                "q-scale-omitted",
                "the head weights lack the query's scale",
                "callers of a kernel that expects it folded in",
            ),
            Self::NanSwallowed => entry(
                "nan-swallowed",
                "a NaN code in a true top key, which max(s, 0) turns into a logit of 0",
                "fnuz and OCP codes confused (vllm issue 52109) on kernels that take max",
            ),
            Self::TieOverflow => entry(
                "tie-overflow",
                "more keys tie at the cut than the selector's buffer holds; slots stay unwritten",
                "SGLang's JIT top-k v2 (pull requests 30512, 30645)",
            ),
            Self::HeadsPermuted => entry(
                "heads-permuted",
                "head weights meet another head's dots; the diagnosis knows nothing of it",
                "made up, to show a cause that stays unknown",
            ),
            Self::ChannelSignFlipped => entry(
                "channel-sign-flipped",
                "one channel of every key has the wrong sign; the diagnosis knows nothing of it",
                "made up, to show a cause that stays unknown",
            ),
        }
    }

    /// What users call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Whether the diagnosis has a hypothesis for it.
    #[must_use]
    pub const fn is_diagnosed(self) -> bool {
        !matches!(self, Self::HeadsPermuted | Self::ChannelSignFlipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_bug_is_listed_in_its_own_place() {
        for (index, fault) in IndexFault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index, "the number is part of its stream");
            let is_new = IndexFault::ALL[..index]
                .iter()
                .all(|known| known.name() != fault.name());
            assert!(is_new, "{}", fault.name());
        }
    }
}
