"""Negative controls of recombine_check.py: one thing spoiled at a time, each of which it has to notice.

    python recombine_controls.py CHECKPOINT_DIR RUN_DIR

RUN_DIR holds `dump/` and `report.json` of a run of suite recombine over L0.attn that the check accepts.
Exit 1 if any spoiled copy passes, or fails for another reason.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from controls import edit_json, flip_bit

SITE = "L0.attn"
FILE = f"recombine.{SITE}.safetensors"
CHECK = Path(__file__).with_name("recombine_check.py")


def bit_of(tensor, byte=0):
    """A spoiler: one bit of a dumped tensor."""

    def spoil(run):
        flip_bit(run / "dump" / FILE, f"{SITE}.{tensor}", byte)

    spoil.what = f"the lowest bit of byte {byte} of {tensor}"
    return spoil


def scaled(measure, by):
    """A spoiler: one measure of the first row, a little larger."""

    def spoil(run):
        def change(records):
            records[0][measure] *= 1 + by

        edit_json(run, change)

    spoil.what = f"{measure} by {by:g} of itself"
    return spoil


def row_dropped(run):
    """A row less."""
    edit_json(run, lambda records: records.pop())


def file_dropped(run):
    """Nothing dumped."""
    (run / "dump" / FILE).unlink()


row_dropped.what, file_dropped.what = "a row dropped", "the dump dropped"

# What is spoiled, and the kind of check that has to say so. Byte 3 of an f64 is 2^-28 of it, the last of fp32's
# first element the sign and half of the exponent.
CONTROLS = (
    (bit_of("streams.fp32"), "streams bits"),
    (bit_of("streams_bf16.transformers"), "streams_bf16 bits"),
    (bit_of("streams.reference", 3), "reference"),
    (bit_of("streams.transformers.exact", 3), "recipe-exact"),
    (bit_of("comb", 2), "streams bits"),
    (bit_of("post", 3), "gates"),
    (bit_of("f", 1), "f"),
    (scaled("ulp_mean", 1e-8), "measures"),
    (scaled("worst_condition", 1e-8), "measures"),
    (scaled("col_sum_dev", 1e-8), "measures"),
    (scaled("bound_ratio", 1e-4), "bound"),
    (row_dropped, "rows"),
    (file_dropped, "dump"),
)


def noticed(spoil, kind, checkpoint, run):
    """Runs the check on a spoiled copy: it must exit 1 and name the right kind."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "run"
        shutil.copytree(run, copy)
        spoil(copy)
        command = [sys.executable, CHECK, checkpoint, copy, "--sites", "1", "--variants", "4"]
        done = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(f"FAILED {kind}:")]
    good = done.returncode == 1 and bool(said)
    print(f"{'noticed' if good else 'MISSED'}  {spoil.what}")
    print(f"         {said[0] if said else (done.stdout + done.stderr)[-400:]}")
    return good


def main():
    checkpoint, run = Path(sys.argv[1]), Path(sys.argv[2])
    results = [noticed(spoil, kind, checkpoint, run) for spoil, kind in CONTROLS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
