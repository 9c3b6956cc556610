"""Number formats on the bits: rounding from fp32, exponents as a multiplier sees them, ulps.

bf16: 7 fraction bits, fp32's exponents. TF32: 10 fraction bits, fp32's exponents. f16: 10 fraction
bits, exponents from -14. All keep subnormals. `conversions` of the specification: nearest-even adds
half an ulp less one plus the last kept bit, ties-away adds half an ulp, truncation masks.
e4m3: 3 fraction bits, exponents from -6, up to 448. e2m1: 1 fraction bit, exponents from 0, up to 6.
"""

import numpy as np

# Fraction bits and smallest normal exponent.
GRID = {"F32": (23, -126), "BF16": (7, -126), "F16": (10, -14), "TF32": (10, -126), "E4M3": (3, -6), "E2M1": (1, 0)}
# The largest value of the formats that saturate.
LARGEST = {"E4M3": 448.0, "E2M1": 6.0}
# A zero operand's exponent is never used: far below every floor, and two of them fit in 16 bits.
NO_EXPONENT = -10000


def _bits(x):
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def _nearest_even(x, drop):
    u = _bits(x)
    half = np.uint32((1 << (drop - 1)) - 1)
    rounded = (u + half + ((u >> np.uint32(drop)) & np.uint32(1))) >> np.uint32(drop) << np.uint32(drop)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def bf16(x):
    """fp32 to bf16, nearest, ties to even."""
    return _nearest_even(x, 16)


def stored(values, dtype):
    """f64 to BF16 or F32, each rounded once, nearest, ties to even; normal numbers. F64 again."""
    if dtype == "F32":
        return values.astype(np.float32).astype(np.float64)
    drop = np.uint64(52 - GRID[dtype][0])
    u = np.ascontiguousarray(values, np.float64).view(np.uint64)
    half = (np.uint64(1) << (drop - np.uint64(1))) - np.uint64(1)
    return ((u + half + ((u >> drop) & np.uint64(1))) >> drop << drop).view(np.float64)


def tf32_even(x):
    """fp32 to TF32, nearest, ties to even: what the TMA engine was measured to do."""
    return _nearest_even(x, 13)


def tf32_away(x):
    """fp32 to TF32, nearest, ties away: cvt.rna."""
    u = _bits(x)
    rounded = ((u + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def tf32_truncated(x):
    """Raw fp32 bits as the TF32 unit reads them: the low 13 are not there."""
    return (_bits(x) & np.uint32(0xFFFFE000)).view(np.float32)


def f16(x):
    """fp32 to f16, nearest, ties to even, subnormals kept."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def unrounded(x):
    """fp32 stays fp32."""
    return np.asarray(x, np.float32)


def parts(x, count, rounding):
    """x as a sum of rounded parts, the largest first; each remainder is exact in fp32."""
    out, rest = [], np.asarray(x, np.float32)
    for _ in range(count):
        part = rounding(rest)
        out.append(part)
        rest = (rest - part).astype(np.float32)
    return out


def operand_exponent(x, least):
    """Exponent of a multiplier's operand: a subnormal has the least exponent, a zero none."""
    _, e = np.frexp(x)
    e = np.maximum(e.astype(np.int16) - 1, least)
    return np.where(x == 0, NO_EXPONENT, e).astype(np.int16)


def floor_log2(x):
    """floor(log2 |x|) of finite nonzero x, exactly."""
    return np.frexp(x)[1] - 1


def ulp(x, dtype):
    """Spacing of the format at x (f64), the subnormals' spacing at and below the least normal."""
    fraction, least = GRID[dtype]
    e = np.where(x == 0, least, np.maximum(floor_log2(x), least))
    return np.ldexp(1.0, e - fraction)


def round_sum(a, b):
    """fl32(a + b) of two f64 whose sum need not be exact in f64.

    TwoSum gives the sum and its error exactly; forcing the last bit to odd when there is an error
    ("round to odd") keeps the second rounding, to fp32, the correct rounding of the exact sum.
    """
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)
    bits = s.view(np.int64)
    outward = np.where((error > 0) == (s > 0), 1, -1)
    odd = np.where((error != 0) & ((bits & 1) == 0), bits + outward, bits)
    with np.errstate(over="ignore"):
        return np.where(np.isfinite(s), odd.view(np.float64), s).astype(np.float32)


def fma(x, y, z):
    """fp32 fused multiply-add: the product of two fp32 is exact in f64, the sum rounds once."""
    return round_sum(np.asarray(x, np.float64) * y, np.asarray(z, np.float64) + np.zeros_like(x * y, np.float64))


def add(x, y):
    """fp32 addition."""
    return (np.asarray(x, np.float32) + np.asarray(y, np.float32)).astype(np.float32)


def saturated(x, dtype):
    """fp32 to e4m3 or e2m1, nearest, ties to even, beyond the largest value that one; as fp32."""
    x = np.clip(np.asarray(x, np.float64), -LARGEST[dtype], LARGEST[dtype])
    step = ulp(x, dtype)
    return (np.rint(x / step) * step).astype(np.float32)
