"""Writes an inputs file whose x a tensor core's operand format cannot hold exactly.

    python make_inputs.py FILE F32|F16 TOKENS STREAMS HIDDEN

One tensor `x` for every site: N(0,1) in fp32 or f16, so that x is rounded by the weight's rule, the
rms factor uses it as stored and a second part of x is not zero. Never bf16: the recorded and the
generated inputs already are.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

DTYPES = {"F32": "<f4", "F16": "<f2"}


def main():
    path, dtype = Path(sys.argv[1]), sys.argv[2]
    shape = [int(word) for word in sys.argv[3:6]]
    data = np.random.default_rng(0).standard_normal(shape).astype(DTYPES[dtype]).tobytes()
    header = {"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
