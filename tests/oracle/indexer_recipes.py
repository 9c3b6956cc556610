"""Two recipes of the indexer bit by bit: fp32 operations rounded one at a time, matrix units by tensor_core.py.

reference-bf16-fp4, the official code: bf16 after every step; q and k in MXFP4 (blocks of 32) held in bf16; a head's dot
    on the bf16 unit, rounded to bf16; relu; times w, to bf16; heads added in fp32 in ascending order; the sum to bf16.
    w = bf16(bf16(weights_proj . u) * constant).
fp8-f32scale, SGLang with DeepGEMM's sm_100 kernel: after wq_b, and for keys from the projection on, fp32; q and k in
    e4m3 with one fp32 scale a vector; dots on the fp8 unit; relu; HEAD_ORDER; the key's scale last.
    w = (bf16(weights_proj . u) * constant) * scale of q.

Both have their linears in FP8: the input in e4m3 by blocks of 128 with scales of powers of two, a chain of the fp8 unit
per block, blocks added in fp32; weights that are not FP8 are one fma chain. Outputs are bf16.

Beside the logits stands the recipe-exact value: the same operands, head weights and scales, summed in f64.
"""

from dataclasses import dataclass

import numpy as np

import formats
import indexer
import rounded
import tensor_core

BLOCK = 128
# How fp8-f32scale adds its heads: "mod-4", four fma chains of the heads 0, 1, 2, 3 mod 4, then (c0 + c2) + (c1 + c3);
# or "ascending", one fma chain.
HEAD_ORDER = "mod-4"


@dataclass
class Logits:
    """Of every query and key, whether visible or not: as the recipe makes them, and recipe-exact."""

    got: np.ndarray
    exact: np.ndarray


def f32(x):
    return np.float32(x)


def power_of_two_above(x):
    """2^ceil(log2 x) of normal fp32 x, from its bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    exponent = (bits >> np.uint32(23)) + (bits & np.uint32(0x7FFFFF) != 0)
    return (exponent.astype(np.uint32) << np.uint32(23)).view(np.float32)


def ascending_sum(x):
    """The last axis added in fp32, in ascending order from 0."""
    total = np.zeros(x.shape[:-1], np.float32)
    for k in range(x.shape[-1]):
        total = total + x[..., k]
    return total


def chain(x, weight):
    """x [T, K] . weight [N, K], one fp32 fma chain over ascending k per output."""
    total = np.zeros((len(x), len(weight)), np.float32)
    # Products of two bf16 are exact in fp32: adding them rounds as often as fma does.
    exact = (formats.bf16(x) == x).all() and (formats.bf16(weight) == weight).all()
    for k in range(x.shape[1]):
        a, b = x[:, k, None], weight[None, :, k]
        total = total + a * b if exact else formats.fma(a, b, total)
    return total


def on_unit(kind, arch, a, b):
    """Chains from 0 of a [S, T, K] and b [S, N, K], as fp32 [S, T, N]."""
    start = np.zeros((len(a), a.shape[1], b.shape[1]))
    return tensor_core.chains(tensor_core.unit(kind, arch), a, b, start).astype(np.float32)


def _blocks(x, block):
    """[T, K] to [K / block, T, block], zeros behind the last."""
    x = np.pad(x, ((0, 0), (0, -x.shape[1] % block)))
    return np.moveaxis(x.reshape(len(x), -1, block), 1, 0)


def linear(x, weight, arch):
    """An FP8 linear of bf16 x [T, K], to bf16."""
    if weight.scales is None:
        return formats.bf16(chain(x, weight.values))
    assert weight.block == (BLOCK, BLOCK), f"blocks of {weight.block}"
    x = _blocks(x, BLOCK)
    largest = np.maximum(np.abs(x).max(axis=-1, keepdims=True), f32(1e-4))
    scale = power_of_two_above(largest * f32(1 / 448))
    codes = formats.saturated(x / scale, "E4M3")
    parts = on_unit("e4m3", arch, codes, _blocks(weight.values, BLOCK))
    spread = np.repeat(weight.scales.astype(np.float32), BLOCK, axis=0)[: parts.shape[-1]]
    total = np.zeros(parts.shape[1:], np.float32)
    for block, part in enumerate(parts):
        total = total + part * (scale[block] * spread[None, :, block])
    return formats.bf16(total)


def rms_norm(x, weight, eps):
    """RMSNorm over a row in fp32, the result not rounded further."""
    mean = ascending_sum(x * x) / f32(x.shape[-1])
    return x * rounded.rsqrt(mean + f32(eps))[..., None] * weight


def hadamard(x):
    """The Hadamard transform of the last axis over its root, stages of stride 1, 2, ..."""
    width = x.shape[-1]
    stride = 1
    while stride < width:
        pairs = x.reshape(*x.shape[:-1], -1, 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        stride *= 2
    return x * f32(width**-0.5)


# Of one recipe both or neither; two names, so that a test can leave out one.
hadamard_of_q = hadamard_of_k = hadamard


def pooled(kv, gate):
    """The windows' rows weighed by their gates [N, 8, W] in fp32, rows in ascending order."""
    weight = rounded.exp(gate - gate.max(axis=1, keepdims=True))
    share = weight / ascending_sum(np.moveaxis(weight, 1, -1))[:, None]
    return ascending_sum(np.moveaxis(kv * share, 1, -1))


def hidden(layer, inputs):
    """u of all tokens, bf16."""
    if inputs.u is not None:
        return inputs.u
    return formats.bf16(rms_norm(inputs.y, layer.attn_norm, layer.eps))


def queries(layer, inputs, u, arch, step):
    """q [Q, H, W] after rope and Hadamard; `step` rounds behind each."""
    at = inputs.positions
    if inputs.qr is None:
        qr = formats.bf16(rms_norm(linear(u[at], layer.wq_a, arch), layer.q_norm, layer.eps))
    else:
        qr = inputs.qr[at]
    q = linear(qr, layer.wq_b, arch).reshape(len(at), layer.heads, layer.width)
    q = step(indexer.rope(q, at, layer.frequencies))
    return step(hadamard_of_q(q))


def keys(layer, u, step):
    """k [N, W] after rope and Hadamard; `step` rounds behind pooling, norm and each of them."""
    kv, gate = chain(u, layer.wkv), indexer.with_ape(chain(u, layer.wgate), layer.ape)
    k = step(pooled(indexer.windows(kv, 0), indexer.windows(gate, -np.inf)))
    k = step(rms_norm(k, layer.k_norm, layer.eps))
    k = step(indexer.rope(k, indexer.key_positions(len(k)), layer.frequencies))
    return step(hadamard_of_k(k))


def head_weights(layer, inputs, u):
    """weights_proj . u to bf16, times the constant in fp32."""
    projected = formats.bf16(chain(u[inputs.positions], layer.weights_proj))
    return projected * f32(layer.head_constant())


def mxfp4(x):
    """Values of e2m1 codes times a power of two per 32 of the last axis."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    largest = np.maximum(np.abs(blocks).max(axis=-1, keepdims=True), f32(6 * 2.0**-126))
    scale = power_of_two_above(largest * f32(1 / 6))
    return (formats.saturated(blocks / scale, "E2M1") * scale).reshape(x.shape)


def e4m3_of_rows(x):
    """e4m3 codes' values of the last axis, and its fp32 scale, the largest magnitude over 448."""
    largest = np.maximum(np.abs(x).max(axis=-1), f32(1e-4))
    scale = largest / f32(448)
    inverse = f32(1) / scale
    return formats.saturated(x * inverse[..., None], "E4M3"), scale


def dots(kind, arch, q, k):
    """q [Q, H, W] . k [N, W] on a unit, [Q, H, N]."""
    return np.stack([on_unit(kind, arch, one[None], k[None])[0] for one in q])


def exact_logits(q, k, w):
    """sum_h w_h relu(q_h . k) in f64."""
    products = indexer.relu(q.astype(np.float64) @ k.T.astype(np.float64))
    return np.einsum("qh,qhn->qn", w.astype(np.float64), products)


def weighed_sum(s, w, order):
    """sum_h w_h s_h of [Q, H, N] by fma, in the order named."""
    chains = {"mod-4": 4, "ascending": 1}[order]
    sums = [np.zeros((len(s), s.shape[2]), np.float32) for _ in range(chains)]
    for head in range(s.shape[1]):
        sums[head % chains] = formats.fma(s[:, head], w[:, head, None], sums[head % chains])
    return sums[0] if chains == 1 else (sums[0] + sums[2]) + (sums[1] + sums[3])


def reference_bf16_fp4(layer, inputs, arch):
    """The official code."""
    u = hidden(layer, inputs)
    q = mxfp4(queries(layer, inputs, u, arch, formats.bf16))
    k = mxfp4(keys(layer, u, formats.bf16))
    w = formats.bf16(head_weights(layer, inputs, u))
    s = indexer.relu(formats.bf16(dots("bf16", arch, q, k)))
    terms = formats.bf16(s * w[:, :, None])
    return Logits(formats.bf16(ascending_sum(np.moveaxis(terms, 1, -1))), exact_logits(q, k, w))


def fp8_f32scale(layer, inputs, arch):
    """SGLang."""
    u = hidden(layer, inputs)
    q, q_scale = e4m3_of_rows(queries(layer, inputs, u, arch, formats.unrounded))
    k, k_scale = e4m3_of_rows(keys(layer, u, formats.unrounded))
    w = head_weights(layer, inputs, u) * q_scale
    s = indexer.relu(dots("e4m3", arch, q, k))
    return Logits(weighed_sum(s, w, HEAD_ORDER) * k_scale, exact_logits(q, k, w) * k_scale.astype(np.float64))


RECIPES = {"reference-bf16-fp4": reference_bf16_fp4, "fp8-f32scale": fp8_f32scale}
