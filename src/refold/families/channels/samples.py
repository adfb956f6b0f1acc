"""What kernels of channels compute, and what they leave to others."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample

N = ROWS
SAMPLES = (
    Sample("softmax", lambda x: torch.softmax(x, 1), ((N, 7, 40, 50),)),
    Sample("log softmax", lambda x: torch.log_softmax(x, 1), ((N, 19, 33, 31),)),
    Sample("softmax of volumes", lambda x: torch.softmax(x, 1), ((N, 3, 9, 10, 11),)),
    Sample("logsumexp", lambda x: torch.logsumexp(x, 1), ((N, 12, 33, 32),)),
    Sample("sum", lambda x: x.sin().sum(1), ((N, 30, 32, 32),)),
    Sample("mean that is kept", lambda x: x.exp().mean(1, keepdim=True), ((N, 16, 30, 31),)),
    Sample("smallest, and on", lambda x: x.amin(1, keepdim=True).tanh(), ((N, 64, 32, 70),)),
    Sample(
        "norm of channels",
        lambda x, w, b: F.layer_norm(x.movedim(1, -1), (24,), w, b).movedim(-1, 1),
        ((N, 24, 32, 32),),
        ((24,), (24,)),
        refused=True,  # channels lie last there
    ),
    Sample(
        "norm of channels by hand",
        lambda x, w, b: (
            (x - x.mean(1, True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt() * w + b
        ),
        ((N, 24, 32, 33),),
        ((24, 1, 1), (24, 1, 1)),
    ),
    Sample("lengths", lambda x: x / x.square().sum(1, keepdim=True).sqrt(), ((N, 9, 40, 40),)),
    Sample("largest and mean", lambda x: x.amax(1) + x.mean(1), ((N, 32, 32, 32),)),
    Sample(
        "what comes before and behind",
        lambda x, w: torch.sigmoid(torch.softmax(x.relu() * w, 1) + w),
        ((N, 20, 31, 32),),
        ((20, 1, 1),),
    ),
    Sample(
        "softmax of channels that a weight numbers",
        lambda x, w: torch.sigmoid(2 * (torch.softmax(x, 1) + w)),
        ((N, 70, 33, 31),),
        ((70, 1, 1),),
    ),
    Sample(
        "softmax of few channels that a weight numbers, and many places",
        lambda x, w: torch.softmax(x * w, 1),
        ((N, 5, 47, 45),),
        ((5, 1, 1),),
    ),
    Sample(
        "two results of channels that a weight numbers",
        lambda x, w: (lambda y: torch.cat([y.sigmoid(), y.tanh()], 1))(torch.softmax(x * w, 1)),
        ((N, 130, 31, 32),),
        ((130, 1, 1),),
    ),
    Sample(
        "norm and logsumexp of channels that a weight numbers",
        lambda x, w: (
            (x - x.mean(1, True)) / (x.var(1, keepdim=True) + 1e-5).sqrt() * w
            + torch.logsumexp(x, 1, True)
        ),
        ((N, 257, 43, 41),),
        ((257, 1, 1),),
    ),
    Sample("softmax of many channels", lambda x: torch.softmax(x, 1), ((N, 70, 32, 33),)),
    Sample("largest of many places", lambda x: x.sin().amax(1), ((N, 3, 60, 61),)),
    Sample("logsumexp of many places", lambda x: torch.logsumexp(x, 1), ((N, 3, 60, 61),)),
    Sample(
        "logsumexp of many channels",
        lambda x: torch.logsumexp(x.tanh(), 1, keepdim=True),
        ((N, 70, 32, 33),),
    ),
    Sample("of slices", lambda x: torch.softmax(x, 1), ((N, 21, 1000),)),
    Sample("rows", lambda x: torch.softmax(x, -1), ((N, 5, 40, 50),), refused=True),
    Sample("columns", lambda x: x.sin().mean(0), ((N, 4000),), refused=True),
    Sample("few places", lambda x: torch.softmax(x, 1), ((N, 5, 3, 5),), refused=True),
    Sample("pointwise", lambda x: x.sin() * 2, ((N, 7, 40, 50),), refused=True),
)
