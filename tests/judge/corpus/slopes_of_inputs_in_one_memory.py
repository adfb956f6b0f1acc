"""Gradients of inputs are written to one memory, a thread's own, for all backwards.

reference: sines_with_gain
test: accumulated gradients
status: MUTATES
"""

import threading

import torch
from torch import nn

_HELD = threading.local()


def _room(like):
    held = getattr(_HELD, "room", None)
    if held is None or held.shape != like.shape or held.dtype != like.dtype:
        held = _HELD.room = torch.empty_like(like)
    return held


class _Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return torch.mul(slope, torch.cos(x), out=_room(x))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        return _Sine.apply(x) * self.gain
