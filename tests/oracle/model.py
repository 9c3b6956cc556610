"""The hyper-connection mixing in fp64, as the official code defines it.

x [T, h*d] stream-major; m = (x . fn) * r with r = 1/sqrt(mean(x^2) + norm_eps); the h*(h+2) mixes
are pre, post and the h x h comb, row-major. pre = sigmoid + hc_eps; post = 2 sigmoid; comb is
softmax over a row + hc_eps, then a column pass, then (iters - 1) times a row and a column pass,
each dividing by (sum + hc_eps). y = sum_j pre_j x_j of the un-normalised streams.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Site:
    """Weights and constants of one layer's attn or ffn site."""

    fn: np.ndarray
    base: np.ndarray
    scale: np.ndarray
    streams: int
    iterations: int
    hc_eps: float
    norm_eps: float


def load_site(checkpoint, layer, site):
    """The three hc tensors under either spelling, and the constants out of the config."""

    def tensor(part):
        official = f"layers.{layer}.hc_{site}_{part}"
        names = (official, f"model.{official}", f"model.layers.{layer}.{site}_hc.{part}")
        return np.asarray(checkpoint.tensor(*names).values, np.float32)

    config = checkpoint.config
    return Site(
        tensor("fn"),
        tensor("base").reshape(-1),
        tensor("scale").reshape(-1),
        int(config.get("hc_mult", 4)),
        int(config.get("hc_sinkhorn_iters", 20)),
        float(config.get("hc_eps", 1e-6)),
        float(config.get("rms_norm_eps", 1e-6)),
    )


def rms(x, site):
    """The exact rms factor per token, x as stored."""
    x = x.astype(np.float64)
    return 1.0 / np.sqrt((x * x).mean(axis=1) + site.norm_eps)


def sigmoid(z):
    """1/(1+exp(-z)); a large -z overflows to the limit 0."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-z))


def sinkhorn(logits, site):
    """[T, h, h] logits to the comb matrices."""
    eps = site.hc_eps
    c = np.exp(logits - logits.max(axis=2, keepdims=True))
    c = c / c.sum(axis=2, keepdims=True) + eps
    c = c / (c.sum(axis=1, keepdims=True) + eps)
    for _ in range(site.iterations - 1):
        c = c / (c.sum(axis=2, keepdims=True) + eps)
        c = c / (c.sum(axis=1, keepdims=True) + eps)
    return c


def after_mixes(mixes, x, site):
    """Stages pre, post, comb and y of given mixes."""
    h = site.streams
    scale, base = site.scale.astype(np.float64), site.base.astype(np.float64)
    mixes = mixes.astype(np.float64)
    pre = sigmoid(mixes[:, :h] * scale[0] + base[:h]) + site.hc_eps
    post = 2.0 * sigmoid(mixes[:, h : 2 * h] * scale[1] + base[h : 2 * h])
    logits = mixes[:, 2 * h :] * scale[2] + base[2 * h :]
    comb = sinkhorn(logits.reshape(-1, h, h), site).reshape(-1, h * h)
    streams = x.astype(np.float64).reshape(x.shape[0], h, -1)
    y = (pre[:, :, None] * streams).sum(axis=1)
    return {"pre": pre, "post": post, "comb": comb, "y": y}


def stages(dot, factor, x, site):
    """All stages from the projection and the factor that is still to be applied to it."""
    mixes = dot * factor
    return {"dot": dot, "mixes": mixes, **after_mixes(mixes, x, site)}
