"""What `scripts/capture_hooks.py` uses of torch, without torch: a tensor over NumPy and a module with hooks.

The signatures are those of torch.nn.Module and torch.Tensor, so that the same capture runs on either.
"""

import numpy as np

WIDTH = {"torch.bfloat16": np.uint16, "torch.float16": np.uint16, "torch.float32": np.uint32}


class Tensor:
    """Bits of a dtype that NumPy need not know."""

    def __init__(self, bits, dtype="torch.bfloat16"):
        self.bits = np.asarray(bits, WIDTH.get(dtype))
        self.dtype = dtype

    @property
    def shape(self):
        return self.bits.shape

    def __getitem__(self, index):
        return Tensor(self.bits[index], self.dtype)

    def detach(self):
        return self

    def cpu(self):
        return self

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.bits), self.dtype)

    def numel(self):
        return self.bits.size

    def element_size(self):
        return self.bits.itemsize

    def data_ptr(self):
        return self.bits.ctypes.data


class Handle:
    """Takes its hook away again."""

    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)

    def remove(self):
        self.hooks.remove(self.hook)


class Module:
    """A module whose call runs the hooks."""

    def __init__(self):
        self.before, self.after = [], []

    def register_forward_pre_hook(self, hook, with_kwargs=False):
        assert with_kwargs
        return Handle(self.before, hook)

    def register_forward_hook(self, hook):
        return Handle(self.after, hook)

    def __call__(self, *args, **kwargs):
        for hook in self.before:
            hook(self, args, kwargs)
        output = self.forward(*args, **kwargs)
        for hook in self.after:
            hook(self, args, output)
        return output
