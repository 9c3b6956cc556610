"""Tiny models whose modules are named as those of transformers' DeepSeek-V4.

Each has `run(tokens, batch)`, a forward pass on made-up tokens; `watch(layers)`, plain hooks of its own,
which keep what the modules were given and what they returned, as bits, by the names in the file; and
`hooks(module)`, how many hooks a module has.
"""

import json
from pathlib import Path

import numpy as np
import stand_in

FIXTURE = Path(__file__).parents[2] / "fixtures" / "transformers_tiny"
HC, HIDDEN, RANK, LAYERS = 4, 256, 96, 2


class StandInModel:
    """Modules that hand on random bits; layer 1 has an indexer, layer 0 no compressor."""

    dtype = "torch.bfloat16"

    def __init__(self):
        self.noise = np.random.default_rng(7)
        self.model = self
        self.layers = [StandInLayer(self, index) for index in range(LAYERS)]
        self.seen = {}

    def random(self, *shape):
        """Bits of numbers from 2^-8 to 1, of either sign."""
        top = self.noise.integers(0x3B80, 0x3F80, shape) | self.noise.integers(0, 2, shape) << 15
        if stand_in.WIDTH[self.dtype] is np.uint32:
            return stand_in.Tensor(top << 16 | self.noise.integers(0, 1 << 16, shape), self.dtype)
        return stand_in.Tensor(top, self.dtype)

    def watch(self, layers):
        for index in layers:
            self.layers[index].watched = True

    def hooks(self, module):
        return len(module.before) + len(module.after)

    def keep(self, layer, name, tensor):
        if layer.watched:
            self.seen.setdefault(f"layers.{layer.index}.{name}", []).append(tensor[0].bits.copy())

    def run(self, tokens, batch=1):
        for layer in self.layers:
            layer(self.random(batch, tokens, HC, HIDDEN))


class Part(stand_in.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


class StandInLayer(stand_in.Module):
    def __init__(self, model, index):
        super().__init__()
        self.model, self.index, self.watched = model, index, False
        self.attn_hc = Part(lambda hidden_streams: model.keep(self, "attn.x", hidden_streams))
        self.ffn_hc = Part(lambda hidden_streams: model.keep(self, "ffn.x", hidden_streams))
        self.self_attn = Part(self.attend)
        self.mlp = Part(self.expert)
        self.self_attn.compressor = None
        if index == 1:
            self.self_attn.compressor = Part(None)
            self.self_attn.compressor.indexer = Part(self.select)

    def select(self, hidden_states, q_residual):
        self.model.keep(self, "indexer.hidden_states", hidden_states)
        self.model.keep(self, "indexer.q_residual", q_residual)

    def attend(self, streams):
        batch, tokens = streams.shape[:2]
        if self.self_attn.compressor is not None:
            hidden = self.model.random(batch, tokens, HIDDEN)
            self.self_attn.compressor.indexer(hidden, q_residual=self.model.random(batch, tokens, RANK))
        # A view that is not contiguous, and the weights beside the output.
        output = stand_in.Tensor(self.model.random(batch, HIDDEN, tokens).bits.swapaxes(1, 2), self.model.dtype)
        self.model.keep(self, "attn.f", output)
        return output, None

    def expert(self, streams):
        output = self.model.random(streams.shape[0], streams.shape[1], HIDDEN)
        self.model.keep(self, "ffn.f", output)
        return output

    def forward(self, streams):
        self.attn_hc(streams)
        self.self_attn(streams)
        self.ffn_hc(hidden_streams=self.model.random(*streams.shape))
        self.mlp(streams)


def bits(tensor):
    """A torch tensor's bits."""
    import torch

    kind = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    unsigned = {2: np.uint16, 4: np.uint32}[tensor.element_size()]
    return tensor.detach().clone().contiguous().view(kind).numpy().view(unsigned)


class TorchBased:
    """A model of torch modules, in bfloat16, with plain hooks that watch it."""

    def __init__(self):
        import torch

        torch.manual_seed(0)
        self.model = self.build(torch).to(torch.bfloat16).eval()
        self.layers = self.model.model.layers
        self.seen = {}

    def watch(self, layers):
        for index in layers:
            layer, name = self.layers[index], f"layers.{index}."
            self.keep(layer.attn_hc, name + "attn.x", lambda args, output: args[0])
            self.keep(layer.ffn_hc, name + "ffn.x", lambda args, output: args[0])
            self.keep(layer.self_attn, name + "attn.f", lambda args, output: output[0])
            self.keep(layer.mlp, name + "ffn.f", lambda args, output: output)
            if index % 2 == 1:
                # By the modules before the indexer, not by its own arguments.
                self.keep(layer.input_layernorm, name + "indexer.hidden_states", lambda args, output: output)
                self.keep(layer.self_attn.q_a_norm, name + "indexer.q_residual", lambda args, output: output)

    def keep(self, module, name, pick):
        module.register_forward_hook(
            lambda _module, args, output: self.seen.setdefault(name, []).append(bits(pick(args, output)[0])))

    def hooks(self, module):
        return len(module._forward_pre_hooks) + len(module._forward_hooks)


class TransformersModel(TorchBased):
    """transformers' own modules with random weights."""

    def build(self, torch):
        from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

        settings = json.loads((FIXTURE / "config.json").read_text())
        return DeepseekV4ForCausalLM(DeepseekV4Config(**settings))

    def run(self, tokens, batch=1):
        import torch

        with torch.no_grad():
            self.model(torch.randint(0, 128, (batch, tokens)), use_cache=False)


class TorchModel(TorchBased):
    """Modules of plain torch under the same names, with gradients on: linear maps instead of attention and MoE."""

    def build(self, torch):
        nn = torch.nn

        class Collapse(nn.Module):
            def forward(self, hidden_streams):
                return hidden_streams.mean(2)

        class Indexer(nn.Module):
            def forward(self, hidden_states, q_residual):
                return hidden_states.sum() + q_residual.sum()

        class Attention(nn.Module):
            def __init__(self, index):
                super().__init__()
                self.q_a_norm = nn.Linear(HIDDEN, RANK)
                self.o_b_proj = nn.Linear(HIDDEN, HIDDEN)
                self.compressor = nn.Module() if index % 2 == 1 else None
                if self.compressor is not None:
                    self.compressor.indexer = Indexer()

            def forward(self, hidden):
                if self.compressor is not None:
                    self.compressor.indexer(hidden, q_residual=self.q_a_norm(hidden))
                return self.o_b_proj(hidden).transpose(1, 2).contiguous().transpose(1, 2), None

        class Layer(nn.Module):
            def __init__(self, index):
                super().__init__()
                self.attn_hc, self.ffn_hc = Collapse(), Collapse()
                self.input_layernorm = nn.LayerNorm(HIDDEN)
                self.self_attn, self.mlp = Attention(index), nn.Linear(HIDDEN, HIDDEN)

            def forward(self, streams):
                streams = streams + self.self_attn(self.input_layernorm(self.attn_hc(streams)))[0].unsqueeze(2)
                return streams + self.mlp(self.ffn_hc(streams)).unsqueeze(2)

        model = nn.Module()
        model.model = nn.Module()
        model.model.layers = nn.ModuleList(Layer(index) for index in range(LAYERS))
        return model

    def run(self, tokens, batch=1):
        import torch

        streams = torch.randn(batch, tokens, HC, HIDDEN).to(torch.bfloat16)
        for layer in self.layers:
            streams = layer(streams)
