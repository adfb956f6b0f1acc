"""What kernels of rows compute, and what they leave to others."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample

N = ROWS
SAMPLES = (
    Sample("sum", lambda x: x.sin().sum(-1), ((N, 31),)),
    Sample("mean that is kept", lambda x: x.exp().mean(-1, keepdim=True), ((N, 16),)),
    Sample("largest and smallest", lambda x: x.amax(-1) - x.amin(-1), ((N, 65),)),
    Sample("variance", lambda x: torch.var(x, -1), ((N, 33),)),
    Sample("rows of two", lambda x: x.tanh().sum(-1), ((N, 2),)),
    Sample("one row", lambda x: x.cos().mean(-1), ((1, 257),)),
    Sample("long rows", lambda x: x.square().sum(-1).sqrt(), ((N, 8195),)),
    Sample("three axes", lambda x: x.sin().amax(-1), ((2, N, 19),)),
    Sample("softmax", lambda x: torch.softmax(x, -1), ((N, 37),)),
    Sample("softmax of long rows", lambda x: torch.softmax(x, -1), ((N, 4099),)),
    Sample("logsumexp", lambda x: torch.logsumexp(x, -1), ((N, 50),)),
    Sample("norm", lambda x, w, b: F.layer_norm(x, (30,), w, b), ((N, 30),), ((30,), (30,))),
    Sample("root mean square", lambda x, w: F.rms_norm(x, (48,), w), ((N, 48),), ((48,),)),
    Sample("one feature", lambda x, w: torch.sigmoid(x @ w.mT), ((N, 70),), ((1, 70),)),
    Sample(
        "two features that meet",
        lambda x, y, v, w: x @ v.mT + y @ w.mT,
        ((N, 36), (N, 36)),
        ((1, 36), (1, 36)),
    ),
    Sample(
        "masked",
        lambda x: torch.where(x > 0, x, -torch.inf).logsumexp(-1),
        ((N, 29),),
    ),
    Sample("columns", lambda x: x.sin().mean(0), ((N, 32),), refused=True),
    Sample("pointwise", lambda x: x.sin() * 2, ((N, 32),), refused=True),
    Sample("largest place", lambda x: x.argmax(-1), ((N, 32),), refused=True),
    Sample("a running sum", lambda x: x.cumsum(-1), ((N, 32),), refused=True),
)
