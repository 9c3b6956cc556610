"""Just enough of the safetensors format for the scripts beside this one."""

import json
import struct

import numpy as np

TYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "BF16": np.dtype("<u2"), "I64": np.dtype("<i8")}


def write(path, tensors, metadata):
    """Writes {name: (dtype, array)}; BF16 arrays are their bits as uint16."""
    header, body = {"__metadata__": metadata}, b""
    for name, (dtype, array) in sorted(tensors.items()):
        data = np.ascontiguousarray(array, dtype=TYPES[dtype]).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def read(path, name):
    """One tensor as (dtype, array); BF16 arrays are their bits as uint16."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))[name]
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        data = file.read(end - start)
    return entry["dtype"], np.frombuffer(data, TYPES[entry["dtype"]]).reshape(entry["shape"])
