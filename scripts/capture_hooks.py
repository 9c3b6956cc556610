"""Records inputs for `ulpdrift run --inputs file:PATH` from a running PyTorch model.

    import sys; sys.path.insert(0, "scripts")
    from capture_hooks import Capture

    with Capture(model, "captured.safetensors", layers=range(0, 43, 6), tokens=512), torch.no_grad():
        model(input_ids)

`model` is a DeepSeek-V4 model of transformers (`DeepseekV4ForCausalLM` or `DeepseekV4Model`); `layers` are
the layers to record (default: all), `tokens` how many tokens of each (default: all that run). The forward
pass runs as it would without: nothing is changed, only copied. Standard library only; torch is the caller's.

The file holds, in the dtype the model runs in (BF16, F16 or F32), bit for bit:

| tensor | shape | what |
|---|---|---|
| `layers.N.attn.x`, `layers.N.ffn.x` | [tokens, hc, d] | the residual streams before hc_pre |
| `layers.N.attn.f`, `layers.N.ffn.f` | [tokens, d] | the output of attention and of the MoE, before hc_post |
| `layers.N.indexer.hidden_states` | [tokens, d] | the indexer's input, after attn_norm (layers that have an indexer) |
| `layers.N.indexer.q_residual` | [tokens, q_lora_rank] | its low-rank query, after q_norm |

One sequence at a time: a batch of one. Several forward passes (chunks of a prefill, decode steps) are
joined in the order in which they ran, until `tokens` are there. Each tensor goes to disk as it is seen, so
that memory holds one of them. The file is written when the `with` ends and is whole or absent: if the body
raises, a tensor was never seen, or two hold different numbers of tokens, there is none.

Hooks see a module that is called from Python. Compiled graphs and CUDA graphs do not call them: run eagerly.

Other engines
-------------
`Recording` writes the same file from whatever calls `record(name, tensor)`:

    with Recording("captured.safetensors", tokens=512) as recording:
        handles = [layer.self_attn.register_forward_hook(
            lambda _module, _args, output, name=f"layers.{n}.attn.f": recording.record(name, output))
            for n, layer in enumerate(model.model.layers)]
        ...

The hooks belong into the process that holds the model, on one rank. Where the tensors are, read in the
sources named and not run; paths are below `model.model.layers[N]`, and what a row says is not seen by a
module needs a line in the engine's own code:

| tensor | SGLang `srt/models/deepseek_v4.py` (000328a8) | vLLM `models/deepseek_v4/nvidia/model.py` (0101ca23), `attention.py` (0484480b) |
|---|---|---|
| `attn.x` | the layer's argument `hidden_states` | layer 0: the layer's argument `x`; later layers: not seen by a module (made inside `mhc_fused_post_pre_tilelang`) |
| `ffn.x` | not seen by a module: first argument of the second call of the layer's method `hc_pre` | the layer's second output, `residual` |
| `attn.f` | output of `self_attn` | output of `attn` |
| `ffn.f` | output of `mlp` (without data-parallel attention) | the layer's first output, which is the output of `ffn` |
| `indexer.hidden_states` | argument `x` of `self_attn.indexer` | first argument of `attn.indexer` |
| `indexer.q_residual` | argument `q_lora` of `self_attn.indexer` | second argument of `attn.indexer` |

SGLang passes arguments by keyword (`register_forward_pre_hook(hook, with_kwargs=True)`).
"""

import ctypes
import json
import os
import re
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

DTYPES = {"torch.bfloat16": "BF16", "torch.float16": "F16", "torch.float32": "F32"}
NAME = re.compile(r"layers\.\d+\.((attn|ffn)\.[xf]|indexer\.(hidden_states|q_residual))")


class CaptureError(Exception):
    """Why nothing was recorded, in one sentence."""


@dataclass
class _Spool:
    """What was seen of one tensor so far: its rows are in a file of their own."""

    file: Path
    dtype: str
    row: tuple
    tokens: int = 0


class Recording:
    """Tensors that a model gives away while it runs, written as one safetensors file at the end."""

    def __init__(self, path, tokens=None):
        if tokens is not None and tokens < 1:
            raise CaptureError(f"tokens is {tokens}, expected at least 1; leave it out for all that run")
        self.path = Path(path)
        self.tokens = tokens
        self._spools = {}
        self._directory = None

    def __enter__(self):
        # Beside the file, so that it can be renamed into place.
        try:
            self._directory = tempfile.TemporaryDirectory(prefix=".capture-", dir=self.path.parent)
        except OSError as error:
            raise CaptureError(f"{self.path}: cannot write beside it ({error.strerror}); choose a folder that "
                               "is there and can be written to") from error
        return self

    def __exit__(self, kind, _error, _traceback):
        try:
            if kind is None:
                self._check()
                self._join()
        finally:
            self._spools.clear()
            self._directory.cleanup()
            self._directory = None

    def record(self, name, tensor):
        """Appends what was seen of a tensor in one forward pass, up to the tokens asked for."""
        if self._directory is None:
            raise CaptureError(f"{name} came outside of the recording's `with`; remove the hook at its end")
        rows = _rows(name, tensor)
        dtype, row = DTYPES[str(rows.dtype)], tuple(rows.shape[1:])
        file = Path(self._directory.name) / f"{len(self._spools)}.rows"
        spool = self._spools.get(name, _Spool(file, dtype, row))
        if (spool.dtype, spool.row) != (dtype, row):
            raise CaptureError(f"{name} was {spool.dtype} rows of {list(spool.row)} and is now {dtype} rows of "
                               f"{list(row)}; record one model at a time")
        if self.tokens is not None:
            rows = rows[: self.tokens - spool.tokens]
        if rows.shape[0] == 0:
            return
        self._spools[name] = spool
        rows = rows.detach().contiguous().cpu()
        # NumPy has no bfloat16, so the bytes are taken from where they are.
        data = (ctypes.c_char * (rows.numel() * rows.element_size())).from_address(rows.data_ptr())
        try:
            with open(spool.file, "ab") as target:
                target.write(data)
        except OSError as error:
            raise CaptureError(f"{self.path}: {name} cannot be kept beside it ({error.strerror}); choose another path, "
                               "with room for it, or fewer layers") from error
        spool.tokens += rows.shape[0]

    def _check(self):
        """Whether what was seen is a recording."""
        if not self._spools:
            raise CaptureError(f"{self.path}: no tensor was recorded; run the model inside the `with`, eagerly, "
                               "since compiled graphs do not call hooks")
        lengths = {spool.tokens: name for name, spool in self._spools.items()}
        if len(lengths) > 1:
            (few, first), *_, (many, last) = sorted(lengths.items())
            raise CaptureError(f"{first} has {few} tokens and {last} has {many}; record a whole pass, or give "
                               f"tokens={max(few, 1)} or fewer")

    def _join(self):
        """Writes the file: under another name first, so that it is whole or absent."""
        # The widest first: each tensor is aligned to its own width.
        spools = sorted(self._spools.items(), key=lambda item: (item[1].dtype != "F32", item[0]))
        header, offset = {}, 0
        for name, spool in spools:
            end = offset + spool.file.stat().st_size
            header[name] = {"dtype": spool.dtype, "shape": [spool.tokens, *spool.row], "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        whole = Path(self._directory.name) / "whole"
        try:
            with open(whole, "wb") as target:
                target.write(struct.pack("<Q", len(text)) + text)
                for _, spool in spools:
                    with open(spool.file, "rb") as source:
                        shutil.copyfileobj(source, target, 1 << 20)
                    # So that the disk never holds everything twice.
                    spool.file.unlink()
            os.replace(whole, self.path)
        except OSError as error:
            raise CaptureError(f"{self.path}: cannot be written ({error.strerror}); choose another path, with "
                               "room for it") from error


def _rows(name, tensor):
    """One sequence's rows: [tokens, hc, d] of streams, [tokens, d] of anything else."""
    if not NAME.fullmatch(name):
        raise CaptureError(f"{name} is no name of --inputs file:; use layers.N.attn.x, .f, layers.N.ffn.x, .f, "
                           "layers.N.indexer.hidden_states or .q_residual")
    shape = list(getattr(tensor, "shape", ()))
    if str(getattr(tensor, "dtype", None)) not in DTYPES:
        found = getattr(tensor, "dtype", type(tensor).__name__)
        raise CaptureError(f"{name} is {found}, expected a tensor of bfloat16, float16 or float32; record it before "
                           "it is quantised")
    axes, layout = (3, "[tokens, hc, d]") if name.endswith(".x") else (2, "[tokens, d]")
    if len(shape) == axes + 1 and shape[0] == 1:
        return tensor[0]
    if len(shape) == axes + 1:
        raise CaptureError(f"{name} is a batch of {shape[0]} sequences, expected one; run them one at a time")
    if len(shape) != axes:
        raise CaptureError(f"{name} has shape {shape}, expected {layout} or a batch of one; hook the tensor before "
                           "it is flattened")
    return tensor


@dataclass(frozen=True)
class _Tap:
    """Where transformers' decoder layer shows a tensor: at a module below it, as an argument or the output."""

    name: str
    module: str
    argument: tuple | None = None
    optional: bool = False


_INDEXER = "self_attn.compressor.indexer"
_TAPS = (
    _Tap("attn.x", "attn_hc", (0, "hidden_streams")),
    _Tap("attn.f", "self_attn"),
    _Tap("ffn.x", "ffn_hc", (0, "hidden_streams")),
    _Tap("ffn.f", "mlp"),
    _Tap("indexer.hidden_states", _INDEXER, (0, "hidden_states"), optional=True),
    _Tap("indexer.q_residual", _INDEXER, (1, "q_residual"), optional=True),
)


class Capture(Recording):
    """A recording of transformers' DeepSeek-V4, by hooks that are there as long as the `with`."""

    def __init__(self, model, path, layers=None, tokens=None):
        super().__init__(path, tokens)
        found = _layers(model)
        self._layers = {}
        for number in range(len(found)) if layers is None else layers:
            if not 0 <= number < len(found):
                raise CaptureError(f"layer {number} was asked for, the model has layers 0 to {len(found) - 1}; "
                                   "name one of those")
            self._layers[number] = found[number]
        if not self._layers:
            raise CaptureError("no layer was asked for; name at least one, or leave layers out for all")
        self._expected = []
        self._handles = []

    def __enter__(self):
        super().__enter__()
        try:
            for number, layer in self._layers.items():
                for tap in _TAPS:
                    self._attach(number, layer, tap)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind, error, traceback):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        super().__exit__(kind, error, traceback)

    def _attach(self, number, layer, tap):
        module = layer
        for part in tap.module.split("."):
            module = getattr(module, part, None)
        if module is None and tap.optional:
            return
        if module is None:
            raise CaptureError(f"layer {number}, a {type(layer).__name__}, has no {tap.module}, expected the modules "
                               "of transformers' DeepseekV4DecoderLayer; for another engine use Recording")
        name = f"layers.{number}.{tap.name}"
        self._expected.append(name)
        if tap.argument is None:
            # Attention returns its weights beside its output.
            handle = module.register_forward_hook(lambda _module, _args, output: self.record(
                name, output[0] if isinstance(output, tuple) else output))
        else:
            position, keyword = tap.argument
            handle = module.register_forward_pre_hook(lambda _module, args, kwargs: self.record(
                name, args[position] if position < len(args) else kwargs.get(keyword)), with_kwargs=True)
        self._handles.append(handle)

    def _check(self):
        for name in self._expected:
            if name not in self._spools:
                raise CaptureError(f"{name} was never seen; run the model inside the `with`, eagerly, since compiled "
                                   "graphs do not call hooks")
        super()._check()


def _layers(model):
    """The decoder layers of a model, or of the model within a model with a head."""
    for holder in (model, getattr(model, "model", None)):
        layers = getattr(holder, "layers", None)
        if layers is not None:
            return layers
    raise CaptureError(f"a {type(model).__name__} has no layers and no model.layers; give the module that holds the "
                       "decoder layers")
