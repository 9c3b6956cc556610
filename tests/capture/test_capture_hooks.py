#!/usr/bin/env python3
"""Tests of scripts/capture_hooks.py.

    ULPDRIFT=target/release/ulpdrift .venv/bin/python tests/capture/test_capture_hooks.py

Without torch the modules and tensors are stand-ins (stand_in.py), so that the hooks and the file are tested
everywhere; with torch the same captures run on modules of plain torch, and with transformers on its own. What
is not here is printed as `skipped: ...` and counted. The files are read back by the oracle's own reader.
"""

import collections
import importlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracle"), str(HERE.parents[1] / "scripts")]

import numpy as np  # noqa: E402
import models  # noqa: E402
import safetensors_io  # noqa: E402
import stand_in  # noqa: E402
from capture_hooks import Capture, CaptureError, Recording  # noqa: E402


class Folder(unittest.TestCase):
    """A test with an empty folder, and a file to be in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "captured.safetensors"

    def assert_empty(self):
        self.assertEqual(list(self.folder.iterdir()), [])

    def refused(self, *words):
        return self.assertRaisesRegex(CaptureError, "(?s)" + ".*".join(words))


class FormatTest(Folder):
    """The file, from tensors that need no model."""

    def tensor(self, dtype, *shape):
        width = np.iinfo(stand_in.WIDTH[dtype]).max
        return stand_in.Tensor(np.random.default_rng(1).integers(0, width, shape, endpoint=True), dtype)

    def test_every_dtype_keeps_its_bits(self):
        x = self.tensor("torch.bfloat16", 5, 1, 7)
        f = self.tensor("torch.float32", 5, 3)
        q = self.tensor("torch.float16", 5, 7)
        with Recording(self.path) as recording:
            recording.record("layers.10.attn.x", x)
            recording.record("layers.10.ffn.f", f)
            recording.record("layers.10.indexer.q_residual", q)
        # Aligned, though 70 bytes of bfloat16 come first by name.
        self.assertEqual(safetensors_io.data_start(self.path, "layers.10.ffn.f") % 8, 0)
        found = safetensors_io.read(self.path)
        for name, dtype, tensor in [("attn.x", "BF16", x), ("ffn.f", "F32", f), ("indexer.q_residual", "F16", q)]:
            stored = found.pop(f"layers.10.{name}")
            self.assertEqual(stored.dtype, dtype)
            bits = stored.bits.view(tensor.bits.dtype)
            np.testing.assert_array_equal(bits, tensor.bits)
        self.assertEqual(found, {})
        self.assertEqual([file.name for file in self.folder.iterdir()], [self.path.name])

    def test_golden_bytes(self):
        with Recording(self.path) as recording:
            recording.record("layers.0.attn.f", stand_in.Tensor([[0x3F80, 0xC000]]))
        header = b'{"layers.0.attn.f":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}'
        header += b" " * (-len(header) % 8)
        expected = len(header).to_bytes(8, "little") + header + b"\x80\x3f\x00\xc0"
        self.assertEqual(self.path.read_bytes(), expected)

    def test_passes_are_joined_up_to_the_tokens_asked_for(self):
        f = self.tensor("torch.bfloat16", 9, 3)
        with Recording(self.path, tokens=7) as recording:
            for first, end in [(0, 4), (4, 4), (4, 8), (8, 9)]:
                recording.record("layers.0.ffn.f", f[first:end])
        np.testing.assert_array_equal(safetensors_io.read(self.path)["layers.0.ffn.f"].bits, f.bits[:7])

    def test_a_batch_of_one_is_a_sequence(self):
        f = self.tensor("torch.bfloat16", 1, 5, 3)
        with Recording(self.path) as recording:
            recording.record("layers.0.ffn.f", f)
        np.testing.assert_array_equal(safetensors_io.read(self.path)["layers.0.ffn.f"].bits, f.bits[0])

    def test_what_is_no_row_is_refused(self):
        record = Recording(self.path).__enter__()
        self.addCleanup(record.__exit__, KeyError, None, None)
        tensor = self.tensor
        for name, value, words in [
            ("layers.0.attn.y", tensor("torch.bfloat16", 5, 3), ["layers.0.attn.y", "layers.N.attn.x"]),
            ("layers.0.attn.x", tensor("torch.bfloat16", 5, 12), [r"\[5, 12\]", "tokens, hc, d", "flattened"]),
            ("layers.0.attn.x", tensor("torch.bfloat16", 2, 5, 4, 3), ["batch of 2", "one at a time"]),
            ("layers.0.attn.f", tensor("torch.bfloat16", 5), [r"\[5\]", "tokens, d"]),
            ("layers.0.attn.f", stand_in.Tensor([[1]], "torch.float8_e4m3fn"), ["float8_e4m3fn", "bfloat16"]),
            ("layers.0.attn.f", None, ["NoneType", "tensor"]),
        ]:
            with self.subTest(name=name, words=words), self.refused(*words) as caught:
                record.record(name, value)
            self.assertNotIn("\n", str(caught.exception))

    def test_a_tensor_that_changes_is_refused(self):
        with self.refused("layers.0.attn.f", "BF16", "F32"), Recording(self.path) as recording:
            recording.record("layers.0.attn.f", self.tensor("torch.bfloat16", 5, 3))
            recording.record("layers.0.attn.f", self.tensor("torch.float32", 5, 3))
        self.assert_empty()

    def test_unequal_tokens_leave_no_file(self):
        with self.refused("attn.f has 4 tokens", "ffn.f has 5", "tokens=4"), Recording(self.path) as recording:
            recording.record("layers.0.attn.f", self.tensor("torch.bfloat16", 4, 3))
            recording.record("layers.0.ffn.f", self.tensor("torch.bfloat16", 5, 3))
        self.assert_empty()

    def test_a_body_that_raises_leaves_the_old_file(self):
        self.path.write_text("old")
        with self.assertRaises(ZeroDivisionError), Recording(self.path) as recording:
            recording.record("layers.0.attn.f", self.tensor("torch.bfloat16", 4, 3))
            raise ZeroDivisionError
        self.assertEqual([file.name for file in self.folder.iterdir()], [self.path.name])
        self.assertEqual(self.path.read_text(), "old")

    def test_nothing_recorded_is_an_error(self):
        with self.refused("no tensor was recorded", "eagerly"), Recording(self.path):
            pass
        self.assert_empty()
        with self.refused("tokens is 0", "at least 1"):
            Recording(self.path, tokens=0)
        with self.refused("absent", "choose a folder"), Recording(self.folder / "absent" / "x.safetensors"):
            pass

    def test_a_hook_that_outlives_the_recording_is_refused(self):
        with Recording(self.path) as recording:
            recording.record("layers.0.attn.f", self.tensor("torch.bfloat16", 4, 3))
        with self.refused("layers.0.attn.f", "outside"):
            recording.record("layers.0.attn.f", self.tensor("torch.bfloat16", 4, 3))


class Captures:
    """Captures of a model, held against what hooks of the model's own saw; see models.py."""

    checkpoint = None

    def build(self):
        raise NotImplementedError

    def assert_seen(self, model, tokens):
        found = safetensors_io.read(self.path)
        self.assertEqual(set(found), set(model.seen))
        for name, passes in model.seen.items():
            bits = np.concatenate(passes)[:tokens]
            self.assertEqual(len(bits), tokens)
            np.testing.assert_array_equal(found[name].bits, bits, err_msg=name)
            self.assertEqual(found[name].dtype, "BF16")

    def test_every_layer(self):
        model = self.build()
        model.watch(range(len(model.layers)))
        with Capture(model.model, self.path):
            model.run(8)
        model.run(3)
        indexers = [name for name in model.seen if name.endswith("q_residual")]
        self.assertEqual(len(indexers), len(model.layers) // 2)
        self.assertEqual(len(model.seen), 4 * len(model.layers) + 2 * len(indexers))
        self.assert_seen(model, 8)

    def test_layers_and_tokens_asked_for(self):
        model = self.build()
        model.watch([1])
        with Capture(model.model, self.path, layers=[1], tokens=11):
            model.run(8)
            model.run(8)
        self.assert_seen(model, 11)

    def test_the_tool_takes_the_file(self):
        model = self.build()
        with Capture(model.model, self.path, layers=[0, 1]):
            model.run(8)
        out, dump = self.folder / "out", self.folder / "dump"
        run = subprocess.run(
            [os.environ["ULPDRIFT"], "run", self.checkpoint, "--inputs", f"file:{self.path}", "--layers", "0-1",
             "--variants", "fp32", "-q", "--out", out, "--dump", dump],
            capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        records = json.loads((out / "report.json").read_text())["records"]
        self.assertEqual({record["tokens"] for record in records}, {8})
        found = safetensors_io.read(self.path)
        for layer in (0, 1):
            for site in ("attn", "ffn"):
                name = f"L{layer}.{site}"
                used = safetensors_io.read(dump / f"{name}.safetensors")[f"{name}.x"].values
                recorded = found[f"layers.{layer}.{site}.x"].values
                np.testing.assert_array_equal(used.reshape(recorded.shape), recorded)

    def test_a_batch_is_refused_and_the_hooks_are_gone(self):
        model = self.build()
        with self.refused("layers.0.attn.x", "batch of 2"), Capture(model.model, self.path):
            model.run(8, batch=2)
        self.assert_empty()
        model.run(8, batch=2)

    def test_layers_that_are_not_there(self):
        model = self.build()
        last = len(model.layers) - 1
        for layer in (-1, last + 1):
            with self.refused(f"layer {layer} ", f"0 to {last}"):
                Capture(model.model, self.path, layers=[layer])
        with self.refused("no layer"):
            Capture(model.model, self.path, layers=[])

    def test_a_model_that_never_ran(self):
        with self.refused("layers.0.attn.x", "never seen", "eagerly"), Capture(self.build().model, self.path):
            pass
        self.assert_empty()

    def test_another_model(self):
        with self.refused("a str has no layers"):
            Capture("a model", self.path)
        model = self.build()
        before = model.hooks(model.layers[0].attn_hc)
        del model.layers[1].ffn_hc
        with self.refused("layer 1", "Layer", "no ffn_hc", "Recording"), Capture(model.model, self.path):
            pass
        self.assertEqual(model.hooks(model.layers[0].attn_hc), before)
        self.assert_empty()


class StandInTest(Captures, Folder):
    """Without torch."""

    checkpoint = "synthetic:tiny"

    def build(self):
        return models.StandInModel()


class Importing(Captures):
    """Skipped where a module that it needs is not here."""

    needs = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for module, what in cls.needs:
            try:
                importlib.import_module(module)
            except ImportError:
                raise unittest.SkipTest(what) from None


class TorchTest(Importing, Folder):
    """On plain torch."""

    checkpoint = "synthetic:tiny"
    needs = [("torch", "no torch")]

    def build(self):
        return models.TorchModel()


class TransformersTest(Importing, Folder):
    """On transformers' own modules."""

    checkpoint = models.FIXTURE
    needs = [("torch", "no torch"), ("transformers.models.deepseek_v4", "no DeepSeek-V4 in transformers")]

    def build(self):
        return models.TransformersModel()


def main():
    if "ULPDRIFT" not in os.environ:
        sys.exit("ULPDRIFT is not set, expected the path of the binary; give ULPDRIFT=target/release/ulpdrift")
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner().run(suite)
    for reason, count in collections.Counter(reason for _, reason in result.skipped).items():
        print(f"skipped: {reason} ({count} suites of captures)")
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
