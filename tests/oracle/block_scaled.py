"""The block-scaled tensor core in exact integers, and vector files that it fills.

    python block_scaled.py DIR [--spoil]

Writes DIR/sm_120_KIND.safetensors for every kind: random codes, scales and accumulators by category
with the results of this rule, in the layout that `ulpdrift mma verify` replays. With `--spoil` the
last scale of B is another one than the results were computed with.

Per output and block of 32 (mxf8f6f4) or 64 k: every term is an integer m with f fraction bits and an
exponent e, in units of 2^(e - f). A term is a product (mxf8f6f4) or the exact sum of 16 products
(mxf4, mxf4nvf4), times both scales' significands; e is the sum of the exponents, that of E2M1
products left out. Terms are shifted to the largest exponent with F fraction bits, magnitudes cut,
added, and the sum is cut to fp32. Source: the published models.
"""

import json
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import safetensors_io

NAN, INFINITY = 0x7FFFFFFF, 0x7F800000


@dataclass(frozen=True)
class Kind:
    """A kind of instruction: k of a scale, k of a block, products of a term, F and e0."""

    name: str
    codes: int
    scale: str
    per_scale: int
    depth: int
    group: int
    fraction: int
    floor: int
    instruction: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("mxf8f6f4", 256, "ue8m0", 32, 32, 1, 25, -133,
             "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"),
        Kind("mxf4", 16, "ue8m0", 32, 64, 16, 35, -139,
             "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"),
        Kind("mxf4nvf4", 16, "ue4m3", 16, 64, 16, 35, -139,
             "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"),
    )
}


def _small_float(code, exponent_bits, fraction_bits):
    """Signed significand and exponent of a code; a subnormal keeps the least exponent."""
    code = code.astype(np.int64)
    bias = (1 << (exponent_bits - 1)) - 1
    fraction = code & ((1 << fraction_bits) - 1)
    biased = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    significand = fraction + np.where(biased > 0, 1 << fraction_bits, 0)
    negative = (code >> (exponent_bits + fraction_bits)) & 1
    return np.where(negative == 1, -significand, significand), np.maximum(biased, 1) - bias


def _elements(kind, code):
    """Significand, exponent, fraction bits and where NaN."""
    if kind.codes == 16:
        significand, exponent = _small_float(code, 2, 1)
        # As integers, twice the values; the exponent takes no part in the alignment.
        return significand << exponent, np.zeros_like(exponent), 1, np.zeros(code.shape, bool)
    significand, exponent = _small_float(code, 4, 3)
    return significand, exponent, 3, (code & 0x7F) == 0x7F


def _scales(kind, code):
    if kind.scale == "ue8m0":
        exponent = code.astype(np.int64) - 127
        return np.ones_like(exponent), exponent, 0, code == 255
    significand, exponent = _small_float(code & 0x7F, 4, 3)
    return significand, exponent, 3, (code & 0x7F) == 0x7F


def _shift(magnitude, left):
    """Magnitude times 2^left, cut toward zero."""
    up = np.left_shift(magnitude, np.clip(left, 0, 62))
    return np.where(left >= 0, up, np.right_shift(magnitude, np.clip(-left, 0, 62)))


def _pack(total, unit):
    """total * 2^unit as fp32 bits, cut toward zero; no bits left is +0."""
    magnitude = np.abs(total)
    exponent = np.frexp(magnitude.astype(np.float64))[1] - 1 + unit
    floor = np.maximum(exponent, -126)
    kept = _shift(magnitude, unit - (floor - 23))
    bits = np.where(exponent > 127, INFINITY, ((floor + 126) << 23) + kept)
    bits = np.where(total < 0, bits | 0x80000000, bits)
    return np.where((total == 0) | (kept == 0), 0, bits).astype(np.uint32)


def _grouped(values, group):
    """[M, N, K] to [M, N, K / group, group]."""
    return values.reshape(*values.shape[:2], -1, group)


def block(kind, a, b, scale_a, scale_b, c):
    """One instruction: codes [M, K] and [K, N], scales [M, S] and [S, N], c [M, N] of fp32 bits."""
    sig_a, exp_a, bits, nan_a = _elements(kind, a)
    sig_b, exp_b, _, nan_b = _elements(kind, b.T)
    products = _grouped(sig_a[:, None] * sig_b[None], kind.group)
    exponents = _grouped(exp_a[:, None] + exp_b[None], kind.group)[..., 0]
    sig_s, exp_s, scale_bits, nan_s = _scales(kind, scale_a)
    sig_t, exp_t, _, nan_t = _scales(kind, scale_b.T)
    repeat = kind.per_scale // kind.group
    scales = np.repeat(sig_s[:, None] * sig_t[None], repeat, -1)
    exponents = exponents + np.repeat(exp_s[:, None] + exp_t[None], repeat, -1)
    terms = products.sum(-1) * scales
    present = (products != 0).any(-1) & (scales != 0)

    fraction = (c & 0x7FFFFF).astype(np.int64)
    biased = ((c >> 23) & 0xFF).astype(np.int64)
    sig_c = fraction + np.where(biased > 0, 1 << 23, 0)
    exp_c = np.maximum(biased, 1) - 127

    e_max = np.maximum(np.where(present, exponents, kind.floor).max(-1), kind.floor)
    e_max = np.maximum(e_max, np.where(sig_c != 0, exp_c, kind.floor))
    left = kind.fraction - 2 * (bits + scale_bits) - (e_max[..., None] - exponents)
    total = (np.sign(terms) * _shift(np.abs(terms), left)).sum(-1)
    cut_c = _shift(sig_c, kind.fraction - 23 - (e_max - exp_c))
    total += np.where(c >> 31 == 1, -cut_c, cut_c)

    out = np.where(biased == 255, c, _pack(total, e_max - kind.fraction))
    nan = (nan_a.any(-1) | nan_s.any(-1))[:, None] | (nan_b.any(-1) | nan_t.any(-1))[None]
    return np.where(nan | ((biased == 255) & (fraction != 0)), NAN, out).astype(np.uint32)


def _fp32(random, shape, low, high):
    """Random bits of finite numbers with exponents from low to high; -127 is subnormal."""
    words = random.integers(0, 1 << 32, shape, dtype=np.uint32) & np.uint32(0x807FFFFF)
    return words | (random.integers(low + 127, high + 128, shape).astype(np.uint32) << np.uint32(23))


class Tile:
    """Inputs of one tile, ordinary ones until a category changes some of them."""

    def __init__(self, kind, random, rows=16, cols=8):
        self.kind, self.random = kind, random
        scales = kind.depth // kind.per_scale
        self.a, self.b = self.codes((rows, kind.depth)), self.codes((kind.depth, cols))
        self.scale_a, self.scale_b = self.near_one((rows, scales)), self.near_one((scales, cols))
        self.c = _fp32(random, (rows, cols), -4, 8)

    def codes(self, shape):
        """Any code that is a number."""
        codes = self.random.integers(0, self.kind.codes, shape, dtype=np.uint8)
        return np.where(codes & 0x7F == 0x7F, codes & 0x3F, codes)

    def near_one(self, shape, binades=4):
        """Scales within some binades of one, and for ue4m3 any fraction and sign bit."""
        if self.kind.scale == "ue8m0":
            return self.random.integers(127 - binades, 128 + binades, shape).astype(np.uint8)
        exponent = self.random.integers(7 - binades, 8 + binades, shape)
        bits = (exponent << 3) + self.random.integers(0, 8, shape) + 128 * self.random.integers(0, 2, shape)
        return bits.astype(np.uint8)

    def any_scale(self, shape):
        """Every scale but NaN."""
        scales = self.random.integers(0, 255, shape).astype(np.uint8)
        return np.where(scales & 0x7F == 0x7F, 0, scales) if self.kind.scale == "ue4m3" else scales

    def rescale(self, draw):
        self.scale_a, self.scale_b = draw(self.scale_a.shape), draw(self.scale_b.shape)

    def one(self):
        return 127 if self.kind.scale == "ue8m0" else 0x38


def ordinary(tile):
    pass


def from_zero(tile):
    tile.c[:] = 0


def raw_bits(tile):
    for name in ("a", "b", "scale_a", "scale_b"):
        largest = tile.kind.codes if len(name) == 1 else 256
        shape = getattr(tile, name).shape
        setattr(tile, name, tile.random.integers(0, largest, shape, dtype=np.uint8))
    tile.c = tile.random.integers(0, 1 << 32, tile.c.shape, dtype=np.uint32)


def any_scale(tile):
    tile.rescale(tile.any_scale)
    tile.c = _fp32(tile.random, tile.c.shape, -127, 127)


def one_side_of_the_window(tile):
    """C about F above or below the products' exponent."""
    apart = tile.random.choice([-1, 1]) * tile.kind.fraction
    middle = apart + tile.random.integers(-14, 14)
    tile.c = _fp32(tile.random, tile.c.shape, middle - 2, middle + 2)


def scales_apart(tile):
    """Two scales of a row so far apart that the smaller one's terms are cut."""
    def draw(shape):
        if tile.kind.scale == "ue4m3":
            return tile.random.choice([1, 9, 0x38, 0x7E], shape).astype(np.uint8)
        return (127 + tile.random.choice([-17, -13, 0, 13, 17], shape)).astype(np.uint8)

    tile.rescale(draw)
    tile.c = _fp32(tile.random, tile.c.shape, -30, 12)


def zero_scales(tile):
    """Zero (or least) scales against the largest, beside small ones: a zero's exponent must not count."""
    tile.rescale(lambda shape: tile.random.integers(1, 16, shape).astype(np.uint8))
    tile.scale_a[tile.random.random(len(tile.scale_a)) < 0.5, 0] = 0
    tile.scale_b[0] = tile.random.choice([1, 0x7E], tile.scale_b.shape[1])
    tile.c = _fp32(tile.random, tile.c.shape, -45, -20)


def nan_scales(tile):
    nan = 255 if tile.kind.scale == "ue8m0" else 0x7F
    tile.scale_a[tile.random.random(tile.scale_a.shape) < 0.1] = nan
    tile.scale_b[tile.random.random(tile.scale_b.shape) < 0.1] = nan
    tile.a[tile.random.random(len(tile.a)) < 0.5] = 0


def zero_groups(tile):
    """Zero codes, also of both signs, under scales that would push everything else out."""
    rows = tile.a.reshape(len(tile.a), -1, min(tile.kind.per_scale, 16))
    gone = tile.random.random(rows.shape[:2]) < 0.5
    rows[gone] = tile.random.choice([0, tile.kind.codes // 2])
    per_scale = gone.reshape(len(gone), tile.scale_a.shape[1], -1).all(-1)
    tile.scale_a[per_scale] = 0x7E if tile.kind.scale == "ue4m3" else 250
    tile.c = _fp32(tile.random, tile.c.shape, -40, 0)


def cancelling(tile):
    """Halves of every 16 k that cancel, under large scales; C far below or near."""
    sign = tile.kind.codes // 2
    a = tile.a.reshape(len(tile.a), -1, 2, 8)
    a[:, :, 1] = a[:, :, 0] ^ sign
    b = tile.b.reshape(-1, 2, 8, tile.b.shape[-1])
    b[:, 1] = b[:, 0]
    tile.c = _fp32(tile.random, tile.c.shape, -36, 4)
    if tile.kind.scale == "ue8m0":
        tile.scale_a = tile.scale_a + np.uint8(tile.random.integers(0, 24))


def tiny(tile):
    """Results at and below the smallest normal number."""
    def draw(shape):
        low = 1 if tile.kind.scale == "ue4m3" else 50
        return tile.random.integers(low, low + 20, shape).astype(np.uint8)

    tile.rescale(draw)
    tile.c = _fp32(tile.random, tile.c.shape, -127, -120)
    tile.c[tile.random.random(tile.c.shape) < 0.3] = 0


def overflowing(tile):
    if tile.kind.scale == "ue8m0":
        tile.rescale(lambda shape: tile.random.integers(186, 192, shape).astype(np.uint8))
    tile.c = _fp32(tile.random, tile.c.shape, 122, 127)


def special_accumulators(tile):
    words = np.array([INFINITY, 0xFF800000, 0x7FC12345, 0x7F800001, 0x80000000, 1, 0x80000001], np.uint32)
    tile.c = tile.random.choice(words, tile.c.shape)


def largest_codes(tile):
    tile.a[:], tile.b[:] = (7, 7) if tile.kind.codes == 16 else (0x7E, 0x7E)
    tile.c &= np.uint32(0x7FFFFFFF)


def sparse(tile):
    for codes in (tile.a, tile.b):
        codes[tile.random.random(codes.shape) < 0.8] = 0
    tile.c[tile.random.random(tile.c.shape) < 0.5] = 0x80000000


CATEGORIES = (
    ordinary, from_zero, raw_bits, any_scale, one_side_of_the_window, scales_apart, zero_scales, nan_scales,
    zero_groups, cancelling, tiny, overflowing, special_accumulators, largest_codes, sparse,
)


def inputs(kind, seed, tiles):
    """`tiles` tiles of every category."""
    random = np.random.default_rng(seed)
    for number, category in enumerate(CATEGORIES):
        for _ in range(tiles):
            tile = Tile(kind, random)
            category(tile)
            yield number, tile


def write(path, kind, seed, tiles, compute, source):
    """A vector file whose results are `compute(kind, tile)`."""
    numbers, made = zip(*inputs(kind, seed, tiles))
    held = {name: np.stack([getattr(tile, name) for tile in made]) for name in ("a", "b", "c", "scale_a", "scale_b")}
    held["d"] = np.stack([compute(kind, tile) for tile in made])
    held["category"] = np.array(numbers, np.uint8)
    header = {"__metadata__": {
        "arch": "sm_120",
        "instruction": f"mma.sync.aligned.{kind.instruction}",
        "categories": json.dumps([category.__name__ for category in CATEGORIES]),
        "source": source,
        "seed": str(seed),
        "layout": "a[tile,16,k] b[tile,k,8] one code per byte; scale_a[tile,16,s] scale_b[tile,s,8];"
                  " c,d[tile,16,8]: raw bits, row-major",
    }}
    data = b""
    for name in ("c", "d", "a", "b", "scale_a", "scale_b", "category"):
        stored = np.ascontiguousarray(held[name]).tobytes()
        dtype = "U32" if name in "cd" else "U8"
        header[name] = {"dtype": dtype, "shape": held[name].shape, "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def by_this_rule(kind, tile):
    return block(kind, tile.a, tile.b, tile.scale_a, tile.scale_b, tile.c)


def spoil_a_scale(path):
    """Moves the first tile's last scale of B, an ordinary one, by one."""
    name = "scale_b"
    scales = safetensors_io.read(path)[name].bits
    at = safetensors_io.data_start(path, name) + scales[0].size - 1
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([scales[0].flat[-1] ^ 1]))


def main():
    directory, spoil = Path(sys.argv[1]), sys.argv[2:] == ["--spoil"]
    directory.mkdir(parents=True, exist_ok=True)
    for name, kind in KINDS.items():
        path = directory / f"sm_120_{name}.safetensors"
        write(path, kind, 11, 24, by_this_rule, "NumPy oracle")
        if spoil:
            spoil_a_scale(path)


if __name__ == "__main__":
    main()
