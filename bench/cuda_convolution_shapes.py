"""Convolutions that bench/cuda_convolutions.py times: those of KernelBench's level 2 by the number
of their file, of level 1 after "level 1", and some others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

Shape = tuple[Callable[[], nn.Module], tuple[int, ...]]  # makes the convolution; its images


def _flat(channels: int, features: int, kernel: int, count: int, size: int) -> Shape:
    return partial(nn.Conv2d, channels, features, kernel), (count, channels, size, size)


def _each(channels: int, kernel: tuple[int, int], *images: int, padding: int = 0) -> Shape:
    conv = partial(nn.Conv2d, channels, channels, kernel, padding=padding, groups=channels)
    return conv, (images[0], channels, *images[1:])


def _volumes(channels: int, features: int, kernel: int, *images: int, padding: int = 0) -> Shape:
    conv = partial(nn.Conv3d, channels, features, kernel, padding=padding)
    return conv, (images[0], channels, *images[1:])


_LARGER, _TRANSPOSED_FLAT, _TRANSPOSED = (2, 1, 1), nn.ConvTranspose2d, nn.ConvTranspose3d
SHAPES: dict[str, Shape] = {
    "1": _flat(64, 128, 3, 128, 128),
    "32": _flat(64, 128, 3, 64, 256),
    "52": _flat(64, 128, 3, 64, 128),
    "57": _flat(8, 64, 3, 128, 128),
    "67": _flat(8, 64, 3, 128, 256),
    "odd rows": _flat(64, 64, 3, 64, 129),
    "small images": _flat(256, 256, 3, 64, 14),
    "rows of 56": (partial(nn.Conv2d, 64, 64, 3, padding=1), (128, 64, 56, 56)),
    "rows of 28": (partial(nn.Conv2d, 64, 64, 3, padding=1), (256, 64, 28, 28)),
    "pointwise": _flat(256, 64, 1, 32, 56),
    "first layer": _flat(3, 64, 7, 64, 224),
    # transposed
    "2": (partial(_TRANSPOSED_FLAT, 64, 64, 3, *_LARGER), (128, 64, 128, 128)),
    "5": (partial(_TRANSPOSED_FLAT, 64, 64, 4, *_LARGER), (32, 64, 256, 256)),
    "36": (partial(_TRANSPOSED_FLAT, 64, 128, 3, *_LARGER), (16, 64, 128, 128)),
    "91": (partial(_TRANSPOSED_FLAT, 64, 128, 4, *_LARGER), (128, 64, 64, 64)),
    "93": (partial(_TRANSPOSED_FLAT, 64, 128, 4, 2), (128, 64, 64, 64)),
    "10": (partial(_TRANSPOSED_FLAT, 64, 64, 3, 1, 1), (32, 64, 256, 256)),
    "20": (partial(_TRANSPOSED, 32, 64, 3, *_LARGER), (16, 32, 16, 32, 32)),
    "15": (partial(_TRANSPOSED, 16, 32, 3, 2, 1), (16, 16, 16, 32, 32)),
    "50": (partial(_TRANSPOSED, 3, 16, 3, 2, 1), (128, 3, 16, 32, 32)),
    "78": (partial(_TRANSPOSED, 32, 64, 5, 2, 2), (16, 32, 32, 32, 32)),
    "74": (partial(_TRANSPOSED, 16, 32, 3, *_LARGER), (16, 16, 16, 32, 32)),
    "38": (partial(_TRANSPOSED, 32, 64, 3, *_LARGER), (32, 32, 16, 32, 32)),
    "34": (partial(_TRANSPOSED, 32, 64, 4, 2, 1), (32, 32, 16, 32, 32)),
    "61": (partial(_TRANSPOSED, 64, 128, 3), (16, 64, 32, 32, 32)),
    "77": (partial(_TRANSPOSED, 64, 128, 5), (16, 64, 16, 32, 32)),
    "100": (partial(_TRANSPOSED, 64, 128, 3, 2, 1), (16, 64, 24, 48, 48)),
    "11": (partial(_TRANSPOSED_FLAT, 64, 128, 5, 1, 1), (512, 64, 32, 32)),
    "level 1, 58": (partial(_TRANSPOSED, 32, 16, (3, 5, 7)), (16, 32, 16, 32, 64)),
    "level 1, 73": (
        partial(_TRANSPOSED, 32, 32, 3, 2, 1, groups=4),
        (4, 32, 32, 64, 128),
    ),
    "level 1, 75": (
        partial(_TRANSPOSED_FLAT, 32, 64, (3, 5), (2, 3), (1, 2), 0, 4, dilation=(2, 1)),
        (16, 32, 128, 256),
    ),
    "level 1, 79": (
        partial(nn.ConvTranspose1d, 32, 64, 3, 2, 1, dilation=2),
        (16, 32, 131072),
    ),
    # volumes
    "7": _volumes(8, 32, 3, 64, 32, 64, 64),
    "8": _volumes(8, 16, 3, 128, 16, 64, 64),
    "6": _volumes(3, 16, 3, 128, 16, 32, 32),
    "24": _volumes(3, 24, 3, 128, 24, 32, 32),
    "43": _volumes(32, 64, 3, 4, 32, 128, 128, padding=1),
    "90": _volumes(8, 64, 3, 128, 16, 64, 64),
    "27": _volumes(3, 16, 4, 1024, 16, 32, 32),
    "47": _volumes(32, 64, 3, 16, 32, 64, 64),
    "48": _volumes(3, 16, 3, 128, 16, 64, 64),
    "level 1, 54": _volumes(3, 64, 3, 16, 64, 64, 64),
    # each channel by itself
    "level 1, 82": _each(64, (3, 3), 16, 512, 512),
    "level 1, 83": _each(8, (3, 1), 64, 512, 512),
    "level 1, 84": _each(128, (3, 3), 64, 256, 512),
    "level 1, 85": _each(128, (3, 7), 32, 128, 256),
    "level 1, 86": _each(64, (3, 3), 16, 512, 512, padding=1),
}
