"""Cuts the indexers of layers 1 and 3 out of a tiny checkpoint written by transformers 5.17.0.

    python reference/tests/captured_indexer.py CHECKPOINT_DIR

reads the checkpoint's shards, captured_inputs.safetensors (hidden states after the layer's norm and
query latents after theirs, BF16, of a real forward pass over 256 tokens) and
captured_reference.safetensors (the scores and the top 16 keys that transformers computed from them),
and writes reference/tests/data/captured_indexer.safetensors: all tokens, every eighth query.
Constants of that checkpoint: rope theta 160000 (type default) on the last 64 of 128, rms_norm_eps 1e-6.
"""

import json
import sys
from pathlib import Path

import numpy as np

import safetensors_file

WEIGHTS = ["wq_b", "weights_proj", "compressor.wkv", "compressor.wgate", "compressor.norm"]
QUERIES = np.arange(32) * 8 + 7


def main(checkpoint):
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())["weight_map"]
    read = lambda file, name: safetensors_file.read(checkpoint / file, name)
    out = {"queries": ("I64", QUERIES[None, :])}
    for layer in (1, 3):
        prefix = f"model.layers.{layer}.attn.indexer."
        for part in [f"{part}.weight" for part in WEIGHTS] + ["compressor.ape"]:
            out[f"{layer}.{part.removesuffix('.weight').split('.')[-1]}"] = read(index[prefix + part], prefix + part)
        name = f"layers.{layer}.indexer"
        out[f"{layer}.hidden_states"] = read("captured_inputs.safetensors", f"{name}.hidden_states")
        dtype, latent = read("captured_inputs.safetensors", f"{name}.q_residual")
        out[f"{layer}.q_residual"] = (dtype, latent[QUERIES])
        _, scores = read("captured_reference.safetensors", f"{name}.scores")
        kept = scores[QUERIES].astype(np.float32)
        assert np.array_equal(kept, scores[QUERIES]), "the scores are of float32"
        out[f"{layer}.scores"] = ("F32", kept)
        dtype, selected = read("captured_reference.safetensors", f"{name}.topk")
        out[f"{layer}.topk"] = (dtype, selected[QUERIES])
    path = Path(__file__).parent / "data" / "captured_indexer.safetensors"
    safetensors_file.write(path, out, {"by": "reference/tests/captured_indexer.py", "from": "transformers 5.17.0"})


main(Path(sys.argv[1]))
