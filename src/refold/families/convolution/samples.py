"""What kernels of convolutions compute, and what they leave to others."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample

N = ROWS
SAMPLES = (
    Sample("plain", lambda x, w: F.conv2d(x, w), ((N, 4, 6, 9),), ((16, 4, 3, 3),)),
    Sample(
        "padded, odd sizes, a bias and a function",
        lambda x, w, b: F.gelu(F.conv2d(x, w, b, padding=1)),
        ((N, 3, 7, 11),),
        ((19, 3, 3, 3), (19,)),
    ),
    Sample(
        "channels of one tap",
        lambda x, w, b: F.relu(F.conv2d(x, w, b)),
        ((N, 32, 4, 6),),
        ((70, 32, 3, 3), (70,)),
    ),
    Sample(
        "more features than a tile has",
        lambda x, w: F.conv2d(x, w).tanh(),
        ((N, 9, 3, 5),),
        ((133, 9, 2, 2),),
    ),
    Sample(
        "a stride, a dilation and groups",
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2),
        ((N, 6, 9, 8),),
        ((36, 3, 4, 2), (36,)),
    ),
    Sample(
        "an operand of the result's shape, and one of its channels",
        lambda x, r, w, s: torch.sigmoid(F.conv2d(x, w, padding=1)) * s.view(-1, 1, 1) + r,
        ((N, 8, 4, 5), (N, 18, 4, 5)),
        ((18, 8, 3, 3), (18,)),
    ),
    Sample(
        "operands of an image, of a channel of one, and of places",
        lambda x, i, c, p, w: F.conv2d(x, w).sigmoid() * i + c * p,
        ((N, 16, 2, 8), (N, 1, 1, 1), (N, 20, 1, 1), (2, 8)),
        ((20, 16, 1, 1),),
    ),
    Sample(
        "along one axis",
        lambda x, w, b: F.silu(F.conv1d(x, w, b, padding=2, dilation=2)),
        ((N, 5, 23),),
        ((17, 5, 4), (17,)),
    ),
    Sample(
        "volumes",
        lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=(1, 0, 1)).cos(),
        ((N, 3, 3, 5, 4),),
        ((21, 3, 2, 3, 2),),
    ),
    Sample(
        "few features",
        lambda x, w: F.conv2d(x, w).sin(),
        ((N, 8, 6, 6),),
        ((3, 8, 3, 3),),
    ),
    Sample(
        "each channel by itself",
        lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=24).sin(),
        ((N, 24, 9, 20),),
        ((24, 1, 3, 3), (24,)),
    ),
    Sample(
        "each channel by itself, strides and dilations",
        lambda x, w: F.conv2d(x, w, None, (3, 2), (2, 1), (1, 2), groups=3).sin(),
        ((N, 3, 14, 41),),
        ((6, 1, 2, 3),),
    ),
    Sample(
        "volumes of few features",
        lambda x, w: F.conv3d(x, w, padding=(1, 0, 2), groups=2).cos(),
        ((N, 4, 3, 5, 34),),
        ((4, 2, 2, 3, 3),),
    ),
    Sample(
        "transposed",
        lambda x, w, b: F.conv_transpose2d(x, w, b).sin(),
        ((N, 16, 4, 4),),
        ((16, 20, 3, 3), (20,)),
    ),
    Sample(
        "transposed by steps of two",
        lambda x, w, b: F.gelu(F.conv_transpose2d(x, w, b, 2, 1, 1)),
        ((N, 5, 7, 9),),
        ((5, 17, 3, 3), (17,)),
    ),
    Sample(
        "transposed, steps longer than the kernel, groups, dilations",
        lambda x, w: F.conv_transpose2d(x, w, None, (3, 5), (0, 1), (2, 3), 2, (2, 1)).sin(),
        ((N, 6, 4, 5),),
        ((6, 4, 2, 4),),
    ),
    Sample(
        "transposed along a line, and volumes",
        lambda x, y, u, v: (
            F.conv_transpose1d(x, u, stride=2, padding=1).sin().sum()
            + F.conv_transpose3d(y, v, stride=2, padding=1, output_padding=(1, 0, 1)).sin()
        ),
        ((N, 3, 23), (N, 3, 3, 2, 5)),
        ((3, 7, 4), (3, 8, 3, 3, 3)),
    ),
    Sample(
        "long lines of many features",
        lambda x, w: F.relu(F.conv1d(x, w, stride=2, padding=3)),
        ((N, 4, 341),),
        ((540, 4, 5),),
    ),
    Sample("pointwise", lambda x: x.sin() * 2, ((N, 32),), refused=True),
)
