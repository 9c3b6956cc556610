"""Reads safetensors files and a sharded checkpoint by hand.

Layout of a file: an unsigned 64-bit little-endian header length, that many bytes of JSON (name to
dtype, shape and data_offsets, the offsets counted from the end of the header), then the data,
row-major and little-endian. A checkpoint is a directory with `model.safetensors.index.json`, whose
`weight_map` names the shard of every tensor, or a single `model.safetensors`.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_PLAIN = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "U8": "|u1", "U16": "<u2", "U32": "<u4", "I64": "<i8"}
# Read as codes: what they stand for takes a second tensor.
_PLAIN |= {"F8_E4M3": "|u1", "F8_E8M0": "|u1", "I8": "|u1"}


@dataclass
class Tensor:
    """One tensor: its stored type, its values (widened exactly) and its stored bits."""

    dtype: str
    values: np.ndarray
    bits: np.ndarray


def _decode(name, entry, data):
    dtype, shape = entry["dtype"], entry["shape"]
    raw = data[entry["data_offsets"][0] : entry["data_offsets"][1]]
    if dtype == "BF16":
        bits = np.frombuffer(raw, "<u2").reshape(shape)
        values = (bits.astype(np.uint32) << 16).view(np.float32)
        return Tensor(dtype, values, bits)
    if dtype not in _PLAIN:
        raise ValueError(f"{name}: dtype {dtype} is none that this oracle reads")
    values = np.frombuffer(raw, _PLAIN[dtype]).reshape(shape)
    bits = values.reshape(-1).view(f"<u{values.itemsize}").reshape(shape)
    return Tensor(dtype, values.astype(np.float32) if dtype == "F16" else values, bits)


def _header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header, 8 + length


def read(path):
    """Every tensor of one file, by name."""
    header, start = _header(path)
    data = memoryview(Path(path).read_bytes())[start:]
    return {name: _decode(name, entry, data) for name, entry in header.items()}


def read_one(path, name):
    """One tensor of a file that may be large: only its own bytes are read."""
    header, start = _header(path)
    if name not in header:
        raise ValueError(f"{path} has no tensor {name}")
    entry = dict(header[name])
    first, end = entry["data_offsets"]
    with open(path, "rb") as file:
        file.seek(start + first)
        data = file.read(end - first)
    entry["data_offsets"] = [0, end - first]
    return _decode(name, entry, data)


def write(path, tensors):
    """A file of F32, F64 and I64 arrays, by name; one of uint16 is the bits of BF16."""
    header, data = {}, b""
    for name, values in tensors.items():
        dtype = {"f4": "F32", "f8": "F64", "i8": "I64", "u2": "BF16"}[values.dtype.str[1:]]
        raw = np.ascontiguousarray(values).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def data_start(path, name):
    """Byte position in the file of a tensor's first element; the negative controls aim with it."""
    header, start = _header(path)
    return start + header[name]["data_offsets"][0]


class Checkpoint:
    """A checkpoint directory: its config and its tensors, found through the index."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.config = json.loads((self.directory / "config.json").read_text())
        self.model_type = self.config.get("model_type")
        # A composite config keeps the language model's numbers one level down.
        self.config = self.config.get("text_config", self.config)
        index = self.directory / "model.safetensors.index.json"
        if index.exists():
            self.shard_of = json.loads(index.read_text())["weight_map"]
        else:
            header, _ = _header(self.directory / "model.safetensors")
            self.shard_of = {name: "model.safetensors" for name in header}

    def tensor(self, *names):
        """The first of several spellings of one tensor's name that the checkpoint has."""
        for name in names:
            if name in self.shard_of:
                return read_one(self.directory / self.shard_of[name], name)
        raise ValueError(f"{self.directory} has none of {', '.join(names)}")
