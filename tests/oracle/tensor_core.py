"""The tensor core's block rule in floating point, exact, vectorised over independent chains.

block(a, b, c): exact products and c are aligned to the largest exponent (the raw sum of the
operands' exponents, never below e0), truncated toward zero to F fraction bits, added exactly, and
the sum is truncated to fp32, or to fewer bits of it. Every quantity is exact in f64: a product has at
most 22 bits, an aligned term is an integer below 2^(F+2), and 32 of them stay below 2^53. An
instruction longer than a block is a chain of blocks. Source: published models and recorded vectors.
"""

from dataclasses import dataclass

import numpy as np

import formats


@dataclass(frozen=True)
class Unit:
    """A row of the architecture table, with what its operands look like."""

    block: int
    fraction: int
    floor: int
    dtype: str
    kept: int = formats.GRID["F32"][0]


def unit(kind, arch):
    """`tf32`, `bf16` or `f16` with fp32 accumulation on sm_80 to sm_120; `e4m3` where one instruction does it."""
    if kind == "e4m3":
        # sm_90: wgmma. Its accumulator and sm_89's hold 13 fraction bits.
        return {
            "sm_89": Unit(16, 13, -133, "E4M3", 13),
            "sm_90": Unit(32, 13, -133, "E4M3", 13),
            "sm_100": Unit(32, 25, -133, "E4M3"),
            "sm_120": Unit(32, 25, -133, "E4M3"),
        }[arch]
    old = arch in ("sm_80", "sm_86", "sm_87", "sm_89")
    block = {"tf32": 8, "bf16": 16, "f16": 16}[kind]
    return Unit(block // 2 if old else block, 24 if old else 25, -132 if old else -133, kind.upper())


def _truncate_to_f32(value, fraction):
    """f64 to fp32 with so many fraction bits, toward zero: overflow is infinite, nothing left is +0."""
    least = formats.GRID["F32"][1]
    bits = value.view(np.int64) & ~np.int64((1 << (52 - fraction)) - 1)
    out = bits.view(np.float64)
    small = np.abs(value) < 2.0**least
    if small.any():
        step = 2.0 ** (least - fraction)
        out = np.where(small, np.trunc(value / step) * step + 0.0, out)
    return np.where(np.abs(out) >= 2.0**128, np.copysign(np.inf, out), out)


def _step(rule, product, exponent, c):
    """One block of every chain: product and exponent [L, ...], c [...]."""
    e_c = np.where(c == 0, formats.NO_EXPONENT, np.maximum(np.frexp(c)[1] - 1, -126))
    e_max = np.maximum(np.maximum(exponent.max(axis=0), e_c), rule.floor).astype(np.int32)
    scale = np.ldexp(1.0, rule.fraction - e_max)
    total = np.trunc(c * scale)
    for term in product:
        total += np.trunc(term * scale)
    return _truncate_to_f32(total / scale, rule.kept)


def _specials(product, c, out):
    """NaN and infinity as IEEE gives them for the exact terms; any NaN has the one pattern."""
    exact = product.sum(axis=0) + c
    return np.where(np.isfinite(exact), out, exact)


def chains(rule, a, b, c):
    """Continues chains: a [S, T, K] and b [S, N, K] of operand values, c [S, T, N]; result f64."""
    pad = -a.shape[-1] % rule.block
    if pad:
        a = np.pad(a, ((0, 0), (0, 0), (0, pad)))
        b = np.pad(b, ((0, 0), (0, 0), (0, pad)))
    least = formats.GRID[rule.dtype][1]
    e_a = np.moveaxis(formats.operand_exponent(a, least), -1, 0)[..., None]
    e_b = np.moveaxis(formats.operand_exponent(b, least), -1, 0)[:, :, None, :]
    with np.errstate(invalid="ignore"):
        v_a = np.moveaxis(a.astype(np.float64), -1, 0)[..., None]
        v_b = np.moveaxis(b.astype(np.float64), -1, 0)[:, :, None, :]
    finite = np.isfinite(a).all() and np.isfinite(b).all()
    with np.errstate(invalid="ignore", under="ignore"):
        for k in range(0, a.shape[-1], rule.block):
            span = slice(k, k + rule.block)
            product = v_a[span] * v_b[span]
            out = _step(rule, product, e_a[span] + e_b[span], c)
            c = out if finite and np.isfinite(c).all() else _specials(product, c, out)
    return c
