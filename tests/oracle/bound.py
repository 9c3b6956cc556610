"""The prefix bound of a projection, per output, in fp64.

Tensor-core chain over blocks b with exact prefixes s_b of the recipe-exact terms, B_0 = 0:
C = |s_(b-1)| + B_(b-1), E = max(max e_i, floor(log2 C), e0), n counts the terms that lose bits when
shifted to E (a product with f fraction bits loses some if E - e_i > F - f; the accumulator always
counts after the first block), d = n 2^(E-F), V = |s_b| + B_(b-1) + d,
B_b = B_(b-1) + d + max(2^(floor(log2 V) - o), 2^-149).
fp32 chain and every fp32 sum of partials: 2^-24 (|partial sum| + its B) per step. Rounded outputs add
half an ulp at |e| + B.
"""

import numpy as np

import formats
import recipes
import tensor_core

UNIT_ROUNDOFF = 2.0**-24
OUTPUT_BITS = 23
PRODUCT_BITS = {"TF32": 20, "F16": 20, "BF16": 14}


def _lengths(cuts):
    """Length of each range, to tell where a shorter chain has ended: no step, no rounding."""
    return np.array([end - first for first, end in cuts])[:, None, None]


def _log2(x):
    """floor(log2 x), far below every floor for 0."""
    return np.where(x == 0, formats.NO_EXPONENT, formats.floor_log2(x))


def _block(rule, terms, exponent, s, b, first):
    """One block of every chain; returns the new prefix and its bound."""
    e = np.maximum(np.maximum(exponent.max(axis=0), _log2(np.abs(s) + b)), rule.floor)
    lost = rule.fraction - PRODUCT_BITS[rule.dtype]
    used = exponent > formats.NO_EXPONENT // 2
    n = (used & (e - exponent > lost)).sum(axis=0) + (not first)
    d = n * np.ldexp(1.0, e - rule.fraction)
    s = s + terms.sum(axis=0)
    size = np.abs(s) + b + d
    step = np.where(size == 0, 0.0, np.ldexp(1.0, _log2(size) - OUTPUT_BITS))
    return s, b + d + np.maximum(step, 2.0**-149)


def _tensor_core_chains(recipe, held, arch, cuts):
    rule = tensor_core.unit(recipe.unit, arch)
    least = formats.GRID[rule.dtype][1]
    shape = (len(cuts), held.x_parts[0].shape[0], held.weight_parts[0].shape[0])
    s, b, first = np.zeros(shape), np.zeros(shape), True
    for i, j in recipe.products():
        x = np.moveaxis(recipes.stacked(held.x_parts[i], cuts), -1, 0)[..., None]
        w = np.moveaxis(recipes.stacked(held.weight_parts[j], cuts), -1, 0)[:, :, None, :]
        e_x = formats.operand_exponent(x, least)
        e_w = formats.operand_exponent(w, least)
        for k in range(0, x.shape[0], rule.block):
            span = slice(k, k + rule.block)
            terms = x[span].astype(np.float64) * w[span]
            exponent = (e_x[span] + e_w[span]).astype(np.int32)
            next_s, next_b = _block(rule, terms, exponent, s, b, first)
            alive = _lengths(cuts) > k
            s, b, first = np.where(alive, next_s, s), np.where(alive, next_b, b), False
    return s, b


def _fma_chains(x, w, lengths):
    """fp32 chains: x [K, S, T, 1] and w [K, S, 1, N], each of its own length."""
    s = np.zeros(np.broadcast_shapes(x.shape[1:], w.shape[1:]))
    b = np.zeros_like(s)
    for k in range(x.shape[0]):
        s = s + x[k].astype(np.float64) * w[k]
        b = np.where(lengths > k, b + UNIT_ROUNDOFF * (np.abs(s) + b), b)
    return s, b


def _added(s, b):
    """Partials added ascending in fp32."""
    total, bound = s[0], b[0]
    for term, its in zip(s[1:], b[1:]):
        total, bound = total + term, bound + its
        bound = bound + UNIT_ROUNDOFF * (np.abs(total) + bound)
    return bound


def _tree(s, b):
    while len(s) > 1:
        half = len(s) // 2
        s, b = s[:half] + s[half:], b[:half] + b[half:]
        b = b + UNIT_ROUNDOFF * (np.abs(s) + b)
    return b[0]


def dot_bound(recipe, held, arch, cuts, exact):
    """Bound on |g - e| of every output of `dot`."""
    if recipe.unit == "simt":
        x = recipes.strided(held.x_parts[0])[..., None]
        w = recipes.strided(held.weight_parts[0])[:, :, None, :]
        steps = np.ceil((held.x_parts[0].shape[1] - np.arange(recipes.THREADS)) / recipes.THREADS)
        bound = _tree(*_fma_chains(x, w, steps[:, None, None]))
    elif recipe.unit == "fma":
        x = np.moveaxis(recipes.stacked(held.x_parts[0], cuts), -1, 0)[..., None]
        w = np.moveaxis(recipes.stacked(held.weight_parts[0], cuts), -1, 0)[:, :, None, :]
        bound = _added(*_fma_chains(x, w, _lengths(cuts)))
    else:
        bound = _added(*_tensor_core_chains(recipe, held, arch, cuts))
    return bound + half_ulp(np.abs(exact) + bound, "BF16") * recipe.bf16_output


def half_ulp(size, dtype):
    """Half the spacing of the format at a magnitude."""
    return formats.ulp(size, dtype) / 2


def rms_error(recipe, k, cuts):
    """Relative error of the fp32 rms factor to first order: the longest chain of additions of
    positive squares counts half (the root), the division, the eps and the root one rounding each."""
    longest = max(end - first for first, end in cuts)
    depth = {
        "lanes": longest // 4 + 2 + len(cuts) - 1,
        "four": k // 4 + 3,
        "simt": -(-k // recipes.THREADS) + 9,
    }[recipe.squares]
    return UNIT_ROUNDOFF * ((depth + 2) / 2 + 1)


def mixes_bound(recipe, dot, exact_dot, factor, rho):
    """Bound of `mixes` where the factor comes after: |r| (B + rho (|e| + B)), then the product."""
    size = np.abs(exact_dot) + dot
    bound = np.abs(factor) * (dot + rho * size)
    product = np.abs(factor) * size * (1 + rho)
    bound = bound + half_ulp(product, "F32")
    return bound + half_ulp(np.abs(exact_dot * factor) + bound, "BF16") * recipe.bf16_scaled
