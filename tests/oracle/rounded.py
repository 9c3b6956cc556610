"""exp and 1/sqrt of fp32 values, correctly rounded to fp32.

The double of NumPy is off by a few of its own ulps. That decides the fp32 except near the middle between two of
them, where 60 decimal digits decide: exp of a nonzero fp32 is transcendental and never the middle itself, and
1/sqrt of 24 bits is, if at all, 2^-74 of itself from a value of 25 bits.
"""

from decimal import Context, Decimal

import numpy as np

import formats

_DIGITS = Context(prec=60)
# How near to the middle, in ulps of fp32, the decimal digits are asked: far more than the double's own error.
_NEAR = 2.0**-20


def _nearest(approximate, exact):
    """`approximate` >= 0 to fp32; exact(i) is the value of element i to 60 digits."""
    step = formats.ulp(approximate, "F32")
    ulps = approximate / step
    low = np.floor(ulps)
    rounded = np.rint(ulps)
    for i in np.flatnonzero(np.abs(ulps - low - 0.5) < _NEAR):
        middle = Decimal(float((low.flat[i] + 0.5) * step.flat[i]))
        rounded.flat[i] = low.flat[i] + (exact(i) > middle)
    return (rounded * step).astype(np.float32)


def exp(x):
    """exp(x) of fp32 x <= 0; of -inf it is 0."""
    return _nearest(np.exp(x.astype(np.float64)), lambda i: _DIGITS.exp(Decimal(float(x.flat[i]))))


def rsqrt(x):
    """1/sqrt(x) of fp32 x > 0."""

    def exact(i):
        return _DIGITS.divide(Decimal(1), _DIGITS.sqrt(Decimal(float(x.flat[i]))))

    return _nearest(1.0 / np.sqrt(x.astype(np.float64)), exact)
