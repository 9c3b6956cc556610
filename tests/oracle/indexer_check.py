"""Recomputes suite indexer: logits in fp64, two recipes bit by bit, and what each variant selects.

    python indexer_check.py CHECKPOINT_DIR DUMP_DIR REPORT_CSV --layers N --variants M [--arch sm_120] [--inputs FILE]

DUMP_DIR is what `run --suite indexer --dump` writes, in any number of files, for every layer n:
    L{n}.indexer.hidden_states             BF16 [T, d], before attn_norm; with --inputs after it
    L{n}.indexer.positions                 I64 [Q, 1]
    L{n}.indexer.logits.reference          F64 [Q, N], -inf where a key is not visible, here and below
    L{n}.indexer.logits.VARIANT            F32 [Q, N]
    L{n}.indexer.logits.VARIANT.exact      F64 [Q, N]
    L{n}.indexer.top_k.VARIANT             I64 [Q, largest k], -1 where fewer are visible, in any order
--inputs is the file the run took its inputs from. Exit 1 on any failure.

reference       to 1e-10 of a query's largest
bits            of the variants of indexer_recipes.py, every logit
recipe-exact    of those variants, to 1e-12 of a query's largest
top-k           of every variant, the set that its dumped logits give, ties to the lower index
recall          the report's rows of stage top_k, at every k, from the dumped logits and reference: to 1e-12
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

import indexer
import indexer_recipes
import safetensors_io
from chain_check import apart, dumped
from tally import Tally

# The report's names: what says where a row belongs, and the means over queries that it holds.
SUITE, STAGE = "indexer", "top_k"
RECALL, TIE_ADJUSTED, KEPT = "recall", "tie_adjusted_recall", "kept_at_2k"


def top_k(row, k):
    """The k largest of one query's logits, ties to the lower index; -inf is not selected."""
    order = np.argsort(-row, kind="stable")[:k]
    return order[row[order] > -np.inf]


def selected(got, reference, k):
    """Recall, tie-adjusted recall and what twice as many keys keep, as means over queries that see a key."""
    rows = {RECALL: [], TIE_ADJUSTED: [], KEPT: []}
    for ours, truth in zip(got, reference):
        right = top_k(truth, k)
        if not len(right):
            continue
        chosen = top_k(ours, k)
        rows[RECALL].append(np.isin(right, chosen).mean())
        rows[TIE_ADJUSTED].append((truth[chosen] >= truth[right[-1]]).mean())
        rows[KEPT].append(np.isin(right, top_k(ours, 2 * k)).mean())
    return {name: float(np.mean(values)) for name, values in rows.items()}


class Dump:
    """The dumped tensors of one layer."""

    def __init__(self, tensors, layer):
        prefix = f"L{layer}.indexer."
        self.name = prefix.rstrip(".")
        self.tensors = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}

    def get(self, name, dtype, shape, tally):
        """The values of a tensor of just this type and shape, or None and a failure."""
        tensor = self.tensors.get(name)
        if tensor is None:
            tally.fail(f"dump: {self.name}.{name} is not there")
        elif (tensor.dtype, tensor.values.shape[: len(shape)]) != (dtype, shape):
            tally.fail(f"dump: {self.name}.{name} is {tensor.dtype} {tensor.values.shape}, expected {dtype} {shape}")
        else:
            return tensor.values
        return None

    def variants(self):
        """Every variant that has logits, a name with dots in it too."""
        names = [key.removeprefix("logits.") for key in self.tensors if key.startswith("logits.")]
        return sorted(name for name in names if name != "reference" and not name.endswith(".exact"))


def near(kind, name, got, want, seen, tally):
    """Visible logits to a share of the query's largest; the others must be -inf."""
    tally.compare(kind, f"{name}, not visible", 0.0 if (got[~seen] == -np.inf).all() else np.inf, 0)
    some = seen.any(axis=1)
    off = apart(np.where(seen, got, 0)[some], np.where(seen, want, 0)[some])
    tally.compare(kind, name, float(off.max(initial=0)), int(seen.sum()))


def check_recipe(dump, variant, made, seen, tally):
    """Logits and recipe-exact values of a variant that this oracle has."""
    name = f"logits.{variant}"
    got = dump.get(name, "F32", seen.shape, tally)
    if got is not None:
        tally.bits("bits", f"{dump.name}.{variant}", got, np.where(seen, made.got, np.float32(-np.inf)))
    exact = dump.get(f"{name}.exact", "F64", seen.shape, tally)
    if exact is not None:
        near("recipe-exact", f"{dump.name}.{variant}", exact, made.exact, seen, tally)


def check_top_k(dump, variant, logits, tally):
    """The dumped selection of every query against that of the dumped logits."""
    theirs = dump.get(f"top_k.{variant}", "I64", logits.shape[:1], tally)
    if theirs is None:
        return
    for query, (row, chosen) in enumerate(zip(logits, theirs)):
        want = sorted(top_k(row, len(chosen)))
        padded = [-1] * (len(chosen) - len(want)) + want
        wrong = int((np.sort(chosen) != padded).sum())
        tally.compare("top-k", f"{dump.name}.{variant} query {query}", wrong, len(chosen))


def of_set(name, queries):
    """The queries of a set: the second half, the larger one, is at the context's end."""
    along = queries // 2
    return {"all": slice(None), "along": slice(along), "end": slice(along, None)}[name]


def check_recall(dump, layer, variant, logits, reference, rows, tally):
    """Every row of the report about this variant's selection; the rows seen."""
    own = [row for row in rows if (row["layer"], row["variant"]) == (str(layer), variant)]
    for row in own:
        k, queries = int(row["k"]), of_set(row["query_set"], len(logits))
        for name, want in selected(logits[queries], reference[queries], k).items():
            if name == KEPT and not row[name]:
                continue
            where = f"{dump.name}.{variant} {row['query_set']} k {k} {name} {row.get(name)}, expected {want!r}"
            tally.compare("recall", where, abs(float(row.get(name) or "nan") - want))
    if not own:
        tally.fail(f"recall: {dump.name}.{variant}: the report has no row")
    return own


def inputs_of(dump, layer, file, tally):
    """What the layer got: hidden states and queries, and what a file gave beyond them."""
    y = dump.get("hidden_states", "BF16", (), tally)
    positions = dump.get("positions", "I64", (), tally)
    if y is None or positions is None:
        return None
    if file is None:
        return indexer.Inputs(y, positions.ravel())
    residual = file.get(f"layers.{layer}.indexer.q_residual")
    given = file[f"layers.{layer}.indexer.hidden_states"].values[: len(y)]
    tally.bits("bits", f"{dump.name}.hidden_states", y, given)
    return indexer.Inputs(y, positions.ravel(), u=y, qr=residual.values if residual else None)


def check_layer(checkpoint, tensors, layer, file, arch, rows, tally):
    """All of one layer; its variants and the rows of the report that were compared."""
    dump = Dump(tensors, layer)
    inputs = inputs_of(dump, layer, file, tally)
    if inputs is None:
        return [], []
    loaded = indexer.load(checkpoint, layer)
    want = indexer.reference(loaded, inputs)
    seen = indexer.visible(inputs.positions, want.shape[1])
    reference = dump.get("logits.reference", "F64", seen.shape, tally)
    if reference is None:
        return [], []
    near("reference", dump.name, reference, want, seen, tally)
    used = []
    for variant in dump.variants():
        if variant in indexer_recipes.RECIPES:
            check_recipe(dump, variant, indexer_recipes.RECIPES[variant](loaded, inputs, arch), seen, tally)
        logits = dump.get(f"logits.{variant}", "F32", seen.shape, tally)
        if logits is not None:
            check_top_k(dump, variant, logits, tally)
            used += check_recall(dump, layer, variant, logits, reference, rows, tally)
    return dump.variants(), used


def check(checkpoint, dump, report, layers, variants, arch="sm_120", file=None):
    """Everything; the tally of what was compared."""
    tally = Tally()
    tally.declare("reference", "of a query's largest", 1e-10)
    tally.declare("bits", "differing", 0)
    tally.declare("recipe-exact", "of a query's largest", 1e-12)
    tally.declare("top-k", "keys wrong", 0)
    tally.declare("recall", "off", 1e-12)
    with open(report, newline="") as cells:
        rows = [row for row in csv.DictReader(cells) if (row["suite"], row["stage"]) == (SUITE, STAGE)]
    tensors = dumped(Path(dump))
    found = sorted({int(key[1:].split(".")[0]) for key in tensors if key.split(".")[1:2] == ["indexer"]})
    recipes = used = 0
    for layer in found:
        seen, compared = check_layer(checkpoint, tensors, layer, file, arch, rows, tally)
        recipes += len(set(seen) & set(indexer_recipes.RECIPES))
        used += len(compared)
        if len(seen) != variants:
            tally.fail(f"dump: {len(seen)} variants of layer {layer}, expected {variants}")
    if (len(found), recipes) != (layers, layers * len(indexer_recipes.RECIPES)):
        tally.fail(f"dump: {len(found)} layers and {recipes} recipes of this oracle's, expected {layers} layers")
    if used != len(rows):
        tally.fail(f"recall: nothing recomputes {len(rows) - used} rows of stage {STAGE}")
    for kind in tally.kinds:
        tally.require(kind, layers * variants if kind in ("top-k", "recall") else layers)
    return tally


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("dump", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--variants", type=int, required=True)
    parser.add_argument("--arch", default="sm_120")
    parser.add_argument("--inputs")
    args = parser.parse_args()
    file = safetensors_io.read(args.inputs) if args.inputs else None
    opened = safetensors_io.Checkpoint(args.checkpoint)
    tally = check(opened, args.dump, args.report, args.layers, args.variants, args.arch, file)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
