"""Golden error measures, computed with NumPy from the definitions alone.

    python3 tests/data/measure_golden.py > tests/data/measure_golden.json

Needs NumPy (written with 2.x). Inputs come from a linear congruential generator that the Rust test
repeats: IEEE operations only, so that both sides hold the same bits; a checksum proves it.
"""

import json
import math
import struct

import numpy as np

MASK = (1 << 64) - 1
CASES = [
    # name, tokens, width, seed, operand error, arithmetic error, shrink, format, zeros in r
    ("mixes_tf32", 64, 24, 1, 2.0**-10, 2.0**-20, 0.0, "f32", False),
    ("mixes_truncated", 64, 24, 2, 2.0**-11, 2.0**-22, 3.5e-4, "f32", False),
    ("y", 16, 4096, 3, 2.0**-8, 2.0**-23, 0.0, "f32", False),
    ("y_bf16", 16, 4096, 4, 2.0**-8, 2.0**-23, 0.0, "bf16", True),
    ("pre", 33, 4, 5, 2.0**-9, 2.0**-20, 0.0, "f32", False),
    ("ragged", 7, 13, 6, 2.0**-7, 2.0**-15, 1e-2, "bf16", False),
    ("one_token", 1, 1001, 7, 2.0**-3, 2.0**-5, 0.0, "f32", True),
]
FORMATS = {"f32": (23, -126), "bf16": (7, -126)}


class Noise:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 11) * 2.0**-53


def to_f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def to_bf16(x):
    """f32, then truncated: how it is rounded does not matter here."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0] & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def inputs(tokens, width, seed, operand, arithmetic, shrink, form, zeros):
    noise = Noise(seed)
    got, ref, exact = [], [], []
    for i in range(tokens * width):
        r = (noise.uniform() - 0.5) * 2.0 ** (math.floor(noise.uniform() * 12.0) - 6)
        e = r * (1.0 + operand * (noise.uniform() - 0.5))
        g = e * (1.0 + arithmetic * (noise.uniform() - 0.5))
        g = to_f32(g - shrink * g)
        if form == "bf16":
            g = to_bf16(g)
        if zeros and i % 97 == 5:
            r, g = 0.0, to_f32(g * 2.0**-30)
        if i % 97 == 6:
            g = to_f32(r)
        got.append(g), ref.append(r), exact.append(e)
    return np.array(got), np.array(ref), np.array(exact)


def norm(x):
    return np.sqrt(np.sum(x * x))


def measures(g, r, e, tokens, form):
    d = g - r
    nonzero = r != 0
    rel = np.abs(d[nonzero]) / np.abs(r[nonzero])
    rms = np.sqrt(np.mean(r * r))
    scaled = np.abs(d) / rms
    bits, low = FORMATS[form]
    ulp = 2.0 ** (np.maximum(np.frexp(r)[1] - 1, low) - bits)
    ulp[r == 0] = 2.0 ** (low - bits)
    unequal = np.abs(g) != np.abs(r)
    m = int(np.sum(unequal))
    shrunk = int(np.sum(np.abs(g) < np.abs(r)))
    per_token = np.array(
        [norm(dd) / norm(rr) for dd, rr in zip(d.reshape(tokens, -1), r.reshape(tokens, -1))]
    )
    worst_rel = int(np.flatnonzero(nonzero)[np.argmax(rel)])
    out = {
        "rel_l2": norm(d) / norm(r),
        "cosine": np.dot(g, r) / (norm(g) * norm(r)),
        "cosine_gap": 0.5 * np.sum((g / norm(g) - r / norm(r)) ** 2),
        "max_abs": np.max(np.abs(d)),
        "max_abs_index": int(np.argmax(np.abs(d))),
        "max_rel": np.max(rel),
        "max_rel_index": worst_rel,
        "zero_ref": int(np.sum((r == 0) & (g != 0))),
        "max_scaled": np.max(scaled),
        "ulp_max": np.max(np.abs(d) / ulp),
        "ulp_mean": np.mean(np.abs(d) / ulp),
        "slope": math.fsum(d * r) / math.fsum(r * r),
        "one_sided": shrunk / m,
        "one_sided_z": (shrunk - m / 2) / (math.sqrt(m) / 2),
        "calc_diff": np.sum(d * d) / (np.sum(g * g) + np.sum(r * r)),
        "sqnr_db": 20.0 * np.log10(norm(r) / norm(d)),
        "token_rel_l2_p50": np.quantile(per_token, 0.5),
        "token_rel_l2_p99": np.quantile(per_token, 0.99),
        "token_rel_l2_max": np.max(per_token),
        "operand_rel_l2": norm(e - r) / norm(r),
        "arith_rel_l2": norm(g - e) / norm(e),
    }
    for name, q in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)]:
        out["rel_" + name] = np.quantile(rel, q)
        out["scaled_" + name] = np.quantile(scaled, q)
    return {key: value if isinstance(value, int) else float(value) for key, value in out.items()}


def main():
    cases = []
    for name, tokens, width, seed, operand, arithmetic, shrink, form, zeros in CASES:
        g, r, e = inputs(tokens, width, seed, operand, arithmetic, shrink, form, zeros)
        checksum = 0
        for array in (g, r, e):
            for word in array.view(np.uint64).tolist():
                checksum = (checksum * 31 + word) & MASK
        cases.append(
            {
                "name": name,
                "tokens": tokens,
                "width": width,
                "seed": seed,
                "operand": operand,
                "arithmetic": arithmetic,
                "shrink": shrink,
                "format": form,
                "zeros": zeros,
                "checksum": f"{checksum:016x}",
                "measures": measures(g, r, e, tokens, form),
            }
        )
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
