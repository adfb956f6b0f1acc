"""What kernels of pooling compute, and what they leave to others."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample

N = ROWS


def _wide(x: torch.Tensor) -> torch.Tensor:
    """In 32 bits at least: PyTorch has no means of volumes of 16 bits on the CPU."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


SAMPLES = (
    Sample("largest of tiles", lambda x: F.max_pool2d(x, 2), ((N, 3, 9, 22),)),
    Sample("means of tiles", lambda x: F.avg_pool2d(x, 2), ((N, 3, 9, 22),)),
    Sample("largest of three, every second", lambda x: F.max_pool2d(x, 3, 2, 1), ((N, 2, 7, 37),)),
    Sample("largest, apart", lambda x: F.max_pool1d(x, 4, 1, 2, 3), ((N, 3, 41),)),
    Sample("largest of volumes", lambda x: F.max_pool3d(x, 3, 2, 1), ((N, 2, 5, 6, 19),)),
    Sample("means of volumes", lambda x: F.avg_pool3d(_wide(x), 3, 2, 1), ((N, 2, 5, 6, 19),)),
    Sample("volumes apart", lambda x: F.max_pool3d(x, 2, 1, 1, 2), ((N, 2, 4, 6, 11),)),
    Sample("means along a line", lambda x: F.avg_pool1d(x, 8, 1, 4), ((N, 3, 45),)),
    # long lines: several runs of windows, of which the last is shorter
    Sample("largest of a long line", lambda x: F.max_pool1d(x, 8, 1, 4, 3), ((N, 1, 1030),)),
    Sample("means of a long line", lambda x: F.avg_pool1d(x.sin(), 5, 2, 2), ((N, 2, 2101),)),
    Sample("long lines of images", lambda x: F.max_pool2d(x, (1, 3), 1, (0, 1)), ((N, 1, 2, 530),)),
    Sample("means of a line's tiles", lambda x: F.avg_pool1d(x, 3), ((N, 3, 31),)),
    Sample(
        "what is padded does not count",
        lambda x: F.avg_pool2d(x, 3, 2, 1, False, False),
        ((N, 2, 8, 21),),
    ),
    Sample("a divisor", lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5), ((N, 2, 8, 21),)),
    Sample(
        "largest, the last cut off", lambda x: F.max_pool2d(x, 3, 2, 0, 1, True), ((N, 2, 8, 20),)
    ),
    Sample("means, the last cut off", lambda x: F.avg_pool2d(x, 3, 2, 1, True), ((N, 2, 8, 22),)),
    Sample(
        "a line's mean, the last cut off", lambda x: F.avg_pool1d(x, 4, 3, 1, True), ((N, 3, 30),)
    ),
    Sample("one row high", lambda x: F.max_pool2d(x, (1, 5), (1, 4)), ((N, 2, 3, 33),)),
    Sample("one column wide", lambda x: F.avg_pool2d(x, (3, 1), 1), ((N, 2, 8, 1),)),
    Sample("every fifth", lambda x: F.max_pool2d(x, 2, (3, 5)), ((N, 2, 9, 43),)),
    Sample("adaptive means", lambda x: F.adaptive_avg_pool2d(x, (4, 3)), ((N, 2, 8, 15),)),
    Sample("adaptive largest", lambda x: F.adaptive_max_pool2d(x, (4, 3)), ((N, 2, 8, 15),)),
    Sample(
        "an activation before and behind",
        lambda x: F.hardswish(F.max_pool2d(F.gelu(x), 2)),
        ((N, 3, 8, 18),),
    ),
    Sample(
        "overlapping windows of computed rows",
        lambda x: F.avg_pool2d(torch.sin(x), 3, 1, 1),
        ((N, 3, 6, 20),),
    ),
    Sample(
        "overlapping volumes of computed rows",
        lambda x: F.avg_pool3d(_wide(x).abs(), 3, 1, 1),
        ((N, 2, 4, 5, 18),),
    ),
    Sample(
        "by channel, before and behind",
        lambda x, s, b: F.max_pool2d(torch.cos(x * s + b), 2) * s - b,
        ((N, 3, 8, 18),),
        ((3, 1, 1), (3, 1, 1)),
    ),
    Sample("beside what is pooled", lambda x: F.max_pool2d(x, 3, 1, 1) - x, ((N, 2, 5, 17),)),
    Sample(
        "beside what is computed and pooled",
        lambda x: (y := x.sin()) * F.avg_pool2d(y, 3, 1, 1),
        ((N, 2, 5, 17),),
    ),
    Sample(
        "with another image", lambda x, y: F.max_pool2d(x, 2) + y, ((N, 2, 8, 34), (N, 2, 4, 17))
    ),
    Sample(
        "uneven adaptive",
        lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
        ((N, 2, 8, 15),),
        refused=True,
    ),
    Sample("all of it", lambda x: F.adaptive_avg_pool2d(x, 1), ((N, 2, 8, 15),), refused=True),
    Sample("pointwise", lambda x: x.sin() * 2, ((N, 2, 8, 8),), refused=True),
    Sample("a reduction", lambda x: x.amax(-1), ((N, 2, 8, 8),), refused=True),
)
