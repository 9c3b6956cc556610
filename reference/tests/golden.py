"""Golden values of the hyper-connection mixing, from the published formulas in 50 decimal digits.

    python3 -m venv .venv && .venv/bin/pip install numpy==2.3.5 mpmath==1.3.0
    .venv/bin/python reference/tests/golden.py

writes reference/tests/data/golden.safetensors. Inputs are f32 and f64 as stored; constants are the
f64 nearest to their decimal value; results are rounded to f64 once, at the end. Tensors named
`*_ordered` are the exception: they follow the documented order of operations in plain double
arithmetic, and must be met bit for bit.
"""

import math
from pathlib import Path

import mpmath as mp
import numpy as np

import safetensors_file

mp.mp.dps = 50


def sigmoid(z):
    return 1 / (1 + mp.exp(-z))


def sinkhorn(logits, iters, eps):
    size = range(len(logits))
    tops = [max(row) for row in logits]
    c = [[mp.exp(logits[j][k] - tops[j]) for k in size] for j in size]
    sums = [mp.fsum(row) for row in c]
    c = [[c[j][k] / sums[j] + eps for k in size] for j in size]

    def columns(c):
        sums = [mp.fsum(c[j][k] for j in size) for k in size]
        return [[c[j][k] / (sums[k] + eps) for k in size] for j in size]

    def rows(c):
        sums = [mp.fsum(c[j]) for j in size]
        return [[c[j][k] / (sums[j] + eps) for k in size] for j in size]

    c = columns(c)
    for _ in range(iters - 1):
        c = columns(rows(c))
    return c


def split(mixes, scale, base, hc, iters, eps):
    """One token's pre, post and flattened comb."""
    m, b, s = ([mp.mpf(float(v)) for v in values] for values in (mixes, base, scale))
    pre = [sigmoid(m[j] * s[0] + b[j]) + eps for j in range(hc)]
    post = [2 * sigmoid(m[hc + j] * s[1] + b[hc + j]) for j in range(hc)]
    place = lambda j, k: 2 * hc + hc * j + k
    logits = [[m[place(j, k)] * s[2] + b[place(j, k)] for k in range(hc)] for j in range(hc)]
    comb = sinkhorn(logits, iters, eps)
    return pre, post, [value for row in comb for value in row]


def f64(values):
    return np.array([[float(v) for v in row] for row in values], dtype=np.float64)


def split_case(out, name, rng, mixes, hc, iters, eps, scale=(1.0, 1.0, 1.0), base=None):
    base = rng.normal(size=(2 + hc) * hc) if base is None else base
    results = [split(row, scale, base, hc, iters, mp.mpf(eps)) for row in mixes]
    out[f"{name}.mixes"] = ("F64", mixes)
    out[f"{name}.scale"] = ("F64", np.array(scale))
    out[f"{name}.base"] = ("F64", np.asarray(base, dtype=np.float64))
    out[f"{name}.constants"] = ("F64", np.array([hc, iters, eps]))
    for index, part in enumerate(("pre", "post", "comb")):
        out[f"{name}.{part}"] = ("F64", f64(result[index] for result in results))


def hostile_mixes():
    """Logits at the edges of exp, in f32 and f64, the equal, the asymmetric and the lopsided."""
    ramp = np.arange(24.0) - 8.0
    rows = [np.zeros(24), ramp, -ramp, np.full(24, 30000.0)]
    for edge in (86.0, 88.7, 100.0, 1e4):
        signs = np.where(np.arange(24) % 3 == 0, 1.0, -1.0)
        rows += [np.full(24, edge), np.full(24, -edge), edge * signs]
    lopsided = np.zeros(24)
    lopsided[12:16] = -60.0
    return np.array(rows + [lopsided])


def chain(terms):
    """The documented order of a dot product: chains of 128 terms from zero, then their sums ascending."""
    total = 0.0
    for start in range(0, len(terms), 128):
        part = 0.0
        for term in terms[start : start + 128]:
            part += term
        total += part
    return total


def square_sum(row):
    """The documented order of a sum of squares: blocks of 128 in 16 lanes, folded in halves."""
    total = 0.0
    for start in range(0, len(row), 128):
        lanes = [0.0] * 16
        for index, value in enumerate(row[start : start + 128]):
            lanes[index % 16] += value * value
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [low + high for low, high in zip(lanes[:half], lanes[half:])]
        total += lanes[0]
    return total


def ordered(out, x, fn, pre, width):
    """Every stage around the projection in Python floats, which are IEEE doubles."""
    rows, weights = ([[float(v) for v in row] for row in values] for values in (x, fn))
    dots = [[chain([a * b for a, b in zip(row, weight)]) for weight in weights] for row in rows]
    r = [1.0 / math.sqrt(square_sum(row) / len(row) + 1e-6) for row in rows]
    mixes = [[value * factor for value in row] for row, factor in zip(dots, r)]
    y = [[0.0] * width for _ in rows]
    for token, row in enumerate(rows):
        for j, gate in enumerate(pre[token]):
            for c in range(width):
                y[token][c] += float(gate) * row[j * width + c]
    for name, values in [("r", [r]), ("dot", dots), ("mixes", mixes), ("y", y)]:
        out[f"projection.{name}_ordered"] = ("F64", f64(values))


def projection_case(out, rng):
    """Five rows of ragged K: ordinary, zero, huge, tiny, constant."""
    hc, width = 4, 37
    x = rng.normal(size=(5, hc * width)).astype(np.float32)
    x[1] = 0
    x[2] *= np.float32(1e18)
    x[3] *= np.float32(1e-23)
    x[4] = np.float32(1.003)
    fn = (0.039 * rng.normal(size=((2 + hc) * hc, hc * width))).astype(np.float32)
    pre = rng.uniform(1e-6, 1, size=(5, hc))
    exact_x = [[mp.mpf(float(v)) for v in row] for row in x]
    exact_fn = [[mp.mpf(float(v)) for v in row] for row in fn]
    eps = mp.mpf(1e-6)
    r = [1 / mp.sqrt(mp.fsum(v * v for v in row) / len(row) + eps) for row in exact_x]
    dots = [[mp.fdot(row, weights) for weights in exact_fn] for row in exact_x]
    mixes = [[value * factor for value in row] for row, factor in zip(dots, r)]
    y = [
        [mp.fsum(mp.mpf(float(p[j])) * row[j * width + c] for j in range(hc)) for c in range(width)]
        for row, p in zip(exact_x, pre)
    ]
    for name, kind, values in [("x", "F32", x), ("fn", "F32", fn), ("pre", "F64", pre)]:
        out[f"projection.{name}"] = (kind, values)
    for name, values in [("r", [r]), ("dot", dots), ("mixes", mixes), ("y", y)]:
        out[f"projection.{name}"] = ("F64", f64(values))
    ordered(out, x, fn, pre, width)


def added(terms):
    """Left to right; Python's own sum of floats is a compensated one."""
    total, *rest = terms
    for term in rest:
        total += term
    return total


def recombined(x, f, post, comb):
    """One token: X'[k,c] = post_k f_c + sum_j comb[j,k] X[j,c], the sublayer's term first."""
    hc, width = len(post), len(f)
    terms = lambda k, c: [comb[hc * j + k] * x[j * width + c] for j in range(hc)]
    return [added([post[k] * f[c], *terms(k, c)]) for k in range(hc) for c in range(width)]


def streams_stages(given, eps, root):
    """The functions of streams in f64 but the head's, on numbers of any kind; `root` is their square root."""
    hc, width = len(given["pre"][0]), len(given["weight"][0])
    tokens = list(zip(given["x"], given["pre"], given["f"], given["post"], given["comb"]))
    collapsed = lambda x, pre, c: added([0.0, *(pre[j] * x[j * width + c] for j in range(hc))])
    y = [[collapsed(x, pre, c) for c in range(width)] for x, pre, *_ in tokens]
    factors = [1 / root(square_sum(row) / width + eps) for row in y]
    return {
        "dot": [[chain([a * b for a, b in zip(x, fn)]) for fn in given["fn"]] for x in given["x"]],
        "squares": [[square_sum(x) for x in given["x"]]],
        "y": y,
        "u": [[v * r * w for v, w in zip(row, given["weight"][0])] for row, r in zip(y, factors)],
        "streams": [recombined(x, f, post, comb) for x, _, f, post, comb in tokens],
    }


def streams_case(out, rng):
    """Four rows of streams that need all of f64's digits: ordinary, zero, huge, tiny."""
    hc, width = 4, 37
    size = np.array([[1], [0], [1e100], [1e-100]])
    given = {
        "x": ("F64", size * rng.normal(size=(4, hc * width))),
        "fn": ("F32", (0.039 * rng.normal(size=(6, hc * width))).astype(np.float32)),
        "pre": ("F64", rng.uniform(1e-6, 1, size=(4, hc))),
        "weight": ("F32", (1 + 0.1 * rng.normal(size=(1, width))).astype(np.float32)),
        "f": ("F64", size * rng.normal(size=(4, width))),
        "post": ("F64", rng.uniform(0, 2, size=(4, hc))),
        "comb": ("F64", rng.uniform(0, 1, size=(4, hc * hc))),
        "head_mixes": ("F64", 30 * rng.normal(size=(4, hc))),
        "head_base": ("F64", rng.normal(size=(1, hc))),
    }
    scale, eps = 0.7, 1e-6

    def as_numbers(number):
        rows = lambda values: [[number(float(v)) for v in row] for row in values]
        return {name: rows(values) for name, (_, values) in given.items()}

    exact = as_numbers(mp.mpf)
    gate = lambda m, b: sigmoid(m * mp.mpf(scale) + b) + mp.mpf(eps)
    gates = [[gate(*pair) for pair in zip(row, exact["head_base"][0])] for row in exact["head_mixes"]]
    results = {**streams_stages(exact, mp.mpf(eps), mp.sqrt), "head": gates}
    for name, tensor in given.items():
        out[f"streams.{name}"] = tensor
    for name, values in results.items():
        out[f"streams.{name}.result"] = ("F64", f64(values))
    for name, values in streams_stages(as_numbers(float), eps, math.sqrt).items():
        out[f"streams.{name}.result_ordered"] = ("F64", f64(values))


def main():
    rng = np.random.default_rng(20)
    out = {}
    projection_case(out, rng)
    split_case(out, "flash", rng, 5 * rng.normal(size=(24, 24)), 4, 20, 1e-6, (0.9, 1.1, 0.8))
    split_case(out, "hostile", rng, hostile_mixes(), 4, 20, 1e-6, base=np.zeros(24))
    split_case(out, "three-streams", rng, 4 * rng.normal(size=(6, 15)), 3, 7, 1e-5)
    split_case(out, "one-iteration", rng, 4 * rng.normal(size=(6, 24)), 4, 1, 1e-3)
    streams_case(out, rng)
    path = Path(__file__).parent / "data" / "golden.safetensors"
    path.parent.mkdir(exist_ok=True)
    safetensors_file.write(path, out, {"by": "reference/tests/golden.py", "digits": "50"})


main()
