#!/usr/bin/env python3
"""Writes fixtures/crosscheck.csv: rows in which any two values of different axes meet at least once, and every
combination of small batches.

Greedy and deterministic: each row takes, axis by axis, the value that brings the most new pairs. Small batches then
meet everything else, but for the splits and inputs that are there beside those of the full product.
"""

import csv
import itertools
import pathlib

AXES = {
    "depth": ["16384", "20480", "28672"],
    "tokens": ["1", "13", "64", "128", "1000", "4096", "8192"],
    "splits": ["1", "2", "3", "7", "16", "32", "64", "engine", "tilelang", "triton-7"],
    "inputs": ["normal", "outlier", "copies", "scaled:1e-3", "scaled:7e4", "hostile", "hostile-f32"],
}

SMALL = {"1", "13", "64", "128"}
# In pairs only: the odd bounds of another engine, and x that is no bf16.
BESIDE = {"triton-7", "hostile-f32"}


def pairs(row):
    return set(itertools.combinations(sorted(row.items()), 2))


def main():
    names = sorted(AXES, key=lambda name: -len(AXES[name]))
    missing = {
        pair
        for a, b in itertools.combinations(AXES, 2)
        for x, y in itertools.product(AXES[a], AXES[b])
        for pair in pairs({a: x, b: y})
    }
    rows = []
    while missing:
        # Start from a pair that is missing, so that every row brings something.
        row = dict(min(missing))
        for name in names:
            if name not in row:
                row[name] = max(AXES[name], key=lambda value: len(missing & pairs({**row, name: value})))
        missing -= pairs(row)
        rows.append(row)
    for values in itertools.product(*AXES.values()):
        row = dict(zip(AXES, values, strict=True))
        if row["tokens"] in SMALL and not BESIDE & set(values) and row not in rows:
            rows.append(row)
    rows.sort(key=lambda row: [AXES[name].index(row[name]) for name in AXES])
    path = pathlib.Path(__file__).parent.parent / "fixtures" / "crosscheck.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, AXES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main()
