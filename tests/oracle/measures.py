"""Every error measure of a row, from its definition, in NumPy's longest float.

g is the candidate, r the reference, e the recipe-exact value, a the variant named by --against.
Sums run in longdouble so that the oracle's own rounding stays far below the tolerance it checks.
"""

import math

import numpy as np

import formats

LONG = np.longdouble


def _norm(v):
    v = np.asarray(v, LONG).ravel()
    return np.sqrt((v * v).sum())


def _ratio(top, bottom):
    if bottom == 0:
        return 0.0 if top == 0 else math.inf
    return float(top / bottom)


def rel_l2(g, r):
    """|g - r| / |r| in the 2-norm; both zero 0, only r zero infinite."""
    return _ratio(_norm(np.asarray(g, LONG) - r), _norm(r))


def cosine(g, r):
    """<g, r> / (|g||r|), clamped; both zero 1, one zero 0."""
    norms = _norm(g), _norm(r)
    if 0 in norms:
        return 1.0 if norms == (0, 0) else 0.0
    dot = (np.asarray(g, LONG).ravel() * np.asarray(r, LONG).ravel()).sum()
    return float(np.clip(dot / (norms[0] * norms[1]), -1, 1))


def cosine_gap(g, r):
    """Half the squared distance of the unit vectors; both zero 0, one zero 1."""
    norms = _norm(g), _norm(r)
    if 0 in norms:
        return 0.0 if norms == (0, 0) else 1.0
    apart = np.asarray(g, LONG) / norms[0] - np.asarray(r, LONG) / norms[1]
    return float((apart * apart).sum() / 2)


def counts(g, r):
    """NaN and infinity on either side, and elements whose class or sign of infinity differs."""
    kind = [np.where(np.isnan(v), 2, np.where(np.isinf(v), np.sign(v) + 4, 0)) for v in (g, r)]
    return {
        "nan_got": int(np.isnan(g).sum()),
        "nan_ref": int(np.isnan(r).sum()),
        "inf_got": int(np.isinf(g).sum()),
        "inf_ref": int(np.isinf(r).sum()),
        "class_mismatch": int((kind[0] != kind[1]).sum()),
    }


def _one_sided(g, r):
    """Share of |g| < |r| among those that differ; z against a fair coin. Nothing differs: absent."""
    unequal = int((np.abs(g) != np.abs(r)).sum())
    if unequal == 0:
        return {}
    below = int((np.abs(g) < np.abs(r)).sum())
    return {"one_sided": below / unequal, "one_sided_z": (2 * below - unequal) / math.sqrt(unequal)}


def _largest(d, g, r, condition):
    """The worst elements with what is known there."""
    at = int(np.argmax(d))
    out = {
        "max_abs": d[at],
        "max_abs_index": at,
        "worst_index": at,
        "worst_got": g[at],
        "worst_ref": r[at],
        "zero_ref": int(((r == 0) & (g != 0)).sum()),
    }
    defined = r != 0
    if defined.any():
        relative = np.where(defined, d / np.where(defined, np.abs(r), 1), -1)
        at_rel = int(np.argmax(relative))
        out |= {"max_rel": relative[at_rel], "max_rel_index": at_rel}
        out |= _percentiles("rel", relative[defined])
    if condition is not None:
        out |= {"worst_condition": condition[at], "max_rel_condition": condition[at_rel]}
    return out


def _percentiles(name, values):
    points = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}
    return {f"{name}_{k}": float(np.percentile(values, q)) for k, q in points.items()}


def _tokens(g, r):
    own = np.array([rel_l2(a, b) for a, b in zip(g, r)])
    return {
        "token_rel_l2_p50": float(np.percentile(own, 50)),
        "token_rel_l2_p99": float(np.percentile(own, 99)),
        "token_rel_l2_max": float(own.max()),
    }


def _norms(g, r):
    error, size_g, size_r = _norm(g - r), _norm(g), _norm(r)
    gr = (np.asarray(g - r, LONG) * r).sum()
    return {
        "rel_l2": _ratio(error, size_r),
        "cosine": cosine(g, r),
        "cosine_gap": cosine_gap(g, r),
        "slope": _ratio(gr, size_r * size_r),
        "calc_diff": _ratio(error * error, size_g * size_g + size_r * size_r),
        "sqnr_db": float(20 * np.log10(size_r / error)) if error > 0 else math.inf,
    }


def comb_sums(comb, streams):
    """Largest deviation of a row's and of a column's sum from 1."""
    c = np.asarray(comb, LONG).reshape(-1, streams, streams)
    return {
        "row_sum_dev": float(np.abs(c.sum(axis=2) - 1).max()),
        "col_sum_dev": float(np.abs(c.sum(axis=1) - 1).max()),
    }


def against(g, a):
    """Distance to another variant; `changed` compares bits, both widened exactly to fp32."""
    wide = [np.ascontiguousarray(v, np.float32).view(np.uint32) for v in (g, a)]
    g, a = np.asarray(g, np.float64), np.asarray(a, np.float64)
    return {
        "against_rel_l2": rel_l2(g, a),
        "against_cosine_gap": cosine_gap(g, a),
        "changed": float((wide[0] != wide[1]).mean()),
    }


def measure(got, r, e, dtype, condition=None):
    """The measures of one finite row; `dtype` is the stage's output format."""
    got = np.asarray(got, np.float64)
    g_flat, r_flat = got.ravel(), r.ravel()
    d = np.abs(g_flat - r_flat)
    scaled = d / float(_norm(r_flat) / np.sqrt(LONG(r_flat.size)))
    in_ulps = d / formats.ulp(r_flat, dtype)
    return {
        **_norms(g_flat, r_flat),
        **_largest(d, g_flat, r_flat, None if condition is None else condition.ravel()),
        "max_scaled": float(scaled.max()),
        "ulp_max": float(in_ulps.max()),
        "ulp_mean": float(in_ulps.astype(LONG).mean()),
        **_one_sided(g_flat, r_flat),
        **_percentiles("scaled", scaled),
        **_tokens(got, r),
        "operand_rel_l2": rel_l2(e, r),
        "arith_rel_l2": rel_l2(got, e),
        **counts(g_flat, r_flat),
    }
