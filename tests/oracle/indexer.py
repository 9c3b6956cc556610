"""The lightning indexer of a layer: its weights, and its logits in fp64 as the official code defines them.

T tokens of context, N = T/4 keys (rounded down), Q queries, H heads of width W, hidden size d, rank R. Of the hidden
states y [T, d]:

    u = y / sqrt(mean(y^2) + eps) * attn_norm
    q = rope(wq_b . norm(wq_a . u), position)                                   [Q, H, W]
    kv, gate = wkv . u, wgate . u + ape[t mod 4]                                [T, 2W]
    k_i = rope(norm(sum_r softmax_r(gate_r) kv_r), 4i)                          [N, W], softmax per channel
    S[q, i] = sum_h w_h relu(q_h . k_i),   w = weights_proj . u / sqrt(W H)     [Q, N]

The 8 rows of window i: channels 0..W of tokens 4i-4..4i-1 (for i = 0 none, gate -inf), then channels W..2W of
tokens 4i..4i+3. Key i is visible at position t if 4i+3 <= t. rope turns the last 64 of W in pairs (2j, 2j+1) by
position * freq_j. The functions below are what the recipes are made of as well: they keep the dtype they are given.
"""

import math
from dataclasses import dataclass

import numpy as np

import sublayer

RATIO = 4


@dataclass
class Weight:
    """A matrix as stored: values of its codes or numbers, and the power of two of each block of FP8 codes."""

    values: np.ndarray
    scales: np.ndarray | None
    block: tuple

    def dense(self):
        """What it stands for, in f64."""
        values = self.values.astype(np.float64)
        if self.scales is None:
            return values
        rows, columns = values.shape
        spread = np.repeat(np.repeat(self.scales, self.block[0], axis=0), self.block[1], axis=1)
        return values * spread[:rows, :columns]


@dataclass
class Layer:
    """Weights and constants of one layer's indexer and of what comes before it."""

    attn_norm: np.ndarray
    wq_a: Weight
    q_norm: np.ndarray
    wq_b: Weight
    weights_proj: np.ndarray
    wkv: np.ndarray
    wgate: np.ndarray
    ape: np.ndarray
    k_norm: np.ndarray
    frequencies: np.ndarray
    eps: float
    heads: int
    width: int

    def head_constant(self):
        """What weighs the heads beside their weights."""
        return self.width**-0.5 * self.heads**-0.5


@dataclass
class Inputs:
    """Hidden states of all tokens and where the queries are; u and qr where a file gave them."""

    y: np.ndarray
    positions: np.ndarray
    u: np.ndarray | None = None
    qr: np.ndarray | None = None


def frequencies(config, dims):
    """Angle per position of every pair: theta^(-2j/dims), under YaRN blended with the same over `factor`."""
    params = config.get("rope_parameters", {}).get("compress") or config.get("rope_scaling") or {}
    theta = float(params.get("rope_theta", config.get("compress_rope_theta", 160000.0)))
    plain = 1.0 / theta ** (np.arange(0, dims, 2, dtype=np.float64) / dims)
    kind = params.get("rope_type", params.get("type", "default"))
    if kind == "default":
        return plain
    if kind != "yarn":
        raise ValueError(f"rope of type {kind} is none that this oracle knows")
    original = params["original_max_position_embeddings"]

    def pair(rotations):
        """The pair that turns so often within the original context."""
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair(params.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair(params.get("beta_slow", 1))), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain / params["factor"] * ramp + plain * (1 - ramp)


def load(checkpoint, layer):
    """The indexer of a layer, names with or without `model.` before them."""
    config = checkpoint.config

    def stored(name):
        return checkpoint.tensor(f"layers.{layer}.{name}", f"model.layers.{layer}.{name}")

    def values(name):
        return np.asarray(stored(name).values, np.float32)

    def weight(name):
        tensor = stored(f"{name}.weight")
        if tensor.dtype != "F8_E4M3":
            return Weight(np.asarray(tensor.values, np.float32), None, (1, 1))
        codes = stored(f"{name}.scale").bits
        block = tuple(config["quantization_config"]["weight_block_size"])
        scales = 2.0 ** (codes.astype(np.int64) - 127)
        return Weight(sublayer.e4m3(tensor.bits).astype(np.float32), scales, block)

    compressor = "attn.indexer.compressor"
    return Layer(
        attn_norm=values("attn_norm.weight"),
        wq_a=weight("attn.wq_a"),
        q_norm=values("attn.q_norm.weight"),
        wq_b=weight("attn.indexer.wq_b"),
        weights_proj=values("attn.indexer.weights_proj.weight"),
        wkv=values(f"{compressor}.wkv.weight"),
        wgate=values(f"{compressor}.wgate.weight"),
        ape=values(f"{compressor}.ape"),
        k_norm=values(f"{compressor}.norm.weight"),
        frequencies=frequencies(config, int(config.get("qk_rope_head_dim", 64))),
        eps=float(config.get("rms_norm_eps", 1e-6)),
        heads=int(config.get("index_n_heads", 64)),
        width=int(config.get("index_head_dim", 128)),
    )


def visible(positions, keys):
    """Which keys each query sees, [Q, N]."""
    return np.arange(keys)[None] < (positions[:, None] + 1) // RATIO


def key_positions(keys):
    """Where a key is for rope: at the first token of its own four."""
    return RATIO * np.arange(keys)


def with_ape(gate, ape):
    """Gates with the learned offset of a token's place among its four."""
    return gate + ape.astype(gate.dtype)[np.arange(len(gate)) % RATIO]


def windows(x, before):
    """Of [T, 2W] the 8 rows of every window, [N, 8, W]; `before` is what the first window has no tokens for."""
    keys, width = len(x) // RATIO, x.shape[1] // 2
    x = x[: RATIO * keys].reshape(keys, RATIO, 2 * width)
    earlier = np.concatenate([np.full((1, RATIO, width), before, x.dtype), x[:-1, :, :width]])
    return np.concatenate([earlier, x[:, :, width:]], axis=1)


def rope(x, positions, freqs):
    """x [P, ..., W] with its last dims turned; angles in f64, cos and sin in the dtype of x."""
    angle = positions[:, None].astype(np.float64) * freqs
    cos, sin = (of(angle).astype(x.dtype) for of in (np.cos, np.sin))
    cos, sin = (v.reshape(len(x), *[1] * (x.ndim - 2), -1) for v in (cos, sin))
    turned = x.copy()
    first = x.shape[-1] - 2 * len(freqs)
    a, b = x[..., first::2], x[..., first + 1 :: 2]
    turned[..., first::2] = a * cos - b * sin
    turned[..., first + 1 :: 2] = a * sin + b * cos
    return turned


def relu(s):
    return np.maximum(s, 0)


def rms_norm(x, weight, eps):
    """RMSNorm over a row, in f64."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def pooled(kv, gate):
    """The windows' rows weighed by their gates, in f64."""
    weight = np.exp(gate - gate.max(axis=1, keepdims=True))
    return (kv * weight).sum(axis=1) / weight.sum(axis=1)


def reference(layer, inputs):
    """The logits [Q, N] in fp64: nothing rounded, nothing quantised, no Hadamard; all of them, visible or not."""
    at = inputs.positions
    y = inputs.y.astype(np.float64)
    u = rms_norm(y, layer.attn_norm, layer.eps) if inputs.u is None else inputs.u.astype(np.float64)
    if inputs.qr is None:
        qr = rms_norm(u[at] @ layer.wq_a.dense().T, layer.q_norm, layer.eps)
    else:
        qr = inputs.qr[at].astype(np.float64)
    q = rope((qr @ layer.wq_b.dense().T).reshape(len(at), layer.heads, layer.width), at, layer.frequencies)
    kv, gate = (u @ weight.T.astype(np.float64) for weight in (layer.wkv, layer.wgate))
    k = pooled(windows(kv, 0.0), windows(with_ape(gate, layer.ape), -np.inf))
    k = rope(rms_norm(k, layer.k_norm, layer.eps), key_positions(len(k)), layer.frequencies)
    w = u[at] @ layer.weights_proj.T.astype(np.float64) * layer.head_constant()
    return np.einsum("qh,qhn->qn", w, relu(q @ k.T))
