"""What kernels of products compute, and what they leave to others."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample

N = ROWS
SAMPLES = (
    Sample("plain", lambda x, w: x @ w.mT, ((N, 24),), ((40, 24),)),
    Sample("odd sizes", lambda x, w, b: F.linear(x, w, b).sin(), ((N, 31),), ((37, 31), (37,))),
    Sample("two features", lambda x, w: torch.tanh(x @ w.mT), ((N, 33),), ((2, 33),)),
    Sample("depth of two", lambda x, w: F.gelu(x @ w.mT), ((N, 2),), ((19, 2),)),
    Sample("one row", lambda x, w: F.silu(x @ w.mT), ((1, 64),), ((48, 64),)),
    Sample("many rows", lambda x, w: F.relu(x @ w.mT), ((N, 20),), ((18, 20),), rows=130),
    Sample("deep", lambda x, w: (x @ w.mT).tanh(), ((N, 1025),), ((6, 1025),)),
    Sample("three axes", lambda x, w: F.gelu(x @ w.mT), ((2, N, 16),), ((24, 16),)),
    Sample("of two values", lambda x, y: (x @ y.mT).sin(), ((N, 20), (28, 20))),
    Sample(
        "an epilogue of operands",
        lambda x, r, w, b: torch.sigmoid(F.linear(x, w, b)) * r,
        ((N, 18), (N, 22)),
        ((22, 18), (22,)),
    ),
    Sample("a gate", lambda x, w: (x @ w.mT) * torch.sigmoid(x @ w.mT), ((N, 9),), ((15, 9),)),
    Sample("rows are summed", lambda x, w: F.gelu(x @ w.mT).sum(-1), ((N, 26),), ((34, 26),)),
    Sample("the largest of rows", lambda x, w: (x @ w.mT).amax(-1), ((N, 26),), ((50, 26),)),
    Sample("columns are summed", lambda x, w: F.gelu(x @ w.mT).sum(0), ((N, 22),), ((36, 22),)),
    Sample("moments", lambda x, w: torch.var((x @ w.mT).sin(), 0), ((N, 10),), ((12, 10),)),
    Sample("one feature", lambda x, w: torch.tanh(x @ w.mT), ((N, 33),), ((1, 33),), refused=True),
    Sample("pointwise", lambda x: x.sin() * 2, ((N, 32),), refused=True),
    Sample("integers", lambda x: x.long() @ x.long().mT, ((N, 8),), refused=True),
)
