"""What kernels of columns compute, and what they leave to others."""

from __future__ import annotations

import torch

from refold.families.samples import ROWS, Sample

N = ROWS
SAMPLES = (
    Sample("sum", lambda x: x.sin().sum(0), ((N, 31),)),
    Sample("mean that is kept", lambda x: x.exp().mean(0, keepdim=True), ((N, 16),)),
    Sample("largest", lambda x: x.cos().amax(0), ((N, 5),)),
    Sample("smallest", lambda x: x.tanh().amin(0), ((N, 130),)),
    Sample("variance", lambda x: torch.var(x, 0), ((N, 33),)),
    Sample("many rows", lambda x: x.square().mean(0), ((N, 3),), rows=700),
    Sample("of each slice", lambda x: x.sin().sum(1), ((3, N, 12),)),
    Sample("over two axes", lambda x: x.square().mean((0, 1)), ((4, N, 9),)),
    Sample("mean and variance", lambda x: x.mean(0) / torch.var(x, 0), ((N, 20),)),
    Sample("what follows", lambda x, w: x.square().mean(0).sqrt() * w, ((N, 14),), ((14,),)),
    Sample("rows", lambda x: x.sin().sum(-1), ((N, 32),), refused=True),
    Sample("pointwise", lambda x: x.sin() * 2, ((N, 32),), refused=True),
    Sample("largest place", lambda x: x.argmax(0), ((N, 32),), refused=True),
    Sample("a running sum", lambda x: x.cumsum(0), ((N, 32),), refused=True),
)
