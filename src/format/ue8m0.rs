//! OCP E8M0: an unsigned power of two, 2^(byte − 127); byte 255 is NaN. The scale of block formats.

/// The code that stands for NaN.
pub const NAN_BITS: u8 = 0xff;

/// The value of a code, exactly: 2^(byte − 127). Code 0 is the subnormal 2⁻¹²⁷.
#[must_use]
pub const fn from_bits(bits: u8) -> f32 {
    match bits {
        0 => f32::from_bits(0x0040_0000),
        NAN_BITS => f32::from_bits(0x7fff_ffff),
        _ => f32::from_bits((bits as u32) << 23),
    }
}

/// The code of a value that is one of the format's; NaN is.
#[must_use]
pub const fn exact(x: f32) -> Option<u8> {
    if x.is_nan() {
        return Some(NAN_BITS);
    }
    let code = ceil(x);
    if code != NAN_BITS && from_bits(code).to_bits() == x.to_bits() {
        Some(code)
    } else {
        None
    }
}

/// The code of the smallest power of two not below `x`, as kernels compute it: from the exponent
/// bits, one more if any fraction bit is set.
///
/// The sign is ignored, as the kernels ignore it (a scale comes from an absolute maximum). Zero gives
/// code 0. What exceeds 2¹²⁷, infinity and NaN give NaN: no scale can hold them, and a block with such
/// a scale must not look like a block that was quantised.
#[must_use]
pub const fn ceil(x: f32) -> u8 {
    let bits = x.to_bits();
    let biased = ((bits >> 23) & 0xff) as u8;
    let carry = (bits & 0x007f_ffff != 0) as u8;
    // 2^-127 and 2^-126 are the only codes a subnormal can need; up to 2^-127 the lower one holds it.
    if biased == 0 {
        return (bits & 0x007f_ffff > 0x0040_0000) as u8;
    }
    biased.saturating_add(carry)
}

/// [`ceil`] as a value.
#[must_use]
pub const fn ceil_f32(x: f32) -> f32 {
    from_bits(ceil(x))
}
