"""Recomputes suite budget: every source at every stage of a site, and of the chain all that fp64 and the units give.

    python budget_check.py CHECKPOINT_DIR RUN_DIR --sites N --variants M

RUN_DIR holds `dump/` and `report.json` of `run --suite mix,chain,budget --dump` over all layers. At a site the states
of budget.py are this oracle's own, up to the stored dot, whose bits must be those dumped; mixes, gates and y in fp32
are read from the dump of suite mix. Along the chain the strands of layer-io, residual and all sources up to the
stored dot are this oracle's chains (chain.py), the total is that of the dumped streams, and shares and `explained`
follow from the rows' own slopes and rel_l2 by the formulas. Exit 1 on any failure.

Tolerances: 1e-9 of a value is what sums in another order leave; beside it a state is known to NOISE of the truth's
norm, as fp64 sums of K products are, and what that does to a source of size e is NOISE/e of it.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import budget
import chain
import formats
import model
import recipes
import rows
import safetensors_io
from chain_check import dumped
from tally import Tally

NOISE = 2.0**-52
RELATIVE = 1e-9
STORAGE = {"fp32": "F32", "bf16": "BF16"}


def allowed(source, measure, value, want):
    """How far a measure may be from `value`: see the tolerances above."""
    total = want["total"]["rel_l2"]
    one = NOISE / total
    if measure == "cross":
        sizes = sum(want[name]["rel_l2"] for name in source.split("*"))
        floor = 4 * one * sizes / total
    elif measure in ("share", "explained"):
        floor = 4 * one * len(want)
    else:
        floor = NOISE
    return RELATIVE * abs(value) + floor


class Rows:
    """The budget's rows by place, stage, variant and source; each is taken once."""

    def __init__(self, records, tally):
        self.tally = tally
        self.rows = {}
        for row in records:
            if row["suite"] == "budget":
                self.rows.setdefault(self._stage(row), {})[row["source"]] = row

    @staticmethod
    def _stage(row):
        return f"L{row['layer']}.{row['site']}", row["stage"], row["variant"]

    def of(self, *stage):
        """The rows of a stage by source, not taken."""
        return self.rows.get(stage, {})

    def compare(self, kind, stage, want):
        """All rows of a stage against those recomputed."""
        got = self.rows.pop(stage, {})
        where = ".".join(stage)
        for source, measures in want.items():
            row = got.pop(source, None)
            cross = abs(measures.get("cross", 1.0))
            edge = allowed(source, "cross", cross, want) if "cross" in measures else 0
            if row is None:
                if cross >= budget.LEAST_CROSS + edge:
                    self.tally.fail(f"{kind}: {where}: no row of {source}")
                continue
            if cross < budget.LEAST_CROSS - edge:
                self.tally.fail(f"{kind}: {where}: {source} is below what has a row")
            self.measures(kind, f"{where} {source}", row, {m: (v, allowed(source, m, v, want)) for m, v in measures.items()})
        for source in got:
            self.tally.fail(f"{kind}: {where}: {source} is no source here")

    def measures(self, kind, where, row, want):
        """Some measures of one row, as (value, how far it may be off): the deviation is in units of that."""
        for name, (value, limit) in want.items():
            got = rows.number(row.get(name, np.nan))
            self.tally.compare(kind, f"{where} {name} {got!r}, expected {value!r}", abs(got - value) / limit)


def check_site(name, tensors, site, table, tally):
    """Every stage of every variant of one site; the variants seen."""
    x = tensors[f"{name}.x"].values.astype(np.float32).reshape(-1, site.fn.shape[1])
    variants = sorted(key.split(".")[-1] for key in tensors if key.startswith(f"{name}.pre.") and key.count(".") == 3)
    variants.remove("reference")
    for variant in variants:
        total = table.of(name, "mixes", variant).get("total")
        if total is None:
            tally.fail(f"sites: {name}.mixes.{variant}: no row of total")
            continue
        made = budget.mixes(variant, x, site, total["arch"], total["sms"])
        got = {stage: tensors[f"{name}.{stage}.{variant}"].values for stage in ("dot", "mixes", "pre", "post", "comb", "y", "y_bf16")}
        tally.bits("dot bits", f"{name}.{variant}", got["dot"], made.dot)
        tally.bits("mixes bits", f"{name}.{variant}", got["mixes"], made.states["got"])
        for stage, want in stages(variant, made, got, x, site).items():
            table.compare("sites", (name, stage, variant), want)
    return len(variants)


def stages(variant, made, got, x, site):
    """The budget of every stage; states of the mixes are carried there in fp64."""
    carried = {name: model.after_mixes(values, x, site) for name, values in made.states.items()}
    own = {
        "mixes": {"epilogue": ("got", "stored")},
        "pre": {"epilogue": ("gates", "stored")},
        "post": {"epilogue": ("gates", "stored")},
        "comb": {"epilogue": ("got", "stored"), "sinkhorn": ("gates", "got")},
        "y_bf16": {"epilogue": ("gates", "stored"), "collapse": ("y", "gates"), "layer-io": ("rounded", "y")},
    }
    if recipes.CATALOGUE[variant].norm_first:
        # The mixes are what is stored: nothing follows that could be off.
        own["mixes"].pop("epilogue")
        own["comb"].pop("epilogue")
    out = {}
    for stage, more in own.items():
        if stage == "mixes":
            at = dict(made.states)
        else:
            at = {name: values["y" if stage == "y_bf16" else stage] for name, values in carried.items()}
        if stage == "y_bf16":
            at["gates"] = chain.collapse(got["pre"].astype(np.float64), x.astype(np.float64))
            at |= {"y": got["y"].astype(np.float64), "rounded": got["y_bf16"].astype(np.float64)}
        elif stage != "mixes":
            at["gates"] = got[stage].astype(np.float64)
        of = budget.steps(variant, made.ranges) | {name: ((after,), (before,)) for name, (after, before) in more.items()}
        out[stage] = budget.budget(at["truth"], budget.errors(at, of))
    return out


class Rounded(chain.Steps):
    """A chain that stores its streams, or what its sublayer gets and returns, in a format."""

    def __init__(self, residual="F64", io="F64"):
        super().__init__()
        self.residual, self.io = residual, io

    def store(self, x):
        return x if self.residual == "F64" else formats.stored(x, self.residual)

    def output(self, name, y, weight, eps):
        # What the kernels make in fp32 is not rounded to it once more.
        y = formats.stored(y, "BF16") if self.io == "BF16" else y
        f = super().output(name, y, weight, eps)
        return f if self.io == "F64" else formats.stored(f, self.io)


class Offset(chain.Steps):
    """A chain whose mixes are off by something at every site."""

    def __init__(self, off):
        super().__init__()
        self.off = off

    def split(self, name, x, site):
        return model.after_mixes(chain.mixes(x, site.fn, site) + self.off[name], x, site)


def offsets(variant, loaded, found, residual, row):
    """What a variant's sources are off by at the mixes, by source and site, on the fp64 chain's streams as stored."""
    off = {}
    for layer, kind, site, _ in loaded.places:
        name = f"L{layer}.{kind}"
        x = formats.stored(found[name], residual).astype(np.float32)
        made = budget.mixes(variant, x, site, row["arch"], row["sms"])
        for source, error in budget.errors(made.states, budget.steps(variant, made.ranges)).items():
            off.setdefault(source, {})[name] = error
    return off


def check_chain(loaded, tensors, table, tally):
    """Every depth of every variant's chain; the variants seen."""
    start = tensors["chain.x0"].values
    truth = dict(chain.run(loaded, start))
    found, before = {}, chain.streams_of(loaded, start)
    for layer, kind, _, _ in loaded.places:
        found[f"L{layer}.{kind}"], before = before, truth[f"L{layer}.{kind}.streams"]
    depths = [name for name in found if name.endswith(".ffn")]
    variants = sorted(stage[2] for stage in table.rows if stage[:2] == (depths[0], "streams"))
    for variant in variants:
        total = table.of(depths[0], "streams", variant)["total"]
        residual, io = STORAGE[total["residual"]], STORAGE[total["layer_io"]]
        steps = {"layer-io": Rounded(io=io)}
        if residual != "F32":
            steps["residual"] = Rounded(residual=residual)
        off = offsets(variant, loaded, found, residual, total)
        steps |= {source: Offset(errors) for source, errors in off.items()}
        strands = {source: dict(chain.walk(loaded, start, own)) for source, own in steps.items()}
        for name in depths:
            errors = {source: strand[f"{name}.streams"] - truth[f"{name}.streams"] for source, strand in strands.items()}
            got = tensors[f"{name}.streams.{variant}"].values
            check_depth((name, "streams", variant), truth[f"{name}.streams"], errors, got, table, tally)
    return len(variants)


def check_depth(stage, truth, errors, got, table, tally):
    """The strands and the total of one depth, then what follows from all of its rows."""
    want = budget.budget(truth, errors, got - truth)
    have = table.of(*stage)
    own = [source for source in have if "*" not in source and source != "total"]
    missing = set(errors) - set(own)
    if missing:
        tally.fail(f"strands: {'.'.join(stage)}: no row of {', '.join(sorted(missing))}")
        return
    for source in [*errors, "total"]:
        value = want[source]["rel_l2"]
        expected = {"rel_l2": (value, allowed(source, "rel_l2", value, want))}
        if source != "total":
            expected["slope"] = want[source]["slope"], allowed(source, "slope", want[source]["slope"], want)
        table.measures("strands", f"{'.'.join(stage)} {source}", have[source], expected)
    signed = {source: have[source]["slope"] for source in own}
    square = {source: have[source]["rel_l2"] ** 2 for source in own}
    rows_of = {source: {"rel_l2": have[source]["rel_l2"], "slope": have[source]["slope"]} for source in own}
    rows_of["total"] = {"rel_l2": have["total"]["rel_l2"]}
    budget.add_shares(rows_of, signed, square)
    # Of a strand that is not run here no cross terms are known; those that have a row are let stand.
    known = {pair: row for pair, row in want.items() if "*" in pair}
    unknown = {source: {} for source in have if "*" in source and source not in known}
    table.compare("chains", stage, rows_of | known | unknown)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("run", type=Path)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--variants", type=int, required=True)
    args = parser.parse_args()
    tally = Tally()
    for kind in (
        ("schema", "errors", 0),
        ("dot bits", "differing", 0),
        ("mixes bits", "differing", 0),
        ("sites", "of what is allowed", 1),
        ("strands", "of what is allowed", 1),
        ("chains", "of what is allowed", 1),
    ):
        tally.declare(*kind)
    table = Rows(rows.load(args.run / "report.json", tally)["records"], tally)
    loaded = chain.load(safetensors_io.Checkpoint(args.checkpoint))
    seen = 0
    tensors = dumped(args.run / "dump", "L*")
    for layer, kind, site, _ in loaded.places:
        seen += check_site(f"L{layer}.{kind}", tensors, site, table, tally)
    chains = check_chain(loaded, dumped(args.run / "dump", "chain.*"), table, tally)
    if (seen, chains) != (args.sites * args.variants, args.variants):
        tally.fail(f"dump: {seen} variants of sites and {chains} chains, expected {args.variants} at each of {args.sites} sites")
    for stage in table.rows:
        tally.fail(f"rows: nothing recomputes {'.'.join(stage)}")
    for kind in tally.kinds:
        tally.require(kind, 1 if kind == "schema" else args.sites // 2 * args.variants)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
