"""Golden values of the indexer, from the published formulas in 50 decimal digits.

    python3 -m venv .venv && .venv/bin/pip install numpy==2.3.5 mpmath==1.3.0
    .venv/bin/python reference/tests/indexer.py

writes reference/tests/data/indexer.safetensors. Inputs are f32 as stored; constants are the f64 nearest
to their decimal value; results are rounded to f64 once, at the end.
"""

from pathlib import Path

import mpmath as mp
import numpy as np

import safetensors_file

mp.mp.dps = 50

THETA = 160000
# factor, original positions, beta_fast, beta_slow
YARN = {
    "plain": None,
    "yarn": (16, 65536, 32, 1),
    # The ramp's ends meet, and one that is all ramp.
    "yarn_step": (4, 6, 32, 1),
    "yarn_wide": (40, 4096, 2000, 0.0001),
}
POSITIONS = [0, 1, 4, 1000, 65535, 262143]
TOKENS, HIDDEN, RANK, HEADS, WIDTH, RATIO, EPS = 23, 40, 24, 3, 16, 4, 1e-6
ROPE_DIMS = 8
QUERIES = [0, 3, 10, 22]


def frequencies(dims, yarn):
    """Radians per position of each pair, as the official code blends them."""
    freqs = [mp.mpf(THETA) ** (-mp.mpf(2 * j) / dims) for j in range(dims // 2)]
    if yarn is None:
        return freqs
    factor, original, fast, slow = yarn
    dim_of = lambda turns: dims * mp.log(original / (turns * 2 * mp.pi)) / (2 * mp.log(THETA))
    low, high = max(mp.floor(dim_of(fast)), 0), min(mp.ceil(dim_of(slow)), dims - 1)
    high = high + mp.mpf(0.001) if low == high else high
    smooth = [1 - min(max((j - low) / (high - low), 0), 1) for j in range(dims // 2)]
    return [f / factor * (1 - s) + f * s for f, s in zip(freqs, smooth)]


def rotated(row, freqs, position):
    """The last values of a row as complex numbers, turned."""
    head, tail = row[: -2 * len(freqs)], row[-2 * len(freqs) :]
    turned = [mp.mpc(tail[2 * j], tail[2 * j + 1]) * mp.expjpi(position * f / mp.pi) for j, f in enumerate(freqs)]
    return head + [part for z in turned for part in (z.real, z.imag)]


def norm(row, weight):
    r = mp.sqrt(mp.fdot(row, row) / len(row) + mp.mpf(EPS))
    return [value / r * w for value, w in zip(row, weight)]


def times(matrix, row):
    return [mp.fdot(line, row) for line in matrix]


def key(kv, score, ape, i):
    """The pooled values of window i; what lies before the context takes no part."""
    out = []
    for c in range(WIDTH):
        rows = []
        for t in range(RATIO * (i - 1), RATIO * (i + 1)):
            channel = c if t < RATIO * i else WIDTH + c
            if t >= 0:
                rows.append((kv[t][channel], mp.exp(score[t][channel] + ape[t % RATIO][channel])))
        out.append(mp.fsum(v * e for v, e in rows) / mp.fsum(e for _, e in rows))
    return out


def bf16(values):
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)


def pipeline(out, name, rng, narrow):
    """Every stage of a small layer; `narrow` weights have the few bits whose products f32 holds."""
    store = bf16 if narrow else (lambda values: np.asarray(values, dtype=np.float32))
    draw = lambda std, *shape: store(std * rng.normal(size=shape))
    given = {
        "y": bf16(3 * rng.normal(size=(TOKENS, HIDDEN))),
        "attn_norm": store(1 + 0.2 * rng.normal(size=(1, HIDDEN))),
        "wq_a": draw(0.2, RANK, HIDDEN),
        "q_norm": store(1 + 0.2 * rng.normal(size=(1, RANK))),
        "wq_b": draw(0.2, HEADS * WIDTH, RANK),
        "weights_proj": draw(0.2, HEADS, HIDDEN),
        "wkv": draw(0.2, 2 * WIDTH, HIDDEN),
        "wgate": draw(0.5, 2 * WIDTH, HIDDEN),
        "ape": draw(1, RATIO, 2 * WIDTH),
        "k_norm": store(1 + 0.2 * rng.normal(size=(1, WIDTH))),
    }
    w = {part: [[mp.mpf(float(v)) for v in row] for row in values] for part, values in given.items()}
    freqs = frequencies(ROPE_DIMS, YARN["yarn"])
    u = [norm(row, w["attn_norm"][0]) for row in w["y"]]
    asked = [u[t] for t in QUERIES]
    qr = [norm(times(w["wq_a"], row), w["q_norm"][0]) for row in asked]
    q = []
    for t, row in zip(QUERIES, qr):
        flat = times(w["wq_b"], row)
        q.append([rotated(flat[h * WIDTH : (h + 1) * WIDTH], freqs, t) for h in range(HEADS)])
    scale = 1 / (mp.sqrt(WIDTH) * mp.sqrt(HEADS))
    weights = [[value * scale for value in times(w["weights_proj"], row)] for row in asked]
    kv, score = ([times(w[part], row) for row in u] for part in ("wkv", "wgate"))
    pooled = [key(kv, score, w["ape"], i) for i in range(TOKENS // RATIO)]
    keys = [rotated(norm(row, w["k_norm"][0]), freqs, RATIO * i) for i, row in enumerate(pooled)]
    dots = [[[mp.fdot(head, k) for head in heads] for k in keys] for heads in q]
    logits = [
        [mp.fsum(v * max(d, 0) for v, d in zip(value, of_key)) for of_key in of_query]
        for value, of_query in zip(weights, dots)
    ]
    seen = [[d for of_key in of_query[: (t + 1) // RATIO] for d in of_key] for t, of_query in zip(QUERIES, dots)]
    results = {
        "u": u,
        "qr": qr,
        "q": [[v for head in heads for v in head] for heads in q],
        "weights": weights,
        "keys": keys,
        "logits": logits,
        "signs": [[sum(len(row) for row in seen), sum(d < 0 for row in seen for d in row)]],
    }
    for part, values in given.items():
        out[f"{name}.{part}"] = ("F32", values)
    for part, values in results.items():
        out[f"{name}.{part}"] = ("F64", np.array([[float(v) for v in row] for row in values]))


def main():
    out = {"rope.positions": ("F64", np.array([POSITIONS], dtype=np.float64))}
    for name, yarn in YARN.items():
        freqs = frequencies(64, yarn)
        angles = [[position * f for f in freqs] for position in POSITIONS]
        out[f"rope.{name}.frequencies"] = ("F64", np.array([[float(f) for f in freqs]]))
        for part, function in (("cos", mp.cos), ("sin", mp.sin)):
            out[f"rope.{name}.{part}"] = ("F64", np.array([[float(function(a)) for a in row] for row in angles]))
    rng = np.random.default_rng(6)
    pipeline(out, "narrow", rng, True)
    pipeline(out, "wide", rng, False)
    path = Path(__file__).parent / "data" / "indexer.safetensors"
    safetensors_file.write(path, out, {"by": "reference/tests/indexer.py"})


main()
