"""Golden recombinations, in exact rational arithmetic from the definition alone.

    python3 tests/data/recombine_golden.py > tests/data/recombine_golden.json

Needs NumPy (written with 2.x). Every operation is one of fractions.Fraction, rounded to the format by
`rounded`: nothing here is floating-point arithmetic but NumPy's einsum in fp64, which gives `truth`. fp32
values are written as their bits.
"""

import json
import struct
from fractions import Fraction

import numpy as np

HC = 4
FRACTION_BITS = {"f32": 23, "bf16": 7}
MIN_EXPONENT = -126
# name, tokens, columns, seed, powers of two that x and f spread over, bf16 or fp32 streams
CASES = [
    ("plain", 3, 5, 1, 3, "bf16"),
    ("wide", 3, 5, 2, 60, "bf16"),
    ("fp32 streams", 2, 5, 3, 6, "f32"),
    ("subnormal", 2, 4, 6, -1, "f32"),
]
# name: storage of post and comb, order, storage of the terms, fused
VARIANTS = {
    "fp32": ("f32", "post-first", None, True),
    "mul-add": ("f32", "post-first", None, False),
    "stream-first": ("f32", "stream-first", None, True),
    "apart": ("f32", "apart", "f32", False),
    "transformers": ("bf16", "apart", "bf16", True),
}


def rounded(x, form):
    """To nearest, ties to even; subnormals kept; beyond the largest number this is not called."""
    magnitude = abs(x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, MIN_EXPONENT) - FRACTION_BITS[form])
    # Fraction's round is to nearest, ties to even.
    nearest = round(x / unit) * unit
    assert nearest != 0, "a fraction has no sign of zero: take another seed"
    return nearest


def bits(x):
    """The bits of an fp32 number; it has to be one."""
    value = float(x)
    code = struct.unpack("<I", struct.pack("<f", value))[0]
    assert Fraction(struct.unpack("<f", struct.pack("<I", code))[0]) == x, x
    return code


class Noise:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def inputs(tokens, columns, seed, spread, form):
    noise = Noise(seed)

    def stream():
        mantissa = 2 ** FRACTION_BITS[form]
        significand = Fraction(mantissa + noise.below(mantissa), mantissa) * (-1) ** noise.below(2)
        if spread < 0:
            # Multiples of the least subnormal number.
            return (noise.below(2**23) - 2**22) * Fraction(2) ** -149
        return significand * Fraction(2) ** (noise.below(spread) - spread // 2)

    def gate(most):
        return rounded(Fraction(1 + noise.below(2**30), 2**30) * most, "f32")

    return {
        "x": [[[stream() for _ in range(columns)] for _ in range(HC)] for _ in range(tokens)],
        "f": [[stream() for _ in range(columns)] for _ in range(tokens)],
        "post": [[gate(2) for _ in range(HC)] for _ in range(tokens)],
        "comb": [[[gate(1) for _ in range(HC)] for _ in range(HC)] for _ in range(tokens)],
    }


def recombined(case, variant, t, k, c):
    gates, order, terms, fused = VARIANTS[variant]
    spread = (rounded(case["post"][t][k], gates), case["f"][t][c])
    streams = [(rounded(case["comb"][t][j][k], gates), case["x"][t][j][c]) for j in range(HC)]

    def chain(products):
        total = rounded(products[0][0] * products[0][1], "f32")
        for gate, value in products[1:]:
            product = gate * value if fused else rounded(gate * value, "f32")
            total = rounded(total + product, "f32")
        return total

    if order == "post-first":
        return chain([spread, *streams])
    if order == "stream-first":
        return chain([streams[0], spread, *streams[1:]])
    apart = [rounded(chain(products), terms) for products in ([spread], streams)]
    return rounded(apart[0] + apart[1], "f32")


def truth(case):
    """einsum in fp64, and the sum of the magnitudes."""
    post, comb, x, f = (np.array(case[name], dtype=np.float64) for name in ("post", "comb", "x", "f"))
    terms = [np.einsum("tk,tc->tkc", p, g) + np.einsum("tjk,tjc->tkc", m, y)
             for p, g, m, y in ((post, f, comb, x), (post, abs(f), comb, abs(x)))]
    return [values.ravel().tolist() for values in terms]


def flat(values):
    return [x for value in values for x in flat(value)] if isinstance(values, list) else [bits(values)]


def main():
    golden = []
    for name, tokens, columns, seed, spread, form in CASES:
        case = inputs(tokens, columns, seed, spread, form)
        places = [(t, k, c) for t in range(tokens) for k in range(HC) for c in range(columns)]
        expected = {variant: [bits(recombined(case, variant, *place)) for place in places] for variant in VARIANTS}
        value, magnitude = truth(case)
        golden.append({"name": name, "tokens": tokens, "columns": columns, "bf16": form == "bf16",
                       **{operand: flat(case[operand]) for operand in case},
                       "truth": value, "magnitude": magnitude, "expected": expected})
    lines = [json.dumps(case) for case in golden]
    print("[\n" + ",\n".join(lines) + "\n]")


main()
