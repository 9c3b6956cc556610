//! Unsigned E4M3: the magnitude of an E4M3 code, as a scale of block formats (NVFP4). The unit ignores
//! the sign bit; `7f` is NaN.

use super::e4m3;

/// The code that stands for NaN, the sign bit aside.
pub const NAN_BITS: u8 = e4m3::NAN_BITS;

/// The value of a code, exactly.
#[must_use]
pub const fn from_bits(bits: u8) -> f32 {
    e4m3::from_bits(bits & 0x7f)
}
