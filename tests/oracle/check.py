"""Checks what ulpdrift computed against an independent recomputation in NumPy.

    python check.py CHECKPOINT_DIR DUMP_DIR REPORT_JSON [REPORT_CSV] [--sites N] [--variants N]

CHECKPOINT_DIR is what `ulpdrift synth` writes, DUMP_DIR what `run --dump` writes, the report what
`run --out` writes. `--sites` and `--variants` say how many there must be: an oracle that compares
less than it was asked to is a failure, not a pass. Exit 1 on any failure.
"""

import argparse
import re
import sys
from pathlib import Path

import rows
import safetensors_io
from model import load_site
from site_check import REFERENCED, Dumped, check_site
from tally import Tally

KINDS = (
    ("schema", "violations", 0),
    ("csv", "cells", 0),
    ("pandas", "cells", 0),
    ("reference", "of max|r|", 1e-12),
    ("recipe-exact", "of max|e|", 1e-12),
    ("dot bits", "differing", 0),
    ("mixes bits", "differing", 0),
    # Columns of comb meet 1 within 1e-6, rows and logits carry fp32's roundings through Sinkhorn.
    ("epilogue", "absolute", 4e-6),
    ("y bits", "differing", 0),
    ("y_bf16 bits", "differing", 0),
    ("measures", "relative", 1e-9),
    ("bound dot", "relative", 1e-6),
    ("bound mixes", "relative", 0.2),
)
# Measures that every row has.
LEAST_MEASURES = 40


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("checkpoint", "dump", "report"):
        parser.add_argument(name, type=Path)
    parser.add_argument("csv", type=Path, nargs="?")
    parser.add_argument("--sites", type=int, default=1, help="sites that must be there")
    parser.add_argument("--variants", type=int, default=1, help="variants that must be there")
    return parser.parse_args()


def against(report):
    """The variant named by --against."""
    words = report["run"]["command"]
    for at, word in enumerate(words):
        if word == "--against":
            return words[at + 1]
        if word.startswith("--against="):
            return word.removeprefix("--against=")
    return "fp32"


def dumped_sites(directory, report, records):
    """The dumps, in order of layer and site. Bounds are recomputed on the first."""
    pattern = re.compile(r"L(\d+)\.(attn|ffn)\.safetensors")
    found = sorted((int(m[1]), m[2], p) for p in directory.iterdir() if (m := pattern.fullmatch(p.name)))
    for number, (layer, kind, path) in enumerate(found):
        name = f"L{layer}.{kind}"
        yield Dumped(name, layer, kind, safetensors_io.read(path), records, against(report), number == 0)


def main():
    args = arguments()
    tally = Tally()
    for kind in KINDS:
        if kind[0] not in ("csv", "pandas") or args.csv:
            tally.declare(*kind)
    report = rows.load(args.report, tally)
    if args.csv:
        rows.compare_csv(args.csv, report, tally)
    records = rows.by_key(report, tally)
    checkpoint = safetensors_io.Checkpoint(args.checkpoint)
    seen = set()
    sites = 0
    for dumped in dumped_sites(args.dump, report, records):
        sites += 1
        check_site(dumped, load_site(checkpoint, dumped.layer, dumped.kind), tally)
        seen |= {(dumped.layer, dumped.kind, s, v) for s in rows.STAGES for v in dumped.variants()}
    if sites < args.sites:
        tally.fail(f"dump: {sites} sites, expected {args.sites}")
    for key in sorted(set(records) ^ seen, key=str):
        tally.fail(f"rows: {key} is in only one of dump and report")
    require(tally, args, report["run"]["tokens"], len(seen))
    tally.print()
    return 1 if tally.failures else 0


def require(tally, args, tokens, rows_seen):
    """Nothing may go unchecked because it was not there."""
    per_variant = args.sites * args.variants
    expected = {
        "schema": 1,
        "reference": len(REFERENCED) * args.sites,
        "recipe-exact": len(REFERENCED) * per_variant,
        "epilogue": 3 * per_variant,
        "measures": LEAST_MEASURES * len(rows.STAGES) * per_variant,
        "bound dot": args.variants,
        "bound mixes": args.variants,
    }
    if rows_seen < per_variant * len(rows.STAGES):
        tally.fail(f"rows: {rows_seen}, expected {per_variant * len(rows.STAGES)}")
    for kind in tally.kinds:
        # What is left counts elements or cells: at least one a token and variant, or a row's key.
        tally.require(kind, expected.get(kind, per_variant * (tokens if kind.endswith("bits") else 1)))


if __name__ == "__main__":
    sys.exit(main())
