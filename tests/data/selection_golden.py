"""Golden selection measures, computed with NumPy from the definitions alone.

    .venv/bin/python tests/data/selection_golden.py > tests/data/selection_golden.json

Needs NumPy (written with 2.x). Scores come from a linear congruential generator that the Rust test repeats: IEEE
operations only, so that both sides hold the same bits; a checksum proves it. Top k by `numpy.lexsort`: descending
score, then ascending index. Sets are Python sets of indices.
"""

import json
import struct

import numpy as np

MASK = (1 << 64) - 1
WINDOW = 64
CASES = [
    # name, keys, visible, seed, error, grid of the reference, grid of the candidate, shift of the chosen keys
    ("rounding", 1500, 1500, 1, 2.0**-7, 0.0, 0.0, 0),
    ("bf16_like", 1500, 1500, 2, 2.0**-9, 0.0, 2.0**-4, 0),
    ("ties_in_truth", 1500, 1400, 3, 2.0**-6, 2.0**-3, 0.0, 0),
    ("integers", 900, 900, 4, 0.0, 1.0, 1.0, 0),
    ("shifted_keys", 1500, 1500, 5, 2.0**-10, 0.0, 0.0, 3),
    ("few_visible", 1500, 70, 6, 2.0**-5, 0.0, 0.0, 0),
    ("noise", 800, 700, 7, 2.0, 0.0, 0.0, 0),
    ("no_error", 800, 800, 8, 0.0, 2.0**-10, 0.0, 0),
]
KS = [1, 20, 64, 512, 699]


class Noise:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 11) * 2.0**-53


def scores(keys, seed, error, grid, got_grid):
    """Sums of four uniform numbers, in (-2, 2)."""
    noise = Noise(seed)
    ref, got = [], []
    for _ in range(keys):
        s = noise.uniform() + noise.uniform() + noise.uniform() + noise.uniform() - 2.0
        if grid != 0.0:
            s = np.floor(s / grid) * grid
        g = s + error * (noise.uniform() - 0.5)
        if got_grid != 0.0:
            g = np.floor(g / got_grid) * got_grid
        ref.append(float(s))
        got.append(struct.unpack("<f", struct.pack("<f", g))[0])
    return np.array(ref), np.array(got)


def top(values, k):
    return np.lexsort((np.arange(len(values)), -values))[:k]


def choose(got, visible, k, shift):
    """The candidate's keys, moved by `shift`: some leave the visible ones."""
    return [int(key) + shift for key in top(got[:visible], k)]


def measures(ref, got, visible, k, chosen, deeper):
    s, g = ref[:visible], got[:visible]
    order = top(s, visible)
    n = min(k, visible)
    a = set(order[:n].tolist())
    b = {key for key in chosen if 0 <= key < visible}
    cut = s[order[n - 1]]
    room = n - int(np.sum(s > cut))
    least = s.min()
    kept = len(a & b)
    value = lambda keys: sum(s[key] - least for key in sorted(keys))
    mass = lambda keys: sum(max(s[key], 0.0) for key in sorted(keys))
    lost = [rank for rank, key in enumerate(order[:n], 1) if int(key) not in b]
    out = {
        "recall": kept / n,
        "kept_at": len(a & {key for key in deeper if 0 <= key < visible}) / n,
        "tie_adjusted_recall": (sum(s[key] > cut for key in b) + min(sum(s[key] == cut for key in b), room)) / n,
        "jaccard": kept / len(a | b),
        "value_recall": value(b) / value(a),
        "score_mass_lost": mass(a - b) / mass(a),
        "best_lost_rank": lost[0] if lost else None,
        "ties_ref": int(np.sum(s == cut)),
        "ties_got": int(np.sum(g == np.sort(g)[::-1][n - 1])),
        "margin": None,
        "margin_over_error": None,
        "inside_error": None,
    }
    if k < visible:
        h = min(WINDOW, k, visible - k)
        around = order[k - h : k + h]
        rms = float(np.sqrt(np.mean((g[around] - s[around]) ** 2)))
        gap = float(np.median(s[around][:-1] - s[around][1:]))
        middle = (s[order[k - 1]] + s[order[k]]) / 2
        out["margin"] = float(s[order[k - 1]] - s[order[k]])
        out["margin_over_error"] = gap / rms if rms else "Infinity"
        out["inside_error"] = int(np.sum(np.abs(s - middle) <= rms))
    return {name: float(x) if isinstance(x, np.floating) else x for name, x in out.items()}


def main():
    cases = []
    for name, keys, visible, seed, error, grid, got_grid, shift in CASES:
        ref, got = scores(keys, seed, error, grid, got_grid)
        checksum = 0
        for array in (ref, got):
            for word in array.astype(np.float64).view(np.uint64).tolist():
                checksum = (checksum * 31 + word) & MASK
        cases.append(
            {
                "name": name,
                "keys": keys,
                "visible": visible,
                "seed": seed,
                "error": error,
                "grid": grid,
                "got_grid": got_grid,
                "shift": shift,
                "checksum": f"{checksum:016x}",
                "at": {
                    str(k): measures(
                        ref, got, visible, k, choose(got, visible, k, shift), choose(got, visible, 2 * k, shift)
                    )
                    for k in KS
                },
            }
        )
    recalls = [case["at"]["64"]["recall"] for case in cases]
    spread = {"mean": float(np.mean(recalls)), "p1": float(np.quantile(recalls, 0.01)), "worst": min(recalls)}
    print(json.dumps({"cases": cases, "recall_at_64": spread}, indent=1))


if __name__ == "__main__":
    main()
