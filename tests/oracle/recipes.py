"""The catalogue's mixing recipes: operands, unit, order and squared sum, by name.

Written from the design's table and the text of `ulpdrift variants NAME`. A projection is cut into
contiguous ranges of K (whole blocks of 64, the first ranges one block longer); a range is one
ascending chain, compensated recipes running one whole chain per product of parts in the same
accumulator, smallest first; ranges are added ascending in fp32.
"""

from dataclasses import dataclass
from typing import Callable

import numpy as np

import formats
import tensor_core

BLOCK = 64
THREADS = 512


@dataclass(frozen=True)
class Recipe:
    """One precision variant as data."""

    unit: str  # tf32, bf16, f16: tensor core; fma: fp32; simt: fp32, strided
    rounding: Callable
    splits: str  # fixed, engine, tilelang
    squares: str  # lanes, four, simt
    norm_first: bool = False
    weight_parts: int = 1
    x_parts: int = 1
    bf16_output: bool = False
    bf16_scaled: bool = False

    def products(self):
        """(x part, weight part) of each chain, smallest terms first; below the parts' reach none."""
        reach = max(self.weight_parts, self.x_parts)
        pairs = [(i, j) for i in range(self.x_parts) for j in range(self.weight_parts) if i + j < reach]
        return sorted(pairs, key=lambda p: (-(p[0] + p[1]), -p[0]))


def _tf32(rounding, splits, squares, **more):
    return Recipe("tf32", rounding, splits, squares, **more)


def _bf16(**more):
    return Recipe("bf16", formats.bf16, "fixed", "lanes", **more)


CATALOGUE = {
    "fp32": Recipe("fma", formats.unrounded, "fixed", "lanes"),
    "fp32-simt": Recipe("simt", formats.unrounded, "fixed", "simt"),
    "tf32": _tf32(formats.tf32_even, "engine", "lanes"),
    "tf32-rna": _tf32(formats.tf32_away, "engine", "four"),
    "tf32-rz": _tf32(formats.tf32_truncated, "tilelang", "lanes"),
    "bf16": _bf16(),
    "bf16-patch": _bf16(bf16_output=True),
    "bf16-patch-scaled": _bf16(bf16_output=True, bf16_scaled=True),
    "bf16-prenorm": _bf16(bf16_output=True, norm_first=True),
    "f16": Recipe("fma", formats.f16, "fixed", "lanes", norm_first=True),
    "f16-mma": Recipe("f16", formats.f16, "fixed", "lanes"),
    "tf32x2": _tf32(formats.tf32_even, "fixed", "lanes", weight_parts=2),
    "tf32x3": _tf32(formats.tf32_even, "fixed", "lanes", weight_parts=2, x_parts=2),
    "bf16x2": _bf16(weight_parts=2),
    "bf16x3": _bf16(weight_parts=3),
}


def split_count(recipe, tokens, k, sms):
    """Ranges of K that the recipe's rule gives, never more than there are blocks."""
    blocks = -(-k // BLOCK)
    if recipe.splits == "engine":
        wanted = max(1, min(sms // -(-tokens // 64), (k // BLOCK) // 4))
    elif recipe.splits == "tilelang":
        wanted = 32 if tokens <= 2048 else 1
    else:
        wanted = 64
    return min(wanted, blocks)


def ranges(k, count):
    """[first, end) of each range: whole blocks, the first ones a block longer."""
    blocks = -(-k // BLOCK)
    sizes = [blocks // count + (s < blocks % count) for s in range(count)]
    ends = np.minimum(np.cumsum(sizes) * BLOCK, k)
    return list(zip([0, *ends[:-1]], ends))


def stacked(x, cuts):
    """[rows, K] as [ranges, rows, longest range], zeros after a range's end (they add nothing)."""
    longest = max(end - first for first, end in cuts)
    out = np.zeros((len(cuts), x.shape[0], longest), x.dtype)
    for s, (first, end) in enumerate(cuts):
        out[s, :, : end - first] = x[:, first:end]
    return out


@dataclass
class Operands:
    """What reaches the multiplier, and what was done to get there."""

    x_parts: list
    weight_parts: list
    rms: np.ndarray


def operands(recipe, x, weight, eps, cuts):
    """Rounded operands of one site; x [T, K] and weight [N, K] fp32 as stored."""
    rms = rms_factor(recipe.squares, x, eps, cuts)
    source = (x * rms[:, None]).astype(np.float32) if recipe.norm_first else x
    # An fp32 multiplier takes x as it is; a tensor core only what its format holds.
    x_rounding = formats.unrounded if recipe.unit in ("fma", "simt") else recipe.rounding
    return Operands(
        formats.parts(source, recipe.x_parts, x_rounding),
        formats.parts(weight, recipe.weight_parts, recipe.rounding),
        rms,
    )


def recipe_exact(recipe, held):
    """The recipe's own operands multiplied and summed in fp64."""
    with np.errstate(invalid="ignore"):  # An overflowed operand gives NaN, as it should.
        return sum(
            held.x_parts[i].astype(np.float64) @ held.weight_parts[j].astype(np.float64).T
            for i, j in recipe.products()
        )


def dot(recipe, held, arch, cuts):
    """The projection before the rms factor, in the recipe's order: fp32, or bf16 widened."""
    if recipe.unit == "simt":
        out = _simt(held.x_parts[0], held.weight_parts[0])
    else:
        out = ranges_added(partials(recipe, held, arch, cuts))
    return formats.bf16(out) if recipe.bf16_output else out


def partials(recipe, held, arch, cuts):
    """Every range of K by itself [ranges, T, N], in the recipe's unit."""
    c = np.zeros((len(cuts), held.x_parts[0].shape[0], held.weight_parts[0].shape[0]))
    for i, j in recipe.products():
        a, b = stacked(held.x_parts[i], cuts), stacked(held.weight_parts[j], cuts)
        if recipe.unit == "fma":
            for k in range(a.shape[-1]):
                c = formats.fma(a[:, :, None, k], b[:, None, :, k], c)
        else:
            c = tensor_core.chains(tensor_core.unit(recipe.unit, arch), a, b, c)
    return c


def ranges_added(partial):
    """Partial sums, or lanes, added ascending in fp32."""
    total = np.asarray(partial[0], np.float32)
    for term in partial[1:]:
        total = formats.add(total, term)
    return total


def _tree(values):
    """Block tree: thread t takes thread t + half, halves shrinking to one."""
    while len(values) > 1:
        half = len(values) // 2
        values = formats.add(values[:half], values[half:])
    return values[0]


def _simt(x, weight):
    a, b = strided(x), strided(weight)
    c = np.zeros((THREADS, x.shape[0], weight.shape[0]), np.float32)
    for step in range(a.shape[0]):
        c = formats.fma(a[step][:, :, None], b[step][:, None, :], c)
    return _tree(c)


def strided(x):
    """[rows, K] as [steps, threads, rows]: thread t takes k = t, t + 512, and so on."""
    pad = -x.shape[1] % THREADS
    return np.moveaxis(np.pad(x, ((0, 0), (0, pad))).reshape(x.shape[0], -1, THREADS), 0, -1)


def square_sum(kind, x, cuts):
    """Sum of squares per token in fp32, in the recipe's order."""
    if kind == "simt":
        a = strided(x)
        c = np.zeros(a.shape[1:], np.float32)
        for row in a:
            c = formats.fma(row, row, c)
        return _tree(c)
    if kind == "four":
        lanes = np.zeros((4, x.shape[0]), np.float32)
        for k in range(0, x.shape[1], 4):
            lanes = formats.fma(x[:, k : k + 4].T, x[:, k : k + 4].T, lanes)
        return ranges_added(lanes)
    return ranges_added(_lanes(stacked(x, cuts)))


def _lanes(a):
    """Lane c of four adds x0*x0 + x1*x1 of columns 8g+c and 8g+c+4, one product fused."""
    lanes = np.zeros((*a.shape[:2], 4), np.float32)
    for g in range(0, a.shape[-1], 8):
        x0, x1 = a[..., g : g + 4], a[..., g + 4 : g + 8]
        lanes = formats.add(lanes, formats.fma(x0, x0, (x1 * x1).astype(np.float32)))
    pairs = formats.add(lanes[..., :2], lanes[..., 2:])
    return formats.add(pairs[..., 0], pairs[..., 1])


def rms_factor(kind, x, eps, cuts):
    """1/sqrt(mean + eps): divided by K and added in fp32, the root correctly rounded."""
    mean = (square_sum(kind, x, cuts) / np.float32(x.shape[1])).astype(np.float32)
    return np.array([_rsqrt(v) for v in formats.add(mean, np.float32(eps))], np.float32)


def _rsqrt(v):
    """Correctly rounded: an f64 estimate, then the exact comparison with both rounding borders."""
    y = np.float32(1.0 / np.sqrt(np.float64(v)))
    for side in (np.float32(0), np.float32(np.inf)):
        neighbour = np.nextafter(y, side)
        numerator, denominator = ((float(y) + float(neighbour)) / 2).as_integer_ratio()
        top, bottom = float(v).as_integer_ratio()
        # The border squared times v against 1, in integers.
        above = numerator * numerator * top > denominator * denominator * bottom
        if above == (neighbour > y):
            continue
        return neighbour
    return y
