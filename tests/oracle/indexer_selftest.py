"""The indexer oracle against numbers worked out by hand, and against faults that it has to notice.

    python indexer_selftest.py CHECKPOINT_DIR

The checkpoint is a small one with FP8 linears and an indexer. indexer_check.py has to take a dump of this oracle's own
and to refuse it spoiled, or made with one thing wrong in the arithmetic, with failures of just the kinds that can tell.
Exit 1 on any failure.
"""

import copy
import csv
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np

import formats
import indexer
import indexer_check
import indexer_recipes
import rounded
import safetensors_io
import sublayer
import tensor_core

ARCH = "sm_120"
TOKENS, KS = 514, (16, 32)
# The first query sees no key, the second one; the context's last two tokens are of no key.
POSITIONS = np.array([0, 3, 100, 510, 513])


def said(good, what, otherwise=""):
    """One line, and whether it is a good one."""
    print(f"{'agrees ' if good else 'FAILED '} {what}" + ("" if good else f": {otherwise}"))
    return bool(good)


def small_formats():
    """e4m3 and e2m1: every value stays, the middle of two goes to the even one, and beyond the largest it stays that."""
    results = []
    for dtype, values in (("E4M3", sublayer.e4m3(np.arange(127))), ("E2M1", sublayer.E2M1)):
        middles = (values[1:] + values[:-1]) / 2
        even = np.where(np.arange(len(middles)) % 2 == 0, values[:-1], values[1:])
        for sign in (1, -1):
            good = (formats.saturated(sign * values, dtype) == sign * values).all()
            good &= (formats.saturated(sign * middles, dtype) == sign * even).all()
            good &= formats.saturated(sign * 1.5 * values[-1:], dtype)[0] == sign * values[-1]
            results.append(good)
    return said(all(results), "e4m3 and e2m1, all values and all ties")


def powers_of_two():
    """2^ceil(log2 x) by exponent bits."""
    x = np.array([1, 1 + 2.0**-23, 2 - 2.0**-23, 2, 3 * 2.0**-20, 2.0**-126], np.float32)
    want = np.array([1, 2, 2, 2, 2.0**-18, 2.0**-126], np.float32)
    return said((indexer_recipes.power_of_two_above(x) == want).all(), "scales of powers of two")


def transcendentals():
    """exp and 1/sqrt lie within half an ulp of the exact value, which 60 digits know."""
    random = np.random.default_rng(1)
    x = np.exp2(random.uniform(-30, 30, 2000)).astype(np.float32)
    minus = -np.abs(random.standard_normal(2000) * 20).astype(np.float32)
    root, power = rounded.rsqrt(x), rounded.exp(minus)
    results = []
    for argument, result, exact in (
        *((a, r, 1 / Decimal(float(a)).sqrt()) for a, r in zip(x, root)),
        *((a, r, Decimal(float(a)).exp()) for a, r in zip(minus, power)),
    ):
        half = Decimal(float(formats.ulp(np.float64(result), "F32"))) / 2
        results.append(abs(Decimal(float(result)) - exact) <= half)
    ends = rounded.exp(np.array([0, -np.inf, -200], np.float32))
    return said(all(results) and (ends == [1, 0, 0]).all(), "exp and 1/sqrt, correctly rounded")


def fp8_unit():
    """sm_120 keeps 25 bits below 448 * 448: 2^-9 beside what cancels is left, 2^-10 is not."""
    large, small = 448.0, 2.0**-9
    a = np.zeros((1, 2, 32), np.float32)
    b = np.zeros((1, 1, 32), np.float32)
    a[0, :, :2], b[0, 0, :3] = (large, -large), (large, large, small)
    a[0, :, 2] = 1, 0.5
    got = indexer_recipes.on_unit("e4m3", ARCH, a, b)[0, :, 0]
    return said((got == [small, 0]).all(), "the alignment of sm_120's fp8", got)


def transform():
    """Hadamard: entry (i, j) of the matrix is -1 to the number of ones that i and j share, over the root of 128."""
    ones = np.array([[bin(i & j).count("1") for j in range(128)] for i in range(128)])
    got = indexer_recipes.hadamard(np.eye(128, dtype=np.float32))
    return said((got == np.float32(128**-0.5) * (-1.0) ** ones).all(), "the Hadamard transform")


def yarn():
    """YaRN of V4-Flash: pairs below 15 as they are, from 25 on 16 times slower, pair 20 halfway."""
    config = {"compress_rope_theta": 160000.0, "rope_scaling": YARN}
    got = indexer.frequencies(config, 64)
    plain = indexer.frequencies({"compress_rope_theta": 160000.0}, 64)
    share = got / plain
    good = (share[:16] == 1).all() and np.allclose(share[25:], 1 / 16, 1e-15) and abs(share[20] - 17 / 32) < 1e-15
    return said(good and plain[0] == 1 and abs(plain[16] - 1 / 400) < 1e-17, "YaRN's frequencies", share)


YARN = {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536}


def layer_with_indexer(checkpoint):
    """The first one."""
    names = (name.removeprefix("model.") for name in checkpoint.shard_of if "indexer.wq_b.weight" in name)
    return min(int(name.split(".")[1]) for name in names)


def bits_of_bf16(x):
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def make(checkpoint, layer, y, qr=None):
    """A dump and the report's rows as the tool would write them, by this oracle; with qr both are from a file."""
    inputs = indexer.Inputs(y, POSITIONS, None if qr is None else y, qr)
    loaded = indexer.load(checkpoint, layer)
    reference = indexer.reference(loaded, inputs)
    seen = indexer.visible(POSITIONS, reference.shape[1])
    reference = np.where(seen, reference, -np.inf)
    name, rows = f"L{layer}.indexer", []
    tensors = {
        f"{name}.hidden_states": bits_of_bf16(y),
        f"{name}.positions": POSITIONS,
        f"{name}.logits.reference": reference,
    }
    for variant, recipe in indexer_recipes.RECIPES.items():
        made = recipe(loaded, inputs, ARCH)
        got = np.where(seen, made.got, np.float32(-np.inf))
        tensors[f"{name}.logits.{variant}"] = got
        tensors[f"{name}.logits.{variant}.exact"] = np.where(seen, made.exact, -np.inf)
        top = np.full((len(POSITIONS), KS[-1]), -1)
        for row, chosen in zip(got, top):
            keys = indexer_check.top_k(row, KS[-1])
            chosen[: len(keys)] = keys
        tensors[f"{name}.top_k.{variant}"] = top
        for k in KS:
            measured = indexer_check.selected(got, reference, k)
            place = {"suite": indexer_check.SUITE, "stage": indexer_check.STAGE, "layer": layer, "variant": variant}
            rows.append(place | {"k": k, "query_set": "all"} | measured)
    return tensors, rows


def failures(checkpoint, tensors, rows, recorded=None):
    """The kinds that indexer_check.py's failures are of, and the failures; `recorded` is the file of the inputs."""
    with tempfile.TemporaryDirectory() as work:
        dump, report = Path(work) / "dump", Path(work) / "report.csv"
        dump.mkdir()
        safetensors_io.write(dump / "indexer.safetensors", tensors)
        with open(report, "w", newline="") as file:
            writer = csv.DictWriter(file, sorted({name for row in rows for name in row}))
            writer.writeheader()
            writer.writerows(rows)
        file = None
        if recorded:
            safetensors_io.write(Path(work) / "inputs.safetensors", recorded)
            file = safetensors_io.read(Path(work) / "inputs.safetensors")
        tally = indexer_check.check(checkpoint, dump, report, 1, len(indexer_recipes.RECIPES), ARCH, file)
    return {sentence.split(":")[0] for sentence in tally.failures}, tally.failures


def noticed(what, checkpoint, tensors, rows, kinds):
    """Whether the check refuses the dump with failures of just these kinds."""
    got, sentences = failures(checkpoint, tensors, rows)
    good = got == kinds
    print(f"{'noticed' if good else 'MISSED '} {what}" + ("" if good else f": {sorted(got)}, expected {sorted(kinds)}"))
    if not good:
        print("\n".join(sentences[:4]))
    return good


def without_overlap(windows):
    """The four tokens before a window's own are none of it."""

    def wrong(x, before):
        out = windows(x, before)
        out[:, : indexer.RATIO] = before
        return out

    return wrong


def ties_toward_zero(saturated):
    """e2m1 by comparing with the middles, the lower one if equal."""

    def wrong(x, dtype):
        if dtype != "E2M1":
            return saturated(x, dtype)
        middles = (sublayer.E2M1[1:] + sublayer.E2M1[:-1]) / 2
        return (np.sign(x) * sublayer.E2M1[np.searchsorted(middles, np.abs(x), "left")]).astype(np.float32)

    return wrong


def half_split(rope):
    """Pairs (j, j + 32) instead of (2j, 2j + 1)."""

    def wrong(x, positions, freqs):
        last = 2 * len(freqs)
        order = np.arange(x.shape[-1])
        order[-last:] = order[-last:].reshape(2, -1).T.reshape(-1)
        return rope(x[..., order], positions, freqs)[..., np.argsort(order)]

    return wrong


def instead(function):
    """A fault that puts another function in the right one's place."""
    return lambda _right: function


ALL, ROUNDED = {"reference", "bits", "recipe-exact"}, {"bits", "recipe-exact"}

# What is wrong, where, how, and the kinds of failure that have to tell.
WRONG = (
    ("no relu", indexer, "relu", instead(lambda s: s), ALL),
    ("the window's overlap dropped", indexer, "windows", without_overlap, ALL),
    ("rope of keys at i instead of 4i", indexer, "key_positions", instead(np.arange), ALL),
    ("rope in halves instead of pairs", indexer, "rope", half_split, ALL),
    ("ape forgotten", indexer, "with_ape", instead(lambda gate, _ape: gate), ALL),
    ("the heads' constant forgotten", indexer.Layer, "head_constant", instead(lambda _self: 1.0), ALL),
    ("Hadamard on q alone", indexer_recipes, "hadamard_of_k", instead(lambda x: x), ROUNDED),
    ("Hadamard on k alone", indexer_recipes, "hadamard_of_q", instead(lambda x: x), ROUNDED),
    ("scales by floor instead of ceil", indexer_recipes, "power_of_two_above",
     lambda right: lambda x: right(x) / np.float32(2), ROUNDED),
    ("ties of e2m1 toward zero", formats, "saturated", ties_toward_zero, ROUNDED),
    ("heads in ascending order", indexer_recipes, "HEAD_ORDER", instead("ascending"), {"bits"}),
    ("the fp8 unit of sm_90", tensor_core, "unit", lambda right: lambda kind, _arch: right(kind, "sm_90"), ROUNDED),
)


def wrong_arithmetic(checkpoint, layer, y):
    """Known bugs of engines, and other recipes passed off as these."""
    results = []
    for what, module, name, wrap, kinds in WRONG:
        right = getattr(module, name)
        setattr(module, name, wrap(right))
        tensors, rows = make(checkpoint, layer, y)
        setattr(module, name, right)
        results.append(noticed(what, checkpoint, tensors, rows, kinds))
    return results


def flipped(name):
    """The lowest bit of one visible logit."""

    def spoil(tensors, _rows):
        tensors[name].view(np.uint32)[3, 5] ^= 1

    return spoil


def moved(name, by):
    """One logit moved by a share of its query's largest."""

    def spoil(tensors, _rows):
        row = tensors[name][4]
        row[7] += by * np.abs(row[np.isfinite(row)]).max()

    return spoil


def shifted(names):
    """Every visible key's logits in the next one's place."""

    def spoil(tensors, _rows):
        for row in (row for name in names for row in tensors[name]):
            seen = np.isfinite(row)
            row[seen] = np.roll(row[seen], 1)

    return spoil


def put(name, at, value):
    def spoil(tensors, _rows):
        tensors[name][at] = value

    return spoil


def first_row(**cells):
    return lambda _tensors, rows: rows[0].update(cells)


def spoils(name):
    """What is done to a good dump, and the kinds of failure that have to tell."""
    fp4, fp8 = (f"{name}.logits.{variant}" for variant in indexer_recipes.RECIPES)
    reference, top = f"{name}.logits.reference", f"{name}.top_k.fp8-f32scale"
    keys = indexer_check.KEPT
    return (
        ("a bit of fp8-f32scale", flipped(fp8), {"bits"}),
        ("a logit of reference-bf16-fp4 by one step of bf16", moved(fp4, 2.0**-8), {"bits"}),
        ("keys shifted", shifted([fp4, fp8]), {"bits", "top-k", "recall"}),
        ("the reference 1e-9 off", moved(reference, 1e-9), {"reference"}),
        ("a recipe-exact value 1e-11 off", moved(f"{fp8}.exact", 1e-11), {"recipe-exact"}),
        ("a logit that is NaN", put(fp8, (3, 5), np.nan), {"bits"}),
        ("a reference that is NaN", put(reference, (3, 5), np.nan), {"reference"}),
        ("a key not yet visible has a logit", put(fp8, (2, 60), -50.0), {"bits", "top-k", "recall"}),
        ("a key not yet visible has a reference", put(reference, (2, 60), -50.0), {"reference", "recall"}),
        ("a key selected twice", lambda t, _: put(top, (3, 0), t[top][3, 1])(t, _), {"top-k"}),
        ("a key selected that is not visible", put(top, (0, 0), 0), {"top-k"}),
        ("a recall of one key less", first_row(**{indexer_check.RECALL: 0.5}), {"recall"}),
        ("what a larger k keeps", first_row(**{keys: 0.5}), {"recall"}),
        ("a recall that is not there", first_row(**{indexer_check.TIE_ADJUSTED: ""}), {"recall"}),
        ("a row of another variant", first_row(variant="bf16-keys"), {"recall"}),
        ("no row of a variant", lambda _, rows: rows.__delitem__(slice(len(KS))), {"recall"}),
        ("no reference", lambda tensors, _: tensors.pop(reference), ALL | {"dump", "top-k", "recall"}),
        ("no variant", lambda tensors, _: tensors.pop(fp4), {"dump", "recall"}),
    )


def recorded_inputs(checkpoint, layer, u):
    """Hidden states and q_residual out of a file: neither is normed, and both are what the file has."""
    qr = formats.bf16(np.flip(u)[:, : checkpoint.config["q_lora_rank"]])
    tensors, rows = make(checkpoint, layer, u, qr)
    name = f"layers.{layer}.indexer"
    file = {f"{name}.hidden_states": bits_of_bf16(u), f"{name}.q_residual": bits_of_bf16(qr)}
    found, sentences = failures(checkpoint, tensors, rows, file)
    good = said(not found, "a dump of its own, inputs from a file", sentences)
    return good & noticed("inputs from a file, normed once more", checkpoint, tensors, rows, ALL)


def with_rope(checkpoint, scaling):
    """The same weights under another rope."""
    other = copy.copy(checkpoint)
    other.config = {key: value for key, value in checkpoint.config.items() if not key.startswith("rope_")}
    other.config["rope_scaling"] = scaling
    return other


def main():
    results = [small_formats(), powers_of_two(), transcendentals(), fp8_unit(), transform(), yarn()]
    checkpoint = safetensors_io.Checkpoint(sys.argv[1])
    layer = layer_with_indexer(checkpoint)
    shape = TOKENS, checkpoint.config["hidden_size"]
    y = formats.bf16(np.random.default_rng(6).standard_normal(shape, np.float32))
    plain, yarned = with_rope(checkpoint, {}), with_rope(checkpoint, YARN)
    for what, opened in (("as the checkpoint has it", checkpoint), ("plain", plain), ("under YaRN", yarned)):
        tensors, rows = make(opened, layer, y)
        found, sentences = failures(opened, tensors, rows)
        results.append(said(not found, f"a dump of its own, rope {what}", sentences))
    results.append(noticed("YaRN where rope is plain", plain, tensors, rows, ALL))
    results.append(recorded_inputs(checkpoint, layer, y))
    results += wrong_arithmetic(checkpoint, layer, y)
    good = make(checkpoint, layer, y)
    for what, spoil, kinds in spoils(f"L{layer}.indexer"):
        tensors, rows = copy.deepcopy(good)
        spoil(tensors, rows)
        results.append(noticed(what, checkpoint, tensors, rows, kinds))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
