"""Replays recorded tensor-core vectors through this oracle's own block rule.

    python vectors.py VECTORS_DIR WORKED_EXAMPLES_CSV

The oracle checks ulpdrift's bits; this checks the oracle's against bits that neither of them made:
H200 recordings and the published simulator's, and single dot products on every architecture. Exit 1 on
any difference or if a file is missing.
"""

import csv
import sys
from pathlib import Path

import numpy as np

import block_scaled
import formats
import safetensors_io
import sublayer
import tensor_core
from tally import Tally

# File name to operand format and architecture; e4m3 of mma.sync on sm_90 is several instructions.
FILES = {
    f"{source}_{arch}_{family}{kind}": (kind, arch)
    for source, arch, family, kinds in (
        ("h200", "sm_90", "", ("bf16", "f16", "tf32")),
        ("h200", "sm_90", "wgmma_", ("bf16", "f16", "tf32", "e4m3")),
        ("model", "sm_80", "", ("bf16", "tf32")),
        ("model", "sm_120", "", ("bf16", "tf32")),
    )
    for kind in kinds
}


def operand(bits, kind):
    """Operand bits to their values; a TF32 register's low 13 bits are not read."""
    if kind == "tf32":
        return formats.tf32_truncated(bits.view(np.float32))
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    if kind == "e4m3":
        return sublayer.e4m3(bits).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def check_mma(directory, name, kind, arch, tally):
    """One file of a, b, c, d tiles."""
    held = safetensors_io.read(directory / f"{name}.safetensors")
    a = operand(held["a"].bits, kind)
    b = operand(np.ascontiguousarray(held["b"].bits.swapaxes(1, 2)), kind)
    # Signalling NaNs among the raw random bits.
    with np.errstate(invalid="ignore"):
        c = held["c"].bits.view(np.float32).astype(np.float64)
        got = tensor_core.chains(tensor_core.unit(kind, arch), a, b, c)
        tally.bits("mma", name, got.astype(np.float32), held["d"].bits.view(np.float32))


def check_worked(path, tally):
    """The worked examples: one dot product each, with its result on one architecture."""
    words = {"bf16": np.uint16, "f16": np.uint16, "tf32": np.uint32, "e4m3": np.uint8}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            kind = row["operand"]
            a, b = (np.array([int(word, 16) for word in row[key].split()], words[kind]) for key in "ab")
            c, d = (np.array([[[int(row[key], 16)]]], np.uint32).view(np.float32) for key in "cd")
            with np.errstate(invalid="ignore"):
                operands = (operand(codes, kind)[None, None] for codes in (a, b))
                got = tensor_core.chains(tensor_core.unit(kind, row["arch"]), *operands, c.astype(np.float64))
                tally.bits("worked examples", f"{kind} {row['number']} on {row['arch']}", got.astype(np.float32), d)


def check_block_scaled(directory, kind, tally):
    """One file of tiles with scales, by the published simulator."""
    name = f"model_sm_120_{kind.name}"
    held = {key: tensor.bits for key, tensor in safetensors_io.read(directory / f"{name}.safetensors").items()}
    operands = (held[key] for key in ("a", "b", "scale_a", "scale_b", "c"))
    got = np.stack([block_scaled.block(kind, *tile) for tile in zip(*operands)])
    tally.bits("block-scaled", name, got.view(np.float32), held["d"].view(np.float32))


def check_conversions(directory, tally):
    """cvt.rna.tf32 and cvt.rn.bf16; the oracle keeps a NaN's payload, so NaN compares as NaN."""
    held = safetensors_io.read(directory / "h200_sm_90_cvt.safetensors")
    x = held["x"].bits.view(np.float32)
    tally.bits("conversions", "bf16", formats.bf16(x), operand(held["rn_bf16"].bits, "bf16"))
    away, want = formats.tf32_away(x), held["rna_tf32"].bits.view(np.float32)
    # A NaN whose payload lies in the dropped bits becomes infinite there; no weight is a NaN here.
    number = ~np.isnan(x)
    tally.bits("conversions", "tf32 away", away[number], want[number])


def main():
    directory, worked = (Path(word) for word in sys.argv[1:3])
    tally = Tally()
    tally.declare("mma", "differing", 0)
    tally.declare("worked examples", "differing", 0)
    tally.declare("block-scaled", "differing", 0)
    tally.declare("conversions", "differing", 0)
    for name, (kind, arch) in FILES.items():
        check_mma(directory, name, kind, arch, tally)
    for kind in block_scaled.KINDS.values():
        check_block_scaled(directory, kind, tally)
    check_conversions(directory, tally)
    check_worked(worked, tally)
    tally.require("mma", 790_000)
    tally.require("worked examples", 500)
    tally.require("block-scaled", 30_000)
    tally.require("conversions", 20_000)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
