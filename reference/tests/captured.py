"""Cuts a few tokens of two sites out of a tiny checkpoint written by transformers 5.17.0.

    python reference/tests/captured.py CHECKPOINT_DIR

reads the checkpoint's shards, captured_inputs.safetensors (inputs of a real forward pass, BF16) and
captured_reference.safetensors (mixes, pre, post, comb and y that other people's code computed in
float64 by the published formula), and writes reference/tests/data/captured.safetensors.
Constants of that checkpoint: hc_mult 4, hc_sinkhorn_iters 20, hc_eps 1e-6, rms_norm_eps 1e-6.
"""

import json
import sys
from pathlib import Path

import numpy as np

import safetensors_file

SITES = [(0, "attn"), (3, "ffn")]
# Sixteen of the 256 tokens, the first and the last among them.
TOKENS = np.arange(16) * 17


def main(checkpoint):
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())["weight_map"]
    out = {}
    for layer, site in SITES:
        for part in ("fn", "base", "scale"):
            name = f"model.layers.{layer}.hc_{site}_{part}"
            out[f"{site}.{part}"] = safetensors_file.read(checkpoint / index[name], name)
        name = f"layers.{layer}.{site}"
        dtype, x = safetensors_file.read(checkpoint / "captured_inputs.safetensors", f"{name}.x")
        out[f"{site}.x"] = (dtype, x[TOKENS].reshape(len(TOKENS), -1))
        for part in ("mixes", "pre", "post", "comb", "y"):
            dtype, values = safetensors_file.read(checkpoint / "captured_reference.safetensors", f"{name}.{part}")
            out[f"{site}.{part}"] = (dtype, values[TOKENS].reshape(len(TOKENS), -1))
    path = Path(__file__).parent / "data" / "captured.safetensors"
    path.parent.mkdir(exist_ok=True)
    metadata = {"by": "reference/tests/captured.py", "from": "transformers 5.17.0", "sites": "layers 0 attn, 3 ffn"}
    safetensors_file.write(path, out, metadata)


main(Path(sys.argv[1]))
