"""Negative controls of indexer_check.py: one thing spoiled at a time in a real run, each of which it has to notice.

    python indexer_controls.py CHECKPOINT_DIR RUN_DIR

RUN_DIR holds `dump/` and `report.csv` of a run of suite indexer over one layer, with three variants, that the check
accepts. Exit 1 if any spoiled copy passes, or fails for another reason.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import indexer_check
import safetensors_io
from controls import edit_csv, flip_bit

CHECK = Path(__file__).with_name("indexer_check.py")


def bit_of(tensor, byte=0):
    """A spoiler: one bit of a dumped tensor, whichever file and layer has it."""

    def spoil(run):
        for path in sorted((run / "dump").glob("*.safetensors")):
            for name in safetensors_io.read(path):
                if name.endswith(f".indexer.{tensor}"):
                    flip_bit(path, name, byte)

    spoil.what = f"the lowest bit of byte {byte} of {tensor}"
    return spoil


def cell(measure):
    """A spoiler: a measure of the first row of the selection."""

    def change(cells):
        header = cells[0]
        row = next(row for row in cells[1:] if row[header.index("stage")] == indexer_check.STAGE)
        row[header.index(measure)] = "0.123"

    def spoil(run):
        edit_csv(run, change)

    spoil.what = f"a {measure} in the report"
    return spoil


# What is spoiled, and the kind of check that has to say so. Byte 4 of an f64 is 2^-20 of it.
CONTROLS = (
    (bit_of("logits.fp8-f32scale"), "bits"),
    (bit_of("logits.reference-bf16-fp4", 2), "bits"),
    (bit_of("logits.reference", 4), "reference"),
    (bit_of("logits.fp8-f32scale.exact", 4), "recipe-exact"),
    (bit_of("hidden_states", 1), "reference"),
    (bit_of("top_k.transformers"), "top-k"),
    (cell(indexer_check.RECALL), "recall"),
    (cell(indexer_check.TIE_ADJUSTED), "recall"),
)


def noticed(spoil, kind, checkpoint, run):
    """Runs the check on a spoiled copy: it must exit 1 and name the right kind."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "run"
        shutil.copytree(run, copy)
        spoil(copy)
        command = [sys.executable, CHECK, checkpoint, copy / "dump", copy / "report.csv"]
        done = subprocess.run([*command, "--layers", "1", "--variants", "3"], capture_output=True, text=True)
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
