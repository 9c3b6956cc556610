"""Recomputes one site: references, recipe-exact values, bits, measures and bounds."""

from dataclasses import dataclass

import numpy as np

import bound
import formats
import measures
import model
import recipes
import rows

REFERENCED = ("dot", "mixes", "pre", "post", "comb", "y")
# Evidence whose definition is the tool's own, a measure that only a sweep has, and times.
UNCHECKED = {"drift", "drift_z", "row0_changed", "time_us", "gb_per_s", "copy_share"}
KEY_FIELDS = {
    "suite", "layer", "site", "depth", "stage", "variant", "inputs", "token_class", "tokens",
    "splits", "sms", "seed", "backend", "arch",
}
# Counts and positions are equal or wrong.
EXACT = {
    "max_abs_index", "max_rel_index", "worst_index", "zero_ref", "nan_got", "nan_ref", "inf_got",
    "inf_ref", "class_mismatch", "changed",
}


@dataclass
class Dumped:
    """The dump of one site and what the report says about how it ran."""

    name: str
    layer: int
    kind: str
    tensors: dict
    records: dict
    against: str
    with_bounds: bool

    def variants(self):
        """Variants with a `dot`, which is every variant that ran."""
        prefix = f"{self.name}.dot."
        found = [key.removeprefix(prefix) for key in self.tensors if key.startswith(prefix)]
        return sorted(v for v in found if v != "reference" and not v.endswith(".exact"))

    def get(self, *parts):
        """A tensor by stage and suffix."""
        return self.tensors[".".join((self.name, *parts))]

    def row(self, stage, variant):
        """The report's row, or None."""
        return self.records.get((self.layer, self.kind, stage, variant))


def _largest_apart(got, want):
    """max|difference|; infinite where one side is NaN or infinite and the other not alike."""
    if got.shape != want.shape:
        return np.inf
    finite = np.isfinite(got) & np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return np.inf
    return float(np.abs(got[finite] - want[finite]).max(initial=0.0))


def _apart(got, want):
    """max|difference| over max|want|."""
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    apart = _largest_apart(got, want)
    return apart / scale if scale > 0 else apart


def check_site(dumped, site, tally):
    """Everything of one site; returns nothing, the tally knows."""
    x = dumped.get("x").values.astype(np.float32).reshape(-1, site.fn.shape[1])
    factor = model.rms(x, site)[:, None]
    exact_dot = x.astype(np.float64) @ site.fn.astype(np.float64).T
    truth = model.stages(exact_dot, factor, x, site)
    for stage in REFERENCED:
        where = f"{dumped.name}.{stage}.reference"
        tally.compare("reference", where, _apart(dumped.get(stage, "reference").values, truth[stage]))
    absolute = np.abs(x).astype(np.float64) @ np.abs(site.fn).astype(np.float64).T
    with np.errstate(divide="ignore"):
        condition = absolute / np.abs(exact_dot)
    for variant in dumped.variants():
        if variant not in recipes.CATALOGUE:
            tally.fail(f"{dumped.name}: {variant} is no recipe this oracle knows")
            continue
        _check_variant(dumped, variant, x, factor, condition, site, tally)


def _check_variant(dumped, variant, x, factor, condition, site, tally):
    recipe = recipes.CATALOGUE[variant]
    row = dumped.row("dot", variant)
    if row is None:
        tally.fail(f"rows: no record for {dumped.name}.dot.{variant}")
        return
    count = recipes.split_count(recipe, x.shape[0], x.shape[1], row["sms"])
    if recipe.unit != "simt" and row["splits"] != count:
        tally.fail(f"rows: {dumped.name}.dot.{variant} says {row['splits']} splits, expected {count}")
    cuts = recipes.ranges(x.shape[1], count)
    held = recipes.operands(recipe, x, site.fn, site.norm_eps, cuts)
    exact_dot = recipes.recipe_exact(recipe, held)
    after = np.ones_like(factor) if recipe.norm_first else factor
    exact = model.stages(exact_dot, after, x, site)
    for stage in REFERENCED:
        got = dumped.get(stage, variant, "exact").values
        tally.compare("recipe-exact", f"{dumped.name}.{stage}.{variant}.exact", _apart(got, exact[stage]))
    _check_bits(dumped, variant, recipe, held, row["arch"], cuts, x, site, tally)
    for stage in rows.STAGES:
        _check_measures(dumped, variant, stage, recipe, condition, site, tally)
    if dumped.with_bounds:
        _check_bounds(dumped, variant, recipe, held, row["arch"], cuts, factor, tally)


def _check_bits(dumped, variant, recipe, held, arch, cuts, x, site, tally):
    """`dot` from the operands; the stages after it each from the dumped stage before."""

    def name(stage):
        return f"{dumped.name}.{stage}.{variant}"

    def got(stage):
        return dumped.get(stage, variant).values

    tally.bits("dot bits", name("dot"), got("dot"), recipes.dot(recipe, held, arch, cuts))
    mixes = got("dot")
    if not recipe.norm_first:
        mixes = (mixes * held.rms[:, None]).astype(np.float32)
    tally.bits("mixes bits", name("mixes"), got("mixes"), formats.bf16(mixes) if recipe.bf16_scaled else mixes)
    streams = x.reshape(x.shape[0], site.streams, -1)
    y = np.zeros(got("y").shape, np.float32)
    for j in range(site.streams):
        y = formats.fma(got("pre")[:, j : j + 1], streams[:, j], y)
    tally.bits("y bits", name("y"), got("y"), y)
    tally.bits("y_bf16 bits", name("y_bf16"), got("y_bf16"), formats.bf16(got("y")))
    after = model.after_mixes(got("mixes"), x, site)
    for stage in ("pre", "post", "comb"):
        tally.compare("epilogue", name(stage), _largest_apart(got(stage), after[stage]))


def _check_measures(dumped, variant, stage, recipe, condition, site, tally):
    where = f"{dumped.name}.{stage}.{variant}"
    row = dumped.row(stage, variant)
    if row is None:
        tally.fail(f"rows: no record for {where}")
        return
    truth = "y" if stage == "y_bf16" else stage
    against = "mixes" if recipe.norm_first and stage == "dot" else truth
    reference = dumped.get(against, "reference").values
    exact = dumped.get(truth, variant, "exact").values
    got = dumped.get(stage, variant)
    if not (np.isfinite(got.values).all() and np.isfinite(exact).all()):
        _check_nonfinite(where, row, got.values, reference, tally)
        return
    conditioned = condition if stage in ("dot", "mixes") else None
    want = measures.measure(got.values, reference, exact, got.dtype, conditioned)
    other = f"{dumped.name}.{_comparable(stage, recipe, dumped.against)}.{dumped.against}"
    if other in dumped.tensors:
        want |= measures.against(got.values, dumped.tensors[other].values)
    if stage == "comb":
        want |= measures.comb_sums(got.values, site.streams)
        want |= {f"{k}_ref": v for k, v in measures.comb_sums(reference, site.streams).items()}
    unknown = set(row) - set(want) - KEY_FIELDS - UNCHECKED - {"bound_ratio"}
    for name in sorted(unknown):
        tally.fail(f"measures: {where}: {name} is no measure this oracle recomputes")
    for name, value in want.items():
        _check_measure(where, name, row, value, want, tally)


def _comparable(stage, recipe, against):
    """The stage at which the --against variant holds what `recipe` holds at `stage`, if any.

    A recipe that normalises first has at `dot` what another has at `mixes`; the reverse is nowhere.
    """
    first = recipes.CATALOGUE[against].norm_first
    if stage != "dot" or recipe.norm_first == first:
        return stage
    return "mixes" if recipe.norm_first else None


def _check_nonfinite(where, row, got, reference, tally):
    """A row with NaN or infinite values: the counts are exact and no error measure looks good."""
    counts = measures.counts(got, reference)
    for name, value in counts.items():
        _check_measure(where, name, row, value, counts, tally)
    for name in ("rel_l2", "cosine_gap", "calc_diff", "max_abs", "ulp_max", "rel_p999"):
        hidden = float(np.isfinite(rows.number(row[name])))
        tally.compare("measures", f"{where}: {name} is finite", hidden)


def _floor(name, want):
    """The one absolute allowance. cosine_gap subtracts unit vectors that f64 knows to 2^-53, which
    moves a distance D = sqrt(2 gap) by up to about that, so the gap by 2^-53 D: more than 1e-9 of
    itself once the gap is below 1e-14. Every other measure holds 1e-9 of itself.
    """
    return 2.0**-52 * np.sqrt(2 * want[name]) if name.endswith("cosine_gap") else 0.0


def _check_measure(where, name, row, value, want, tally):
    if name not in row:
        tally.fail(f"measures: {where}: {name} is missing")
        return
    got = rows.number(row[name])
    if name in EXACT:
        deviation = 0.0 if got == value else np.inf
    elif got == value or (np.isnan(got) and np.isnan(value)):
        deviation = 0.0
    else:
        deviation = max(0.0, abs(got - value) - _floor(name, want)) / abs(value) if value else np.inf
    tally.compare("measures", f"{where}: {name} {got!r}, expected {value!r}", float(deviation))


def _check_bounds(dumped, variant, recipe, held, arch, cuts, factor, tally):
    """bound_ratio of `dot` to 1e-6; of `mixes` at most 1 and near ours, rho being the tool's."""
    name = f"{dumped.name}.dot.{variant}"
    exact = dumped.get("dot", variant, "exact").values
    if not np.isfinite(exact).all():
        return  # A bound is about roundings; overflow shows in the counts.
    limit = bound.dot_bound(recipe, held, arch, cuts, exact)
    ratio = _ratio(dumped.get("dot", variant).values, exact, limit)
    got = rows.number(dumped.row("dot", variant)["bound_ratio"])
    tally.compare("bound dot", f"{name}: {got!r}, expected {ratio!r}", abs(got - ratio) / ratio)
    rho = 0.0 if recipe.norm_first else bound.rms_error(recipe, held.x_parts[0].shape[1], cuts)
    if recipe.norm_first:
        product = limit
    else:
        product = bound.mixes_bound(recipe, limit, exact, factor, rho)
    ratio = _ratio(dumped.get("mixes", variant).values, dumped.get("mixes", variant, "exact").values, product)
    got = rows.number(dumped.row("mixes", variant)["bound_ratio"])
    if not got <= 1:
        tally.fail(f"bound mixes: {name}: bound_ratio {got!r} is above 1")
    tally.compare("bound mixes", f"{name}: {got!r}, expected about {ratio!r}", abs(got - ratio) / ratio)


def _ratio(got, exact, limit):
    apart = np.abs(got.astype(np.float64) - exact)
    return float((apart / limit).max())
