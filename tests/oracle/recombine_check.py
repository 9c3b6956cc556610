"""Recomputes suite recombine from its dump: every bit of X', the fp64 sides, the bound and every measure.

    python recombine_check.py CHECKPOINT_DIR RUN_DIR --sites N --variants M

RUN_DIR holds `dump/` and `report.json` of `run --suite recombine --dump`. A dump has, per site, `L0.attn.x` and `.f`
(what is recombined), `.post` and `.comb` (fp32), `.streams.reference` and, per variant, `.streams.V` (before
storage), `.streams.V.exact` and `.streams_bf16.V`.

    X'[k] = post_k f + sum_j comb[j,k] X[j]            comb's first index contracts

post, comb and f themselves are held against the fp64 model to the accuracy that fp32 mixing and bf16 leave.
Exit 1 on any failure.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np

import chain
import formats
import measures
import model
import rows
import safetensors_io
from site_check import KEY_FIELDS, _check_measure
from tally import Tally

STAGES = ("streams", "streams_bf16")
# Gates of fp32 mixing: a few ulps of fp32, through exp.
GATES = 2.0**-18
# f: y and f are each rounded to bf16, by 2^-8 of themselves at most, and the rms of y with it.
BF16_TWICE = 2.0**-7 * (1 + 2.0**-6)


def products(variant, x, f, post, comb):
    """The products of every output [T, h, d], post's first, as (weight, value) pairs; gates as the variant has them."""
    if variant == "transformers":
        post, comb = formats.bf16(post), formats.bf16(comb)
    tokens, h = post.shape
    values = x.reshape(tokens, h, -1)
    square = comb.reshape(tokens, h, h)
    spread = (post[:, :, None], f[:, None, :])
    return [spread] + [(square[:, j, :, None], values[:, j, None, :]) for j in range(h)]


def fp32(pair):
    """A product rounded to fp32."""
    return (np.asarray(pair[0], np.float32) * np.asarray(pair[1], np.float32)).astype(np.float32)


def chained(pairs, fused):
    """The first product, then each other added: fused, or product and sum apart."""
    total = fp32(pairs[0])
    for weight, value in pairs[1:]:
        total = formats.fma(weight, value, total) if fused else formats.add(total, fp32((weight, value)))
    return total


def recombined(variant, pairs):
    """X' as the variant's definition has it, fp32 [T, h*d]."""
    spread, *streams = pairs
    if variant == "transformers":
        out = formats.add(formats.bf16(fp32(spread)), formats.bf16(chained(streams, True)))
    elif variant == "stream-first":
        out = chained([streams[0], spread, *streams[1:]], True)
    else:
        out = chained(pairs, variant == "fp32")
    return out.reshape(len(out), -1)


def exact_sum(pairs):
    """All products summed in the longest float [T, h*d]."""
    total = sum(np.asarray(w, np.longdouble) * np.asarray(v, np.longdouble) for w, v in pairs)
    return total.reshape(len(total), -1)


def half_ulp(value, dtype):
    """Half the spacing of a format at |value|."""
    return formats.ulp(np.abs(value).astype(np.float64), dtype) / 2


def chain_bound(pairs, fused):
    """Partial sum and bound of a chain: half an ulp of the largest that each operation can give."""
    term = pairs[0][0].astype(np.float64) * pairs[0][1]
    total, bound = term, half_ulp(term, "F32")
    for weight, value in pairs[1:]:
        term = weight.astype(np.float64) * value
        total = total + term
        if not fused:
            bound = bound + half_ulp(term, "F32")
        bound = bound + half_ulp(np.abs(total) + bound, "F32")
    return total, bound


def stored(total, bound):
    """A partial result rounded to bf16."""
    return bound + half_ulp(np.abs(total) + bound, "BF16")


def sum_bound(variant, pairs):
    """How far a correct kernel may be from the recipe-exact value [T, h*d]."""
    spread, *streams = pairs
    if variant == "transformers":
        carried, bound = chain_bound(streams, True)
        term, own = chain_bound([spread], True)
        bound = stored(carried, bound) + stored(term, own)
        bound = bound + half_ulp(np.abs(carried + term) + bound, "F32")
    elif variant == "stream-first":
        _, bound = chain_bound([streams[0], spread, *streams[1:]], True)
    else:
        _, bound = chain_bound(pairs, variant == "fp32")
    return bound.reshape(len(bound), -1)


def apart(got, want):
    """The largest difference in a token over the token's largest; NaN or infinity is a difference."""
    ratio = np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)
    return float(np.where(np.isfinite(ratio), ratio, np.inf).max())


class Site:
    """One site's dump, its rows, and its weights."""

    def __init__(self, name, tensors, records, site, norm):
        self.name, self.tensors, self.records = name, tensors, records
        self.site, self.norm = site, norm

    def get(self, *parts):
        """A dumped tensor."""
        return self.tensors[".".join((self.name, *parts))]

    def variants(self):
        """Names of the variants in the dump."""
        pattern = re.compile(re.escape(self.name) + r"\.streams\.(?!reference$)([^.]+)$")
        return [found[1] for found in map(pattern.match, self.tensors) if found]

    def check(self, tally):
        """Everything of the site; the number of variants seen."""
        x, f, post, comb = (self.get(name).values for name in ("x", "f", "post", "comb"))
        self._check_operands(x, f, post, comb, tally)
        truth = exact_sum(products("fp32", x, f, post, comb))
        reference = self.get("streams", "reference").values
        tally.compare("reference", self.name, apart(reference, truth.astype(np.float64)), len(truth))
        for variant in self.variants():
            self._check_variant(variant, products(variant, x, f, post, comb), reference, tally)
        return len(self.variants())

    def _check_operands(self, x, f, post, comb, tally):
        made = model.after_mixes(chain.mixes(x.astype(np.float64), self.site.fn, self.site), x, self.site)
        for name, got in (("post", post), ("comb", comb)):
            tally.compare("gates", f"{self.name}.{name}", float(np.abs(got - made[name]).max()), got.size)
        u = chain.norm(made["y"], self.norm, self.site.norm_eps)
        tally.compare("f", self.name, float((np.abs(f - u) / np.abs(u)).max()), f.size)

    def _check_variant(self, variant, pairs, reference, tally):
        where = f"{self.name}.streams.{variant}"
        got, deployed = self.get("streams", variant), self.get("streams_bf16", variant)
        exact = self.get("streams", variant, "exact").values
        tally.bits("streams bits", where, got.values, recombined(variant, pairs))
        tally.bits("streams_bf16 bits", where, deployed.values, formats.bf16(got.values))
        tally.compare("recipe-exact", where, apart(exact, exact_sum(pairs).astype(np.float64)), len(exact))
        ratio = float((np.abs(got.values - exact) / sum_bound(variant, pairs)).max())
        reported = rows.number(self._row("streams", variant, tally).get("bound_ratio", np.nan))
        if not reported <= 1:
            tally.fail(f"bound: {where}: bound_ratio {reported!r} is above 1")
        tally.compare("bound", f"{where}: {reported!r}, expected {ratio!r}", abs(reported - ratio) / ratio)
        magnitudes = sum(np.abs(w.astype(np.longdouble) * v) for w, v in self._as_made())
        condition = (magnitudes.reshape(reference.shape) / np.abs(reference)).astype(np.float64)
        for stage, tensor in zip(STAGES, (got, deployed)):
            self._check_measures(stage, variant, tensor, reference, exact, condition, tally)

    def _row(self, stage, variant, tally):
        row = self.records.get((self.name, stage, variant))
        if row is None:
            tally.fail(f"rows: no record for {self.name}.{stage}.{variant}")
        return row or {}

    def _as_made(self):
        return products("fp32", *(self.get(name).values for name in ("x", "f", "post", "comb")))

    def _check_measures(self, stage, variant, tensor, reference, exact, condition, tally):
        row = self._row(stage, variant, tally)
        want = measures.measure(tensor.values, reference, exact, tensor.dtype, condition)
        want |= measures.against(tensor.values, self.get(stage, "fp32").values)
        known = {"bound_ratio"} if stage == "streams" else set()
        if stage == "streams":
            comb = self.get("comb").values
            own = formats.bf16(comb) if variant == "transformers" else comb
            want |= measures.comb_sums(own, self.site.streams)
            want |= {f"{name}_ref": value for name, value in measures.comb_sums(comb, self.site.streams).items()}
        where = f"{self.name}.{stage}.{variant}"
        for name in sorted(set(row) - set(want) - KEY_FIELDS - known):
            tally.fail(f"measures: {where}: {name} is no measure this oracle recomputes")
        for name, value in want.items():
            _check_measure(where, name, row, value, want, tally)


def sites(checkpoint, run, report):
    """Every dumped site with its rows and weights."""
    records = {}
    for row in report["records"]:
        records[(f"L{row['layer']}.{row['site']}", row["stage"], row["variant"])] = row
    weights = {f"L{layer}.{kind}": (site, norm) for layer, kind, site, norm in chain.load(checkpoint).places}
    for path in sorted((run / "dump").glob("recombine.*.safetensors")):
        name = path.name.removeprefix("recombine.").removesuffix(".safetensors")
        yield Site(name, safetensors_io.read(path), records, *weights[name])


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
        ("gates", "apart", GATES),
        ("f", "relative", BF16_TWICE),
        ("reference", "of a token's largest", 1e-15),
        ("recipe-exact", "of a token's largest", 1e-15),
        ("streams bits", "differing", 0),
        ("streams_bf16 bits", "differing", 0),
        ("bound", "relative", 1e-5),
        ("measures", "relative", 1e-9),
    ):
        tally.declare(*kind)
    report = rows.load(args.run / "report.json", tally)
    found = list(sites(safetensors_io.Checkpoint(args.checkpoint), args.run, report))
    seen = sum(site.check(tally) for site in found)
    if (len(found), seen) != (args.sites, args.sites * args.variants):
        tally.fail(f"dump: {len(found)} sites, {seen} variants in all, expected {args.sites} of {args.variants} each")
    if len(report["records"]) != len(STAGES) * seen:
        tally.fail(f"rows: {len(report['records'])}, expected {len(STAGES) * seen}")
    for kind in tally.kinds:
        tally.require(kind, 1 if kind == "schema" else args.sites)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
