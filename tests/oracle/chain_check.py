"""Compares the tool's fp64 chain with this oracle's, depth by depth.

    python chain_check.py CHECKPOINT_DIR DUMP_DIR [rms-norm|shared-expert|file:PATH]

DUMP_DIR is what `run --suite chain --sublayer … --dump` writes over all layers, in any number of
files: `chain.x0` F32, the row [T, d] that all streams begin with, or streams [T, h*d] that differ; `L{layer}.{site}.streams.reference`
[T, h*d] F64; `head.reference` [T, d] F64, the collapsed streams before the final norm. The streams of
every token must agree to 1e-10 of that token's largest value. Exit 1 on any failure.
"""

import sys
from pathlib import Path

import numpy as np

import chain
import safetensors_io
import sublayer
from tally import Tally

LIMIT = 1e-10


def dumped(directory, files="*"):
    """Every tensor of every file; a name that two files hold is one too many."""
    tensors = {}
    for path in sorted(directory.glob(f"{files}.safetensors")):
        for name, tensor in safetensors_io.read(path).items():
            if name in tensors:
                raise ValueError(f"{name} is in two files of {directory}")
            tensors[name] = tensor
    return tensors


def apart(got, want):
    """The largest difference in a token over the token's largest value; NaN or infinity is a difference."""
    largest = np.abs(want).max(axis=1)
    with np.errstate(invalid="ignore"):
        ratio = np.abs(got - want).max(axis=1) / largest
    return np.where(np.isfinite(ratio), ratio, np.inf)


def check_stage(name, want, tensors, tally):
    """One depth, or the head."""
    kind = "head" if name == "head" else "streams"
    tensor = tensors.get(f"{name}.reference")
    if tensor is None:
        tally.fail(f"{kind}: {name}.reference is not in the dump")
    elif (tensor.dtype, tensor.values.shape) != ("F64", want.shape):
        tally.fail(f"{kind}: {name}.reference is {tensor.dtype} {tensor.values.shape}, expected F64 {want.shape}")
    else:
        largest = float(apart(tensor.values, want).max())
        print(f"{name:<20} {largest:.3g}")
        tally.compare(kind, name, largest, len(want))


def main():
    checkpoint = safetensors_io.Checkpoint(sys.argv[1])
    tensors = dumped(Path(sys.argv[2]))
    tally = Tally()
    tally.declare("streams", "of a token's largest", LIMIT)
    tally.declare("head", "of a token's largest", LIMIT)
    row = tensors.pop("chain.x0", None)
    if row is None:
        sys.exit(f"FAILED dump: {sys.argv[2]} has no chain.x0")
    loaded = chain.load(checkpoint)
    stand_in = sublayer.named(sys.argv[3] if len(sys.argv) > 3 else "rms-norm", checkpoint)
    for name, want in chain.run(loaded, row.values, stand_in):
        check_stage(name, want, tensors, tally)
    tally.require("streams", len(loaded.places) * len(row.values))
    tally.require("head", len(row.values))
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
