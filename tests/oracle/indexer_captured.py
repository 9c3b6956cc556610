"""Holds this oracle's indexer to the scores and the selection that another project's model gave.

    python indexer_captured.py CHECKPOINT_DIR INPUTS REFERENCE [DUMP_DIR]

INPUTS has `layers.N.indexer.hidden_states` (after attn_norm) and `layers.N.indexer.q_residual` (after q_norm),
REFERENCE `layers.N.indexer.scores` and `.topk`, computed by transformers in fp32 without quantisation. Scores of
visible keys must agree to 5e-5 of their rms and to a rel_l2 of 2e-6; a key that only one side selects must lie
within 5e-5 of the rms of the cut. With DUMP_DIR, of a run with as many queries as tokens, the logits and selections
of its recipe `transformers` are held to the same. Exit 1 on any failure.
"""

import sys
from pathlib import Path

import numpy as np

import indexer
import safetensors_io
from chain_check import dumped
from tally import Tally

OF_RMS, REL_L2 = 5e-5, 2e-6


def check_selection(name, scores, theirs, limit, tally):
    """Their top-k of every query against that of our scores [Q, N], -inf where not visible."""
    for query, (row, chosen) in enumerate(zip(scores, theirs)):
        seen = int(np.isfinite(row).sum())
        chosen = {int(i) for i in chosen if 0 <= i < seen}
        k = min(theirs.shape[1], seen)
        own = set(np.argsort(-row, kind="stable")[:k].tolist())
        if len(chosen) != k:
            tally.fail(f"top-k: {name} query {query}: {len(chosen)} keys, expected {k}")
            continue
        cut = min((row[i] for i in own), default=0)
        apart = max((abs(row[i] - cut) for i in own ^ chosen), default=0.0)
        tally.compare("top-k", f"{name} query {query}", float(apart / limit), k)


def check_layer(checkpoint, layer, inputs, reference, tally, dump=None):
    """One layer, a query at every token."""
    name = f"layers.{layer}.indexer"
    u = inputs[f"{name}.hidden_states"].values
    positions = np.arange(len(u))
    given = indexer.Inputs(y=u, positions=positions, u=u, qr=inputs[f"{name}.q_residual"].values)
    scores = indexer.reference(indexer.load(checkpoint, layer), given)
    theirs = reference[f"{name}.scores"].values
    seen = indexer.visible(positions, scores.shape[1])
    rms = np.sqrt((scores[seen] ** 2).mean())

    def hold(name_of_ours, scores):
        apart = (scores - theirs)[seen]
        tally.compare("scores", name_of_ours, float(np.abs(apart).max() / rms), int(seen.sum()))
        tally.compare("scores rel_l2", name_of_ours, float(np.linalg.norm(apart) / np.linalg.norm(scores[seen])))
        ours = np.where(seen, scores, -np.inf)
        check_selection(name_of_ours, ours, reference[f"{name}.topk"].values, OF_RMS * rms, tally)

    hold(name, scores)
    if dump is not None:
        key = f"L{layer}.indexer.logits.transformers"
        hold(key, np.where(seen, dump[key].values, 0).astype(np.float64))


def main():
    checkpoint = safetensors_io.Checkpoint(sys.argv[1])
    inputs, reference = (safetensors_io.read(Path(word)) for word in sys.argv[2:4])
    dump = dumped(Path(sys.argv[4])) if len(sys.argv) > 4 else None
    tally = Tally()
    tally.declare("scores", "of their rms", OF_RMS)
    tally.declare("scores rel_l2", "", REL_L2)
    tally.declare("top-k", "of what may be a tie", 1)
    layers = sorted(int(key.split(".")[1]) for key in reference if key.endswith(".indexer.scores"))
    for layer in layers:
        check_layer(checkpoint, layer, inputs, reference, tally, dump)
    for kind in tally.kinds:
        tally.require(kind, 1)
    tally.print()
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
