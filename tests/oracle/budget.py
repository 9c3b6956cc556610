"""What the sources of a budget bring, from the definitions in the README and this oracle's own arithmetic.

A variant's mixes pass through states, each with one more of its roundings; a source is a state less the one before it
(weight and x: less the truth; operands: what the two are off by together beyond their sum):

    truth, weight, x, exact      fp64 products of the operands, one or both rounded
    partials                     each range of K in the unit, their sum in fp64
    summed                       their sum as the recipe has it, in fp32
    stored                       as the recipe stores it
    got                          times the recipe's own rms factor; all others times fp64's

With r the truth, d_i the error that source i brings, over all elements of a stage:

    signed part s_i = <d_i, r> / <r, r>        the rest q_i^2 = |d_i|^2 / |r|^2 - s_i^2
    predicted^2 = (sum s_i)^2 + sum q_i^2      share_i = (s_i sum s_j + q_i^2) / predicted^2
    cross = 2 <d_i, d_j> / measured^2          explained = predicted / measured
"""

from dataclasses import dataclass

import numpy as np

import formats
import model
import recipes

LONG = np.longdouble
# The smallest cross term that has a row.
LEAST_CROSS = 0.01


@dataclass
class Mixes:
    """The states [T, N] of one variant, the dot that it stores, and the ranges that K was cut into."""

    states: dict
    dot: np.ndarray
    ranges: int


def mixes(variant, x, site, arch, sms):
    """The states of a variant; x [T, K] fp32 as stored."""
    recipe = recipes.CATALOGUE[variant]
    cuts = recipes.ranges(x.shape[1], recipes.split_count(recipe, x.shape[0], x.shape[1], sms))
    held = recipes.operands(recipe, x, site.fn, site.norm_eps, cuts)
    factor = model.rms(x, site)[:, None]
    after = 1.0 if recipe.norm_first else factor
    wide, fn = x.astype(np.float64), site.fn.astype(np.float64)
    partials = recipes.partials(recipe, held, arch, cuts)
    summed = recipes.ranges_added(partials)
    dot = formats.bf16(summed) if recipe.bf16_output else summed
    weights = sum(part.astype(np.float64) for part in held.weight_parts)
    rounded = sum(part.astype(np.float64) for part in held.x_parts)
    states = {
        "truth": wide @ fn.T * factor,
        "weight": wide @ weights.T * factor,
        "x": rounded @ fn.T * after,
        "exact": recipes.recipe_exact(recipe, held) * after,
        "partials": partials.astype(np.float64).sum(axis=0) * after,
        "summed": summed * after,
        "stored": dot * after,
    }
    states["got"] = states["stored"] if recipe.norm_first else (dot * held.rms[:, None]).astype(np.float32)
    return Mixes({name: np.asarray(values, np.float64) for name, values in states.items()}, dot, len(cuts))


def steps(variant, cuts):
    """The sources up to the stored projection that a recipe has, each as states to add and to take away."""
    recipe = recipes.CATALOGUE[variant]
    # x as inputs are drawn is bf16, which every operand format here holds.
    weight, x = recipe.rounding is not formats.unrounded, recipe.norm_first
    have = {
        "weight": weight,
        "x": x,
        "operands": weight and x,
        "unit": True,
        "split-sums": cuts > 1,
        "output": recipe.bf16_output,
    }
    of = {
        "weight": (("weight",), ("truth",)),
        "x": (("x",), ("truth",)),
        "operands": (("exact", "truth"), ("weight", "x")),
        "unit": (("partials",), ("exact",)),
        "split-sums": (("summed",), ("partials",)),
        "output": (("stored",), ("summed",)),
    }
    return {name: of[name] for name, there in have.items() if there}


def errors(states, of):
    """What each source is off by: its states added less those taken away."""
    return {name: sum(states[a] for a in plus) - sum(states[b] for b in minus) for name, (plus, minus) in of.items()}


def _inner(a, b):
    return float((np.asarray(a, LONG) * b).sum())


def budget(truth, errors_of, measured=None):
    """Rows by source: of each, of each pair, and `total`; `measured` is g - r of a candidate with all sources."""
    size = _inner(truth, truth)
    signed = {name: _inner(e, truth) / size for name, e in errors_of.items()}
    square = {name: _inner(e, e) / size for name, e in errors_of.items()}
    whole = measured if measured is not None else sum(np.asarray(e, LONG) for e in errors_of.values())
    total = _inner(whole, whole) / size
    rows = {name: {"rel_l2": square[name] ** 0.5, "slope": signed[name]} for name in errors_of}
    names = list(errors_of)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            rows[f"{a}*{b}"] = {"cross": 2 * _inner(errors_of[a], errors_of[b]) / size / total}
    rows["total"] = {"rel_l2": total**0.5}
    add_shares(rows, signed, square)
    return rows


def add_shares(rows, signed, square):
    """share of every source, slope and explained of the total, by signed parts and squares over |r|^2."""
    along = sum(signed.values())
    rest = {name: max(0.0, square[name] - signed[name] ** 2) for name in signed}
    predicted = along**2 + sum(rest.values())
    for name in signed:
        rows[name]["share"] = (signed[name] * along + rest[name]) / predicted
    rows["total"] |= {"slope": along, "explained": predicted**0.5 / rows["total"]["rel_l2"]}
