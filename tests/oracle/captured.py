"""Compares the tool's fp64 references with values that another project's model gave.

    python captured.py CAPTURED DUMP_DIR

CAPTURED holds, per site, the inputs `layers.N.SITE.x` and the float64 `mixes`, `pre`, `post`, `comb`
and `y` computed outside this repository; DUMP_DIR is a `run --dump` on exactly those inputs. The
inputs must be equal bit for bit, the references to 1e-12 of the largest value.
"""

import sys
from pathlib import Path

import numpy as np

import safetensors_io
from tally import Tally

STAGES = ("mixes", "pre", "post", "comb", "y")


def check_stage(name, stage, captured, dumped, tally):
    """One stage of one site."""
    want = captured.values.astype(np.float64)
    got = dumped.values.reshape(-1)
    if got.size != want.size:
        tally.fail(f"captured: {name}.{stage}: {got.size} values, expected {want.size}")
        return
    apart = np.abs(got - want.reshape(-1)).max() / np.abs(want).max()
    tally.compare("captured", f"{name}.{stage}", float(apart), got.size)


def main():
    captured = safetensors_io.read(Path(sys.argv[1]))
    dump = Path(sys.argv[2])
    tally = Tally()
    tally.declare("captured x", "differing", 0)
    tally.declare("captured", "of max|r|", 1e-12)
    sites = sorted({tuple(key.split(".")[1:3]) for key in captured if key.endswith(".x")})
    values = 0
    for layer, kind in sites:
        name = f"L{layer}.{kind}"
        dumped = safetensors_io.read(dump / f"{name}.safetensors")
        official = f"layers.{layer}.{kind}"
        x = captured[f"{official}.x"].values
        tally.bits("captured x", name, dumped[f"{name}.x"].values.reshape(x.shape), x)
        for stage in STAGES:
            want = captured[f"{official}.{stage}"]
            values += want.values.size
            check_stage(name, stage, want, dumped[f"{name}.{stage}.reference"], tally)
    tally.require("captured x", 1)
    tally.require("captured", values)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
