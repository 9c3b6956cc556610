"""Recomputes suite gains where the chain begins: a variant's gates at L0.attn, all else in fp64, error at the end.

    python gains_check.py CHECKPOINT_DIR RUN_DIR --variants M

RUN_DIR holds `dump/` and `report.json` of `run --suite mix,gains --inputs file:… --residual fp32 --dump`: with recorded
streams the chain begins with the x that suite mix dumps, so that pre, post and comb in fp32 are known bit by bit. They
take the place of this oracle's own at L0.attn; its chain (chain.py) goes on from there. Of rows at other sites, and of
perturbations, only that each place has one, with a number, is looked at. Exit 1 on any failure.

Tolerance: the smallest error here, 2e-8 of the streams, is known to 2^-52 of them, which is 1e-8 of itself.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import chain
import measures
import rows
import safetensors_io
from chain_check import dumped
from tally import Tally

PLACE = "L0.attn"
SIZE = 1e-3


class AtOneSite(chain.Steps):
    """A chain with given gates at one site."""

    def __init__(self, name, gates):
        super().__init__()
        self.name, self.gates = name, gates

    def split(self, name, x, site):
        return self.gates if name == self.name else super().split(name, x, site)


def end(loaded, x, steps):
    """The streams behind the last site."""
    last = f"L{loaded.places[-1][0]}.{loaded.places[-1][1]}.streams"
    return dict(chain.walk(loaded, x, steps))[last]


def check_variant(variant, loaded, tensors, truth, row, tally):
    """The row of L0.attn."""
    gates = {stage: tensors[f"{PLACE}.{stage}.{variant}"].values.astype(np.float64) for stage in ("pre", "post", "comb")}
    got = end(loaded, tensors[f"{PLACE}.x"].values, AtOneSite(PLACE, gates))
    want = measures.rel_l2(got, truth)
    reported = rows.number(row["rel_l2"])
    tally.compare("gains", f"{PLACE}.{variant} {reported!r}, expected {want!r}", abs(reported - want) / want)


def check_places(loaded, records, variants, tally):
    """A row per variant and site, two per layer; every one finite, and gain what its name says."""
    layers = sorted({layer for layer, *_ in loaded.places})
    places = {(v, layer, site, None) for v in variants for layer in layers for site in chain.SITES}
    places |= {("perturbation", layer, None, way) for layer in layers for way in ("independent", "common")}
    found = [(r["variant"], r["layer"], r.get("site"), r.get("direction")) for r in records]
    if len(found) != len(set(found)) or set(found) != places:
        tally.fail(f"rows: {len(found)} rows of {len(set(found))} places, expected {len(places)}")
    for row, place in zip(records, found):
        error = rows.number(row["rel_l2"])
        gain = rows.number(row.get("gain", np.nan))
        good = 0 < error < 1 and (place[3] is None or abs(gain * SIZE - error) <= 1e-15 * error)
        tally.compare("places", str(place), 0 if good else 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("run", type=Path)
    parser.add_argument("--variants", type=int, required=True)
    args = parser.parse_args()
    tally = Tally()
    for kind in (("schema", "errors", 0), ("gains", "relative", 1e-8), ("places", "wrong", 0)):
        tally.declare(*kind)
    records = [r for r in rows.load(args.run / "report.json", tally)["records"] if r["suite"] == "gains"]
    loaded = chain.load(safetensors_io.Checkpoint(args.checkpoint))
    tensors = dumped(args.run / "dump")
    tensors[f"{PLACE}.x"].values = tensors[f"{PLACE}.x"].values.reshape(-1, loaded.places[0][2].fn.shape[1])
    truth = end(loaded, tensors[f"{PLACE}.x"].values, chain.Steps())
    own = [row for row in records if (row["layer"], row.get("site")) == (0, "attn")]
    for row in own:
        check_variant(row["variant"], loaded, tensors, truth, row, tally)
    check_places(loaded, records, [row["variant"] for row in own], tally)
    for kind in tally.kinds:
        tally.require(kind, 1 if kind == "schema" else args.variants)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
