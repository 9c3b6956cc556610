"""What stands in for attention and MoE in a chain, in fp64: f of u, both [T, d].

rms-norm        f = u
shared-expert   ffn sites: f = (silu(min(u w1^T, limit)) * clip(u w3^T, -limit, limit)) w2^T; attn sites: f = u
file            f as it was recorded, whatever u is

`limit` is the configuration's swiglu_limit, 0 for none. Weights are floats as stored, or codes times the power of
two of their block: F8_E4M3 in blocks of weight_block_size, or I8 that packs two E2M1 codes, the lower four bits
first, with a scale per 32 values of a row. A scale's code c is 2^(c - 127).
"""

import numpy as np

import model
import safetensors_io

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
THEIRS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def e4m3(codes):
    """Four exponent bits of bias 7, three of fraction; no infinity, NaN where all seven are set."""
    codes = codes.astype(np.int64)
    exponent, fraction = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10))
    magnitude[codes & 127 == 127] = np.nan
    return np.where(codes >> 7 == 1, -magnitude, magnitude)


def e2m1(bytes_):
    """Two codes a byte: a sign over three bits."""
    codes = np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(len(bytes_), -1)
    return np.where(codes >> 3 == 1, -1.0, 1.0) * E2M1[codes & 7]


def spread(scales, block, shape):
    """A scale for every value."""
    powers = 2.0 ** (scales.astype(np.int64) - 127)
    return np.repeat(np.repeat(powers, block[0], axis=0), block[1], axis=1)[: shape[0], : shape[1]]


def matrix(checkpoint, layer, part):
    """One matrix of a layer's shared expert."""
    official = f"layers.{layer}.ffn.shared_experts.{part}"
    module = f"model.layers.{layer}.mlp.shared_experts.{THEIRS[part]}"
    weight = checkpoint.tensor(f"{official}.weight", f"model.{official}.weight", f"{module}.weight")
    if weight.dtype not in ("F8_E4M3", "I8"):
        return weight.values.astype(np.float64)
    names = (f"{official}.scale", f"model.{official}.scale", f"{module}.weight_scale_inv")
    scale = checkpoint.tensor(*names)
    if weight.dtype == "I8":
        values, block = e2m1(weight.bits), (1, 32)
    else:
        values, block = e4m3(weight.bits), checkpoint.config["quantization_config"]["weight_block_size"]
    return values * spread(scale.bits, block, values.shape)


def swiglu(gate, up, limit):
    """The hidden layer; only the gate's upper side is clamped."""
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate * model.sigmoid(gate) * up


def rms_norm(_layer, _kind, u):
    """Nothing after the norm."""
    return u


def shared_expert(checkpoint):
    """The layers' own experts."""
    limit = float(checkpoint.config.get("swiglu_limit", 10))

    def run(layer, kind, u):
        if kind == "attn":
            return u
        gate, down, up = (matrix(checkpoint, layer, part) for part in ("w1", "w2", "w3"))
        return swiglu(u @ gate.T, u @ up.T, limit) @ down.T

    return run


def recorded(path):
    """Outputs out of a file."""
    return lambda layer, kind, u: safetensors_io.read_one(path, f"layers.{layer}.{kind}.f").values[: len(u)].astype(
        np.float64
    )


def named(text, checkpoint):
    """`rms-norm`, `shared-expert` or `file:PATH`."""
    if text.startswith("file:"):
        return recorded(text.removeprefix("file:"))
    return {"rms-norm": lambda: rms_norm, "shared-expert": lambda: shared_expert(checkpoint)}[text]()
