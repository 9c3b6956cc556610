"""The chain oracle against numbers worked out by hand, and against faults that it has to notice.

    python chain_selftest.py CHECKPOINT_DIR V41_CHECKPOINT_DIR FP8_CHECKPOINT_DIR FP4_CHECKPOINT_DIR

The checkpoints are small whole ones, the second in V4.1's order, the others with random shared experts in FP8 and
in packed FP4 (make_experts.py). Exit 1 on any failure.

The example: one layer, two streams of width 2 that begin as (1, 7), no epsilon, one Sinkhorn iteration.
The rms over (1, 7, 1, 7) is 5. With a, b, c, d the four values of comb, row-major:
  attn, logits from fn:    pre = (1/2, 3/4), post = (1, 1/2), comb of logits (ln 3, 0, 0, 0):
    rows (3/4, 1/4), (1/2, 1/2); columns 5/4, 3/4; comb = (3/5, 1/3, 2/5, 2/3). Equal streams stay
    equal, for columns sum to 1. y is some multiple of (1, 7), of rms 5 times it: u = (1/5, 7/5) w.
    With w = (5, 10): u = (1, 14), X = (2, 21), (3/2, 14).
  ffn, logits from base:   pre = (1/4, 1/2), post = (1/2, 1), comb of logits (0, ln 3, 0, 0):
    rows (1/4, 3/4), (1/2, 1/2); columns 3/4, 5/4; comb = (1/3, 3/5, 2/3, 2/5).
    carried: 1/3 (2, 21) + 2/3 (3/2, 14) = (5/3, 49/3);  3/5 (2, 21) + 2/5 (3/2, 14) = (9/5, 91/5)
    V4:   y = 1/4 (2, 21) + 1/2 (3/2, 14) = (5/4, 49/4) = 5/4 (1, 49/5)
    V4.1: y = 1/2 (2, 21) + 3/4 (3/2, 14) = (17/8, 21)
    u = y / rms(y); X = 1/2 u + (5/3, 49/3), u + (9/5, 91/5)
  V4's head, (3/4, 1/2) from its base; V4.1's is the ffn site's pre, (1/4, 1/2).
"""

import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import chain
import model
import safetensors_io
import sublayer

CHECK = Path(__file__).with_name("chain_check.py")
LN3 = math.log(3)


def example(delayed):
    """The worked example's weights."""

    def site(fn, base, scale):
        arrays = (np.array(values, np.float64) for values in (fn, base, scale))
        return model.Site(*arrays, streams=2, iterations=1, hc_eps=0.0, norm_eps=0.0)

    # x[0] r = 1/5: row i of fn gives a mix of its first value over 5.
    from_fn = np.zeros((8, 4))
    from_fn[:, 0] = 5 * LN3 * np.array([0, 1, 0, -2, 1 / 4, 0, 0, 0])
    attn = site(from_fn, np.zeros(8), (1, 1 / 2, 4))
    ffn = site(np.zeros((8, 4)), LN3 * np.array([-1, 0, -1, 0, 0, 1, 0, 0]), (1, 1, 1))
    head = chain.Head(np.zeros((2, 4)), LN3 * np.array([1, 0]), 1.0)
    places = [(0, "attn", attn, np.array([5.0, 10.0])), (0, "ffn", ffn, np.ones(2))]
    return chain.Chain(places, None if delayed else head)


def by_hand(delayed):
    """What the example gives."""
    y = (17 / 8, 21) if delayed else (5 / 4, 49 / 4)
    rms = math.sqrt((y[0] ** 2 + y[1] ** 2) / 2)
    u = np.array([y[0] / rms, y[1] / rms])
    first, second = u / 2 + [5 / 3, 49 / 3], u + [9 / 5, 91 / 5]
    gates = (1 / 4, 1 / 2) if delayed else (3 / 4, 1 / 2)
    return {
        "L0.attn.streams": np.array([2, 21, 3 / 2, 14]),
        "L0.ffn.streams": np.concatenate([first, second]),
        "head": gates[0] * first + gates[1] * second,
    }


def worked(delayed):
    """Whether the oracle meets the numbers worked out by hand."""
    got = dict(chain.run(example(delayed), np.array([[1.0, 7.0]])))
    want = by_hand(delayed)
    good = got.keys() == want.keys()
    good = good and all(np.abs(got[name][0] - want[name]).max() <= 1e-13 for name in want)
    print(f"{'agrees ' if good else 'FAILED'}  the worked example, {'V4.1' if delayed else 'V4'}")
    return good


def tensors_of(checkpoint, row, stand_in="rms-norm"):
    """A dump as the tool would write it, by this oracle."""
    opened = safetensors_io.Checkpoint(checkpoint)
    steps = chain.run(chain.load(opened), row, sublayer.named(stand_in, opened))
    stages = {f"{name}.reference": values for name, values in steps}
    return {"chain.x0": row, **stages}


def accepted(checkpoint, tensors, stand_in="rms-norm"):
    """Whether chain_check.py takes the dump; and what it says."""
    with tempfile.TemporaryDirectory() as work:
        safetensors_io.write(Path(work) / "chain.safetensors", tensors)
        done = subprocess.run([sys.executable, CHECK, checkpoint, work, stand_in], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def nudge(name):
    """One value moved by 1e-9 of its token's largest."""

    def change(tensors):
        values = tensors[name]
        values[1, 3] += 1e-9 * np.abs(values[1]).max()

    return change


def not_finite(tensors):
    tensors["L1.attn.streams.reference"][0, 0] = np.nan


def swap_streams(tensors):
    values = tensors["L0.ffn.streams.reference"]
    width = values.shape[1] // 4
    tensors["L0.ffn.streams.reference"] = np.roll(values, width, axis=1)


def narrow(tensors):
    tensors["head.reference"] = tensors["head.reference"].astype(np.float32)


# What is done to a good dump, and what the check has to say.
SPOILS = (
    ("a depth is 1e-9 off", nudge("L3.ffn.streams.reference"), "FAILED streams: L3.ffn.streams"),
    ("the head is 1e-9 off", nudge("head.reference"), "FAILED head: head"),
    ("a value is not finite", not_finite, "FAILED streams: L1.attn.streams"),
    ("streams out of order", swap_streams, "FAILED streams: L0.ffn.streams"),
    ("a depth is missing", lambda t: t.pop("L2.attn.streams.reference"), "FAILED streams: L2.attn"),
    ("the head is missing", lambda t: t.pop("head.reference"), "FAILED head: head.reference"),
    ("the head in F32", narrow, "FAILED head: head.reference is F32"),
    ("nothing to start from", lambda t: t.pop("chain.x0"), "FAILED dump"),
)


def noticed(what, checkpoint, tensors, phrase, stand_in="rms-norm"):
    """Whether the check refuses the dump with the right sentence."""
    good, said = accepted(checkpoint, tensors, stand_in)
    ok = not good and phrase in said
    print(f"{'noticed' if ok else 'MISSED '}  {what}")
    if not ok:
        print(said[-400:])
    return ok


def transposed(function):
    """`recombine` with the wrong index of comb contracted."""

    def wrong(x, f, post, comb):
        streams = post.shape[1]
        turned = comb.reshape(-1, streams, streams).transpose(0, 2, 1).reshape(comb.shape)
        return function(x, f, post, turned)

    return wrong


def halved(function):
    """`recombine` of a post without its factor 2."""
    return lambda x, f, post, comb: function(x, f, post / 2, comb)


def wrong_arithmetic(checkpoint, row):
    """Known bugs of engines: each must be noticed at the first depth that it can reach."""
    right = chain.recombine
    # Streams that are equal go through comb unchanged, so the first site cannot tell.
    bugs = (("comb transposed", transposed, "L0.ffn.streams"), ("post without its 2", halved, "L0.attn.streams"))
    results = []
    for what, wrap, first in bugs:
        chain.recombine = wrap(right)
        tensors = tensors_of(checkpoint, row)
        chain.recombine = right
        results.append(noticed(what, checkpoint, tensors, f"FAILED streams: {first}"))
    return results


def swapped(function):
    """Packed FP4 with the upper four bits first."""
    return lambda bytes_: function(bytes_ >> 4 | bytes_ << 4)


def unclamped(function):
    """An expert without its limit."""
    return lambda gate, up, _limit: function(gate, up, 0)


def both_sides(function):
    """A gate that is clamped below as well."""
    return lambda gate, up, limit: function(np.maximum(gate, -limit), up, limit)


def exchanged(function):
    """Gate and up in each other's place."""
    return lambda gate, up, limit: function(up, gate, limit)


def next_block(function):
    """Every block with the scale of the next one in its row."""
    return lambda scales, block, shape: function(np.roll(scales, 1, axis=1), block, shape)


# What is wrong with an expert, in which function, and which of the two checkpoints can tell.
WRONG_EXPERTS = (
    ("nibbles exchanged", "e2m1", swapped, ("fp4",)),
    ("no limit", "swiglu", unclamped, ("fp8", "fp4")),
    ("the gate clamped on both sides", "swiglu", both_sides, ("fp8", "fp4")),
    ("gate and up exchanged", "swiglu", exchanged, ("fp8", "fp4")),
    ("scales of the next block", "spread", next_block, ("fp8", "fp4")),
)


def wrong_experts(checkpoints, row):
    """Faults of an expert, in checkpoints by the name of their format."""
    results = []
    for format_, checkpoint in checkpoints.items():
        good, said = accepted(checkpoint, tensors_of(checkpoint, row, "shared-expert"), "shared-expert")
        print(f"{'agrees ' if good else 'FAILED'}  a dump with {format_} experts" + ("" if good else said[-400:]))
        results.append(good)
        plain = tensors_of(checkpoint, row)
        results.append(noticed("no expert at all", checkpoint, plain, "FAILED streams: L0.ffn", "shared-expert"))
    for what, name, wrap, formats in WRONG_EXPERTS:
        for format_ in formats:
            right = getattr(sublayer, name)
            setattr(sublayer, name, wrap(right))
            tensors = tensors_of(checkpoints[format_], row, "shared-expert")
            setattr(sublayer, name, right)
            said = f"{what}, {format_}"
            results.append(noticed(said, checkpoints[format_], tensors, "FAILED streams: L0.ffn", "shared-expert"))
    return results


def main():
    v4, v41, fp8, fp4 = (Path(word) for word in sys.argv[1:5])
    hidden = safetensors_io.Checkpoint(v4).config["hidden_size"]
    row = np.random.default_rng(5).standard_normal((3, hidden)).astype(np.float32)
    results = [worked(False), worked(True)]
    for checkpoint, other in ((v4, v41), (v41, v4)):
        good, said = accepted(checkpoint, tensors_of(checkpoint, row))
        print(f"{'agrees ' if good else 'FAILED'}  a dump of its own" + ("" if good else said[-400:]))
        results.append(good)
        tensors = tensors_of(other, row)
        results.append(noticed("the other order", checkpoint, tensors, "FAILED streams: L0."))
        results += wrong_arithmetic(checkpoint, row)
    results += wrong_experts({"fp8": fp8, "fp4": fp4}, row)
    for what, spoil, phrase in SPOILS:
        tensors = tensors_of(v4, row)
        spoil(tensors)
        results.append(noticed(what, v4, tensors, phrase))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
