"""Copies a checkpoint directory, its shared experts replaced by random ones whose scales are all over the place.

    python make_experts.py CHECKPOINT_DIR COPY_DIR fp8|fp4

They are as wide as the old ones, and so large that several in a hundred hidden units reach the swiglu_limit. FP8 in
blocks that are not square, which the configuration says; packed FP4 with a scale per 32 values of a row.
"""

import json
import shutil
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILE = "experts.safetensors"


@dataclass
class Format:
    """How a matrix is stored, and the least scale code that makes w1 and w3, and w2, as large as wanted."""

    dtype: str
    per_byte: int
    block: tuple
    mask: int
    least: dict


FORMATS = {
    # The mask keeps E4M3 below 2.
    "fp8": Format("F8_E4M3", 1, (32, 64), 0xBF, {"w1": 124, "w2": 120, "w3": 124}),
    "fp4": Format("I8", 2, (1, 32), 0xFF, {"w1": 123, "w2": 118, "w3": 123}),
}


def main():
    source, copy, stored = Path(sys.argv[1]), Path(sys.argv[2]), FORMATS[sys.argv[3]]
    shutil.copytree(source, copy)
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = FORMATS["fp8"].block
    (copy / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    d, inter = config["hidden_size"], config["moe_intermediate_size"]
    random = np.random.default_rng(3)
    header, data = {}, b""
    for layer in range(config["num_hidden_layers"]):
        for part, rows, columns in (("w1", inter, d), ("w2", d, inter), ("w3", inter, d)):
            codes = random.integers(0, 256, (rows, columns // stored.per_byte), np.uint8) & stored.mask
            blocks, least = (rows // stored.block[0], columns // stored.block[1]), stored.least[part]
            scales = random.integers(least, least + 3, blocks, np.uint8)
            for tensor, dtype, values in (("weight", stored.dtype, codes), ("scale", "F8_E8M0", scales)):
                offsets = [len(data), len(data) + values.size]
                entry = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
                header[f"layers.{layer}.ffn.shared_experts.{part}.{tensor}"] = entry
                data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (copy / FILE).write_bytes(struct.pack("<Q", len(text)) + text + data)
    path = copy / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"].update({name: FILE for name in header})
    path.write_text(json.dumps(index))


if __name__ == "__main__":
    main()
