"""A chain of layers in fp64, as the official code defines it: streams from the embedding to the head.

X [T, h*d] stream-major, at first the same row in every stream or streams as recorded. A layer runs its attn site, then its
ffn site; a site mixes (model.py), collapses the streams to y, norms it to u, runs a sublayer and
spreads its output f over the streams:

    u = y / sqrt(mean(y^2) + norm_eps) * weight          f of u: sublayer.py
    X'[k] = post_k f + sum_j comb[j,k] X[j]              X as the site found it; comb's FIRST index contracts
    head: y = sum_j (sigmoid((fn . x) r scale + base) + hc_eps)_j X_j

V4 collapses with the site's own pre. V4.1 collapses with the pre of the site before, the model's first
with stream 0 alone, and the model's end with the pre of the last site: it has no head weights.
"""

from dataclasses import dataclass

import numpy as np

import model
from sublayer import rms_norm

SITES = ("attn", "ffn")


@dataclass
class Head:
    """What collapses the streams at the end."""

    fn: np.ndarray
    base: np.ndarray
    scale: float


@dataclass
class Chain:
    """Every site in the order it runs, as (layer, kind, model.Site, norm weight); the head if there is one."""

    places: list
    head: Head | None

    @property
    def delayed(self):
        """V4.1's order: the model without a head."""
        return self.head is None


def load(checkpoint):
    """The chain of a checkpoint whose layers are all there."""

    def values(*names):
        return np.asarray(checkpoint.tensor(*names).values, np.float64)

    theirs = {"attn": "input_layernorm", "ffn": "post_attention_layernorm"}
    places = []
    for layer in range(int(checkpoint.config["num_hidden_layers"])):
        for kind in SITES:
            official = f"layers.{layer}.{kind}_norm.weight"
            names = (official, f"model.{official}", f"model.layers.{layer}.{theirs[kind]}.weight")
            places.append((layer, kind, model.load_site(checkpoint, layer, kind), values(*names)))
    if checkpoint.model_type == "deepseek_v41":
        return Chain(places, None)
    parts = [values(f"hc_head_{p}", f"model.hc_head_{p}", f"model.hc_head.hc_{p}") for p in ("fn", "base", "scale")]
    return Chain(places, Head(parts[0], parts[1].reshape(-1), float(parts[2].reshape(-1)[0])))


def mixes(x, fn, site):
    """Projection first, rms factor after."""
    return (x @ fn.astype(np.float64).T) * model.rms(x, site)[:, None]


def collapse(pre, x):
    """sum_j pre_j X_j."""
    return np.einsum("tj,tjc->tc", pre, x.reshape(*pre.shape, -1))


def norm(y, weight, eps):
    """RMSNorm over the row."""
    return y / np.sqrt((y * y).mean(axis=1, keepdims=True) + eps) * weight


def recombine(x, f, post, comb):
    """X'[k] = post_k f + sum_j comb[j,k] X[j]."""
    tokens, streams = post.shape
    carried = np.einsum("tjk,tjc->tkc", comb.reshape(tokens, streams, streams), x.reshape(tokens, streams, -1))
    return (post[:, :, None] * f[:, None, :] + carried).reshape(x.shape)


class Steps:
    """What a site does between its sums. A chain with one error of its own overrides one of these."""

    def __init__(self, sublayer=rms_norm):
        self.sublayer = sublayer

    def split(self, name, x, site):
        """The gates and comb of the streams that a site finds."""
        return model.after_mixes(mixes(x, site.fn, site), x, site)

    def output(self, name, y, weight, eps):
        """f of the layer input y."""
        layer, kind = name[1:].split(".")
        return self.sublayer(int(layer), kind, norm(y, weight, eps))

    def store(self, x):
        """The streams as they are kept."""
        return x


def streams_of(chain, start):
    """Rows [T, d] copied to all streams, or streams [T, h*d] as they are."""
    first = chain.places[0][2]
    row = start.astype(np.float64)
    return row if row.shape[1] == first.fn.shape[1] else np.tile(row, (1, first.streams))


def run(chain, start, sublayer=rms_norm):
    """Yields (name, streams) after every site, then ("head", y), of rows [T, d] or streams [T, h*d]."""
    return walk(chain, start, Steps(sublayer))


def walk(chain, start, steps):
    """`run` with steps of one's own."""
    x = steps.store(streams_of(chain, start))
    waiting = np.zeros((len(x), chain.places[0][2].streams))
    waiting[:, 0] = 1
    for layer, kind, site, weight in chain.places:
        name = f"L{layer}.{kind}"
        split = steps.split(name, x, site)
        pre = waiting if chain.delayed else split["pre"]
        f = steps.output(name, collapse(pre, x), weight, site.norm_eps)
        x = steps.store(recombine(x, f, split["post"], split["comb"]))
        waiting = split["pre"]
        yield f"{name}.streams", x
    if not chain.delayed:
        last = chain.places[-1][2]
        logits = mixes(x, chain.head.fn, last) * chain.head.scale + chain.head.base
        waiting = model.sigmoid(logits) + last.hc_eps
    yield "head", collapse(waiting, x)
