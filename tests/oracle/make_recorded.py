"""Writes what `capture_hooks.py` would record of a model, at random: streams that differ, and sublayer outputs.

    python make_recorded.py FILE TOKENS STREAMS HIDDEN LAYERS

F32, so that no rounding of the outputs hides; the outputs of a site are N(0,1) times 1 + its number.
"""

import sys

import numpy as np

import safetensors_io


def main():
    tokens, streams, hidden, layers = (int(word) for word in sys.argv[2:6])
    random = np.random.default_rng(7)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    tensors = {"layers.0.attn.x": normal(tokens, streams, hidden)}
    for number in range(2 * layers):
        name = f"layers.{number // 2}.{('attn', 'ffn')[number % 2]}.f"
        tensors[name] = np.float32(1 + number) * normal(tokens, hidden)
    safetensors_io.write(sys.argv[1], tensors)


if __name__ == "__main__":
    main()
