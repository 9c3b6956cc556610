"""Negative controls: spoils one thing at a time in a good run and expects the check to fail.

    python controls.py CHECKPOINT_DIR RUN_DIR

RUN_DIR holds `dump/`, `report.json` and `report.csv` of a run over one site that check.py accepts.
A check that cannot fail is a defect: exit 1 if any spoiled run passes, or fails for another reason.
"""

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors_io

SITE = "L0.attn"
CHECK = Path(__file__).with_name("check.py")


def flip_bit(path, tensor, byte=0):
    """Flips the lowest bit of one stored byte."""
    at = safetensors_io.data_start(path, tensor) + byte
    with open(path, "r+b") as file:
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ 1]))


def edit_json(run, change):
    """Rewrites report.json after `change` of its records."""
    path = run / "report.json"
    report = json.loads(path.read_text())
    change(report["records"])
    path.write_text(json.dumps(report))


def edit_csv(run, change):
    """Rewrites report.csv after `change` of its rows, header first."""
    path = run / "report.csv"
    with open(path, newline="") as file:
        cells = list(csv.reader(file))
    change(cells)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(cells)


def spoil_bit(run, checkpoint):
    """One bit of one dumped `dot`."""
    flip_bit(run / "dump" / f"{SITE}.safetensors", f"{SITE}.dot.tf32")


def spoil_reference(run, checkpoint):
    """A reference moved by 2^-28 of itself: the lowest bit of byte 3 of an f64."""
    flip_bit(run / "dump" / f"{SITE}.safetensors", f"{SITE}.mixes.reference", byte=3)


def spoil_exact(run, checkpoint):
    """A recipe-exact value likewise."""
    flip_bit(run / "dump" / f"{SITE}.safetensors", f"{SITE}.dot.tf32.exact", byte=3)


def spoil_measure(run, checkpoint):
    """One measure of one JSON record, by 1e-8 of itself; the CSV agrees, so only we can know."""

    def change_json(records):
        records[-1]["ulp_mean"] *= 1 + 1e-8

    def change_csv(cells):
        cells[-1][cells[0].index("ulp_mean")] = repr(spoiled["ulp_mean"])

    edit_json(run, change_json)
    spoiled = json.loads((run / "report.json").read_text())["records"][-1]
    edit_csv(run, change_csv)


def spoil_bound(run, checkpoint):
    """bound_ratio of `dot`."""

    def change(records):
        records[0]["bound_ratio"] *= 1 + 1e-5

    edit_json(run, change)


def spoil_rows(run, checkpoint):
    """A row dropped from JSON and CSV alike."""
    edit_json(run, lambda records: records.pop())
    edit_csv(run, lambda cells: cells.pop())


def spoil_csv(run, checkpoint):
    """One cell of the CSV."""
    edit_csv(run, lambda cells: cells[1].__setitem__(cells[0].index("slope"), "1e-5"))


def spoil_dump(run, checkpoint):
    """Nothing dumped at all."""
    (run / "dump" / f"{SITE}.safetensors").unlink()


def spoil_weight(run, checkpoint):
    """A weight of the checkpoint: the tool then measured another model."""
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    name = "layers.0.hc_attn_fn"
    # The highest fraction bit that is the lowest of a byte: 2^-7 of one weight.
    flip_bit(checkpoint / index["weight_map"][name], name, byte=2)


# What is spoiled, and the kind of check that has to say so.
CONTROLS = (
    (spoil_bit, "dot bits"),
    (spoil_reference, "reference"),
    (spoil_exact, "recipe-exact"),
    (spoil_measure, "measures"),
    (spoil_bound, "bound dot"),
    (spoil_rows, "rows"),
    (spoil_csv, "csv"),
    (spoil_dump, "dump"),
    (spoil_weight, "reference"),
)


def noticed(spoil, kind, checkpoint, run):
    """Runs the check on a spoiled copy: it must exit 1 and name the right kind."""
    with tempfile.TemporaryDirectory() as work:
        copy, weights = Path(work) / "run", Path(work) / "checkpoint"
        shutil.copytree(run, copy)
        shutil.copytree(checkpoint, weights)
        spoil(copy, weights)
        command = [sys.executable, CHECK, weights, copy / "dump", copy / "report.json", copy / "report.csv"]
        done = subprocess.run([*command, "--sites", "1", "--variants", "2"], capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(f"FAILED {kind}:")]
    good = done.returncode == 1 and bool(said)
    print(f"{'noticed' if good else 'MISSED'}  {spoil.__doc__.splitlines()[0]}")
    print(f"         {said[0] if said else (done.stdout + done.stderr)[-400:]}")
    return good


def main():
    checkpoint, run = Path(sys.argv[1]), Path(sys.argv[2])
    results = [noticed(spoil, kind, checkpoint, run) for spoil, kind in CONTROLS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
