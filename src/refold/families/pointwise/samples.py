"""What pointwise kernels compute, and what they leave to others."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample

N = ROWS
SAMPLES = (
    Sample("a chain", lambda x: torch.sigmoid(x * 2 + 1) * x, ((N, 31),)),
    Sample("one element", lambda x: torch.tanh(x) - x, ((1,),)),
    Sample("one column", lambda x: torch.exp(-x.abs()), ((N, 1),)),
    Sample("three axes", lambda x: F.gelu(x) + x.square(), ((2, N, 7),)),
    Sample("long rows", lambda x: F.silu(x), ((N, 1027),)),
    Sample("a column of each", lambda x, c: x * c.sin(), ((N, 33),), ((33,),)),
    Sample("a number of each row", lambda x, r: x.cos() / (r.square() + 1), ((N, 16), (N, 1))),
    Sample("mixed axes", lambda x, y: torch.sin(x) * y, ((3, N, 5), (N, 5))),
    Sample("one axis in the middle", lambda x, y: x.tanh() + y, ((2, 3, 4), (2, 1, 4))),
    Sample("one number", lambda x, s: (x + s).sin(), ((N, 9), (1,))),
    Sample("two of one space", lambda x, y: torch.maximum(x.sin(), y.cos()), ((N, 17), (N, 17))),
    Sample("a choice", lambda x: torch.where(x > 0.5, x.exp(), x.sin()), ((N, 13),)),
    Sample("clamped", lambda x: x.clamp(-0.5, 0.5).sin(), ((N, 12),)),
    Sample("with a size", lambda x: (x * x.shape[0]).sin(), ((N, 6),)),
    Sample("a reduction", lambda x: x.sin().sum(-1), ((N, 40),), refused=True),
    Sample("a running sum", lambda x: x.cumsum(-1), ((N, 40),), refused=True),
    Sample("a product", lambda x, w: x @ w.mT, ((N, 24),), ((40, 24),), refused=True),
)
