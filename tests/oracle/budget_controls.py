"""Negative controls of budget_check.py and gains_check.py: one thing spoiled at a time, which each has to notice.

    python budget_controls.py CHECKPOINT_DIR BUDGET_RUN_DIR GAINS_RUN_DIR

The first holds a run of suites mix, chain and budget with variants bf16 and bf16-patch, the second one of mix and
gains with variants tf32 and bf16, both over all layers and accepted by their checks. Exit 1 if any spoiled copy
passes, or fails for another reason.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from controls import edit_json, flip_bit

HERE = Path(__file__).parent
# The dumps of L0.attn and behind L3.ffn.
SITE, LAST = "L0.attn.safetensors", "chain.L3.ffn.safetensors"


def rows(records, suite="budget", **key):
    """The rows with these fields."""
    found = [r for r in records if r["suite"] == suite and all(r.get(name) == want for name, want in key.items())]
    assert found, key
    return found


def scaled(measure, by, **key):
    """A spoiler: a measure of one row, times a factor."""

    def change(records):
        rows(records, **key)[0][measure] *= by

    return lambda run: edit_json(run, change)


def exchanged(field, a, b, **key):
    """A spoiler: two values of a key field in each other's place, at one stage."""

    def change(records):
        first, second = rows(records, **{field: a}, **key)[0], rows(records, **{field: b}, **key)[0]
        first[field], second[field] = b, a

    return lambda run: edit_json(run, change)


def dropped(**key):
    """A spoiler: a row less."""
    return lambda run: edit_json(run, lambda records: records.remove(rows(records, **key)[0]))


def added(extra, **key):
    """A spoiler: a source that nothing brings."""

    def change(records):
        records.append(rows(records, **key)[0] | {"source": extra})

    return lambda run: edit_json(run, change)


def bit(file, tensor, byte=0):
    """A spoiler: one bit of a dumped tensor."""
    return lambda run: flip_bit(run / "dump" / file, tensor, byte)


MIXES = {"layer": 0, "site": "attn", "stage": "mixes", "variant": "bf16-patch"}
INPUT = MIXES | {"stage": "y_bf16"}
STREAMS = {"layer": 3, "site": "ffn", "stage": "streams", "variant": "bf16"}
GAIN = {"suite": "gains", "layer": 0, "site": "attn", "variant": "tf32"}

# What is spoiled, how, and the kind of failure that has to say so.
BUDGET = (
    ("a share changed", scaled("share", 1 + 1e-6, source="weight", **MIXES), "sites"),
    ("a share at the layer input", scaled("share", 1 + 1e-6, source="layer-io", **INPUT), "sites"),
    ("sources exchanged", exchanged("source", "weight", "output", **MIXES), "sites"),
    ("unit and split sums exchanged", exchanged("source", "unit", "split-sums", **MIXES), "sites"),
    ("a slope's sign", scaled("slope", -1, source="weight", **MIXES), "sites"),
    ("a slope's sign, of the total", scaled("slope", -1, source="total", **INPUT), "sites"),
    ("variants exchanged", exchanged("variant", "bf16", "bf16-patch", source="weight", layer=0, stage="comb"), "sites"),
    ("explained", scaled("explained", 1 + 1e-6, source="total", **INPUT), "sites"),
    ("a row dropped", dropped(source="epilogue", **MIXES), "sites"),
    ("a source too many", added("operands", source="weight", **MIXES), "sites"),
    ("a cross term's sign", scaled("cross", -1, source="weight*output", **MIXES), "sites"),
    ("a strand 1e-6 off", scaled("rel_l2", 1 + 1e-6, source="residual", **STREAMS), "strands"),
    ("a strand's slope's sign", scaled("slope", -1, source="layer-io", **STREAMS), "strands"),
    ("strands exchanged", exchanged("source", "layer-io", "residual", **STREAMS), "strands"),
    ("a strand dropped", dropped(source="weight", **STREAMS), "strands"),
    ("a share along the chain", scaled("share", 1 + 1e-6, source="residual", **STREAMS), "chains"),
    ("explained along the chain", scaled("explained", 1 + 1e-6, source="total", **STREAMS), "chains"),
    ("a bit of dot", bit(SITE, "L0.attn.dot.bf16"), "dot bits"),
    ("a bit of y", bit(SITE, "L0.attn.y.bf16", 2), "sites"),
    ("a bit of the streams", bit(LAST, "L3.ffn.streams.bf16", 1), "strands"),
)
GAINS = (
    ("an error at the end", scaled("rel_l2", 1 + 1e-6, **GAIN), "gains"),
    ("variants exchanged", exchanged("variant", "tf32", "bf16", suite="gains", layer=0, site="attn"), "gains"),
    ("a row of a site dropped", dropped(**(GAIN | {"layer": 2})), "rows"),
    ("a gain that is not of its error", scaled("gain", 2, suite="gains", direction="common", layer=1), "places"),
    ("a bit of comb", bit(SITE, "L0.attn.comb.tf32", 1), "gains"),
)


def noticed(what, spoil, kind, command, run):
    """Runs the check on a spoiled copy: it must exit 1 and name the right kind."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "run"
        shutil.copytree(run, copy)
        spoil(copy)
        done = subprocess.run([sys.executable, *command(copy)], capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(f"FAILED {kind}:")]
    good = done.returncode == 1 and bool(said)
    print(f"{'noticed' if good else 'MISSED'}  {what}")
    print(f"         {said[0] if said else (done.stdout + done.stderr)[-400:]}")
    return good


def main():
    checkpoint, of_budget, of_gains = (Path(word) for word in sys.argv[1:4])

    def budget(run):
        return [HERE / "budget_check.py", checkpoint, run, "--sites", "8", "--variants", "2"]

    def gains(run):
        return [HERE / "gains_check.py", checkpoint, run, "--variants", "2"]

    results = [noticed(*control, budget, of_budget) for control in BUDGET]
    results += [noticed(*control, gains, of_gains) for control in GAINS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
