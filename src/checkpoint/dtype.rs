//! How a tensor is stored, and its values as f32.
//!
//! Every type here is exactly representable in f32, so that decoding loses nothing. FP8 tensors
//! are decoded as codes: the block scale is another tensor.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{Format, e4m3, ue8m0};

/// A stored element type that the tool decodes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum StoredType {
    /// IEEE binary32.
    #[serde(rename = "F32")]
    F32,
    /// bfloat16.
    #[serde(rename = "BF16")]
    Bf16,
    /// IEEE binary16.
    #[serde(rename = "F16")]
    F16,
    /// FP8 with 4 exponent and 3 fraction bits, NaN but no infinity.
    #[serde(rename = "F8_E4M3")]
    F8E4M3,
    /// A power of two, 2^(code − 127); code 255 is NaN.
    #[serde(rename = "F8_E8M0")]
    F8E8M0,
}

impl StoredType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::F16, Self::F8E4M3, Self::F8E8M0];

    /// The spelling of a safetensors header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E8M0 => "F8_E8M0",
        }
    }

    /// The type a safetensors header names, if the tool decodes it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stored| stored.name() == name)
    }

    /// A format that holds all its values.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            // The latter's are powers of two.
            Self::F32 | Self::F8E8M0 => Format::F32,
            Self::Bf16 => Format::Bf16,
            Self::F16 => Format::F16,
            Self::F8E4M3 => Format::E4m3,
        }
    }

    /// Bytes per element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::F8E4M3 | Self::F8E8M0 => 1,
        }
    }

    /// Whether hyper-connection weights and activations may be stored so.
    #[must_use]
    pub fn is_plain_float(self) -> bool {
        matches!(self, Self::F32 | Self::Bf16 | Self::F16)
    }

    /// Appends the values of `bytes`, little-endian and of any alignment, to `values`.
    pub(crate) fn decode_into(self, bytes: &[u8], values: &mut Vec<f32>) {
        let word = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
        match self {
            Self::F32 => values.extend(
                bytes
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            ),
            Self::Bf16 => {
                values.extend(
                    bytes
                        .chunks_exact(2)
                        .map(|b| bf16::from_bits(word(b)).to_f32()),
                );
            }
            Self::F16 => {
                values.extend(
                    bytes
                        .chunks_exact(2)
                        .map(|b| f16::from_bits(word(b)).to_f32()),
                );
            }
            Self::F8E4M3 => values.extend(bytes.iter().map(|&code| e4m3::from_bits(code))),
            Self::F8E8M0 => values.extend(bytes.iter().map(|&code| ue8m0::from_bits(code))),
        }
    }
}

impl std::fmt::Display for StoredType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stored: StoredType, bytes: &[u8]) -> Vec<f32> {
        let mut values = Vec::new();
        stored.decode_into(bytes, &mut values);
        values
    }

    #[test]
    fn known_codes() {
        assert_eq!(
            decoded(
                StoredType::F8E4M3,
                &[0x00, 0x01, 0x08, 0x38, 0x7e, 0xfe, 0x80]
            ),
            [0.0, 0.001_953_125, 0.015_625, 1.0, 448.0, -448.0, 0.0]
        );
        assert!(
            decoded(StoredType::F8E4M3, &[0x7f, 0xff])
                .iter()
                .all(|v| v.is_nan())
        );
        assert_eq!(
            decoded(StoredType::F8E8M0, &[127, 128, 1, 254])[..2],
            [1.0, 2.0]
        );
        assert_eq!(decoded(StoredType::F8E8M0, &[1])[0], f32::MIN_POSITIVE);
        assert_eq!(
            decoded(StoredType::F8E8M0, &[0])[0],
            f32::MIN_POSITIVE / 2.0
        );
        assert!(decoded(StoredType::F8E8M0, &[255])[0].is_nan());
        assert_eq!(decoded(StoredType::Bf16, &[0x80, 0x3f]), [1.0]);
        assert_eq!(decoded(StoredType::F16, &[0x00, 0x3c]), [1.0]);
        assert_eq!(decoded(StoredType::F32, &1.5_f32.to_le_bytes()), [1.5]);
    }
}
