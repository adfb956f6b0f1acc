"""Convolutions of many groups in float64, as products of windows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

ROOM = 2**23  # elements of windows that lie in memory at a time


def grouped(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """What torch.nn.functional.conv1d, conv2d and conv3d give.

    In float64 these convolve group by group and meet all threads several times for each. Where
    other processes want the processors, too, that was seen to take 25 times as long: a second for
    32 channels of 112 x 112.
    """
    windows = torch.nn.functional.pad(x, [p for q in reversed(paddings) for p in (q, q)])
    kernel = w.shape[2:]
    for axis, (size, step, apart) in enumerate(zip(kernel, strides, dilations, strict=True), 2):
        windows = windows.unfold(axis, apart * (size - 1) + 1, step)[..., ::apart]
    places = len(strides)
    batch, made = x.shape[0], windows.shape[2 : 2 + places]
    order = (0, 1, 2, *range(3 + places, 3 + 2 * places), *range(3, 3 + places))
    # N, group, channel, *made, *kernel
    windows = torch.unflatten(windows, 1, (groups, w.shape[1]))
    rows = w.reshape(groups, w.shape[0] // groups, w[0].numel())
    most = max(1, ROOM * groups // max(1, windows.numel()))
    parts = [
        rows[g : g + most]
        @ windows[:, g : g + most].permute(order).reshape(batch, -1, rows.shape[-1], made.numel())
        for g in range(0, groups, most)
    ]
    image = torch.cat(parts, 1).reshape(batch, w.shape[0], *made)
    return image + b.reshape(-1, *(1 for _ in made))
