#!/usr/bin/env python3
"""Copies what the tests need of a transformers-written checkpoint into fixtures/transformers_tiny and _indexer.

usage: make_transformers_fixture.py SOURCE_DIR [TARGET_DIR]

The index, the configuration and the shards with hyper-connection weights are copied byte by byte.
The first TOKENS tokens of the captured inputs and float64 references of layers 0 and 1 go into one
file, captured.safetensors. The tensors of one layer with an indexer become a checkpoint of their own, its hidden
states, scores and selections another file. Standard library only.
"""

import json
import shutil
import struct
import sys
from pathlib import Path

TOKENS = 64
LAYERS = (0, 1)
SITES = ("attn", "ffn")
REFERENCES = ("mixes", "pre", "post", "comb", "y")
INDEXED = 1


def read_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), 8 + length


def first_tokens(path, names):
    """Yields (name, dtype, shape, bytes) of the first TOKENS rows of each tensor."""
    header, start = read_header(path)
    with open(path, "rb") as file:
        for name in names:
            entry = header[name]
            begin, end = entry["data_offsets"]
            row = (end - begin) // entry["shape"][0]
            file.seek(start + begin)
            yield name, entry["dtype"], [TOKENS, *entry["shape"][1:]], file.read(TOKENS * row)


def write(path, tensors):
    header, data, offset = {}, [], 0
    for name, dtype, shape, values in tensors:
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [offset, offset + len(values)],
        }
        offset += len(values)
        data.append(values)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def all_of(path, wanted):
    """Yields (name, dtype, shape, bytes) of the tensors of a file whose names are wanted."""
    header, start = read_header(path)
    with open(path, "rb") as file:
        for name, entry in header.items():
            if name != "__metadata__" and wanted(name):
                begin, end = entry["data_offsets"]
                file.seek(start + begin)
                yield name, entry["dtype"], entry["shape"], file.read(end - begin)


def indexer(source, target):
    """One layer's hyper-connections, norms and indexer, and what was captured there."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "config.json", target / "config.json")
    prefix = f"model.layers.{INDEXED}."
    parts = ("hc_", "attn_norm", "ffn_norm", "attn.wq_a", "attn.q_norm", "attn.indexer")

    def of_layer(name):
        return name.startswith(tuple(prefix + part for part in parts))

    shards = sorted(source.glob("model-*.safetensors"))
    tensors = [tensor for shard in shards for tensor in all_of(shard, of_layer)]
    write(target / "model.safetensors", tensors)

    def captured(name):
        return name.startswith(f"layers.{INDEXED}.indexer.")

    files = [source / f"captured_{kind}.safetensors" for kind in ("reference", "inputs")]
    # What is wider first keeps every tensor aligned.
    tensors = [tensor for file in files for tensor in all_of(file, captured)]
    write(target / "captured.safetensors", sorted(tensors, key=lambda tensor: tensor[1] == "BF16"))


def main():
    source = Path(sys.argv[1])
    indexer(source, Path("fixtures/transformers_indexer"))
    target = Path(sys.argv[2] if len(sys.argv) > 2 else "fixtures/transformers_tiny")
    target.mkdir(parents=True, exist_ok=True)
    index = json.loads((source / "model.safetensors.index.json").read_text())
    shards = sorted({file for name, file in index["weight_map"].items() if name.endswith("_fn")})
    for name in ["model.safetensors.index.json", "config.json", *shards]:
        # Content only: the source may be read-only.
        shutil.copyfile(source / name, target / name)
    sites = [f"layers.{layer}.{site}" for layer in LAYERS for site in SITES]
    inputs = first_tokens(source / "captured_inputs.safetensors", [f"{site}.x" for site in sites])
    references = first_tokens(
        source / "captured_reference.safetensors",
        [f"{site}.{stage}" for site in sites for stage in REFERENCES],
    )
    # F64 first keeps every tensor aligned.
    write(target / "captured.safetensors", [*references, *inputs])


if __name__ == "__main__":
    main()
