"""Golden fits of error against depth, by numpy.polyfit.

    .venv/bin/python tests/data/growth_golden.py > tests/data/growth_golden.json

Needs NumPy (written with 2.3). Every curve is fitted by numpy.polyfit in the coordinates of each model, to
the first half of its depths and to all of them. `held_out` is the rms of ln(predicted / measured) over
the second half, null for a model that is out; `best` the model of the smallest, `r2` what each model's R²
over all depths is in its own coordinates, `lines` intercept and slope over all depths, and `at_61` what
the best model predicts there.
"""

import json

import numpy as np

MODELS = {
    "power": (np.log, np.log, np.exp),
    "linear": (lambda depth: depth, lambda e: e, lambda y: y),
    "variance": (lambda depth: depth, np.square, lambda y: np.sqrt(np.where(y > 0, y, np.nan))),
}
LAYERS = np.arange(1, 44)


def wobble(count, size, seed):
    return np.exp(size * np.random.default_rng(seed).standard_normal(count))


def curves():
    """name, depths, values"""
    yield "power with noise", LAYERS, 1.9e-3 * LAYERS**0.37 * wobble(43, 0.03, 0)
    yield "linear with noise", LAYERS, (4e-5 + 3e-6 * LAYERS) * wobble(43, 0.01, 1)
    yield "variance with noise", LAYERS, np.sqrt(2.6e-6 + 1.4e-6 * LAYERS) * wobble(43, 0.004, 2)
    yield "falling with noise", LAYERS, 2.1e-4 * LAYERS**-0.4 * wobble(43, 0.05, 3)
    yield "few and far apart", np.array([1, 2, 10, 21, 43]), np.array([1.9e-3, 2.2e-3, 4.0e-3, 5.6e-3, 7.8e-3])
    yield "large depths", LAYERS * 100_000, 3e-9 * LAYERS**0.5 * wobble(43, 0.02, 4)
    # A low first depth tilts the power law. Of the three it has the best R² over all depths, and predicts the
    # second half worst.
    yield "the best R² predicts worst", np.arange(1, 13), 1e-3 * np.array(
        [0.53, 1.51, 1.84, 2.57, 2.63, 2.72, 2.87, 3.32, 3.13, 3.43, 4.38, 3.85])


def predict(model, line, depths):
    x, _, back = MODELS[model]
    return back(line[0] + line[1] * x(depths))


def fitted(model, depths, values):
    x, y, _ = MODELS[model]
    slope, intercept = np.polyfit(x(depths), y(values), 1)
    return [intercept, slope]


def r2(model, depths, values):
    x, y, _ = MODELS[model]
    return np.corrcoef(x(depths), y(values))[0, 1] ** 2


def golden(name, depths, values):
    depths = depths.astype(float)
    half = -(-len(depths) // 2)
    lines = {model: fitted(model, depths, values) for model in MODELS}
    falls = lines["power"][1] < 0
    errors = {}
    for model, whole in lines.items():
        first = fitted(model, depths[:half], values[:half])
        everywhere = np.concatenate([predict(model, line, depths) for line in (first, whole)])
        out = (falls and model != "power") or not (everywhere > 0).all()
        if out:
            errors[model] = None
        else:
            ratio = np.log(predict(model, first, depths[half:]) / values[half:])
            errors[model] = float(np.sqrt(np.mean(ratio**2)))
    best = min((model for model in MODELS if errors[model] is not None), key=errors.get)
    return {
        "name": name,
        "depths": [int(depth) for depth in depths],
        "values": values.tolist(),
        "held_out": errors,
        "best": best,
        "r2": {model: float(r2(model, depths, values)) for model in MODELS},
        "lines": {model: [float(value) for value in line] for model, line in lines.items()},
        "at_61": float(predict(best, lines[best], 61.0)),
    }


def main():
    lines = [json.dumps(golden(*curve)) for curve in curves()]
    print("[\n" + ",\n".join(lines) + "\n]")


main()
