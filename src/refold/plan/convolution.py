"""Convolutions: which of them a kernel of our own could compute, and how one does on a GPU.

families/convolution chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from refold.convolve import KERNELS, Convolution, candidates
from refold.ir import Dim, Node, Sym, hint
from refold.ir.ops import CONVOLUTIONS
from refold.plan.product import Pack
from refold.schedule import Schedule

CONVOLUTION = "pack_convolution_"  # the form of packed kernels, followed by the kind, and:
TURNED = "_transposed"  # of a transposed one, whose weight lies [channels, features, taps]
_MOST = 2**31  # elements of a channel
_EVERY = frozenset().union(*(k.requires for k in KERNELS))


@dataclass(frozen=True)
class ConvolutionKernel:
    """kind: the accuracy of its products, "ieee" or "tf32". schedule: how it is cut. packs: what it
    reads packed: the weight. at_once: channels of a patch in shared memory, where it is by patches.
    by_sectors: rows of strips are stored by whole sectors of memory, where shared memory has room.
    What products have besides, it has not."""

    kind: str
    schedule: Schedule
    packs: tuple[Pack, ...]
    at_once: int = 0
    by_sectors: bool = False
    itself: None = None
    quantized_from: None = None
    on_tensor_cores: bool = True

    def __str__(self) -> str:
        high, wide = self.schedule.sizes
        name = self.schedule.kernels.name
        return f"{self.kind}: {name} tiles of {high} features x {wide} places"


def unsupported(node: Node, on_cpu: bool = False) -> str | None:
    """Why no kernel of ours computes a node, whatever is faster; None where one does. on_cpu: by
    those for the CPU, which compute any number of features."""
    if node.op not in CONVOLUTIONS:
        return "no convolution of images as they are"
    if node.dtype != torch.float32:
        return "another dtype than float32"
    if isinstance(node.inputs[2].get("value"), Sym):
        return "a bias that is a size"
    if on_cpu:
        return None
    c = of_node(node)
    if prod(c.sizes) >= _MOST or prod(c.made) >= _MOST:
        return "channels of 2^31 elements or more"
    if not candidates(c, "ieee", _EVERY):
        return "few features or few products of each group, or a patch that is too large"
    return None


def of_node(node: Node) -> Convolution:
    """The sizes of a convolution, as the model was captured."""
    x, w, _ = node.inputs
    places = len(node["strides"])

    def last(value: Node) -> tuple[int, ...]:
        sizes: tuple[Dim, ...] = value.shape[-places:]
        return tuple(map(hint, sizes))

    batch, channels = map(hint, x.shape[-places - 2 : -places])
    return Convolution(
        batch,
        channels,
        hint(node.shape[-places - 1]),
        node["groups"],
        last(x),
        last(node),
        last(w),
        node["strides"],
        node["paddings"],
        node["dilations"],
        node.get("output_padding"),
    )


def is_statistic(node: Node, conv: Node) -> bool:
    """Is it the mean or the variance of each channel of an image?"""
    places = tuple(range(-len(conv["strides"]), 0))
    return node.op in ("mean", "var") and node["axes"] == places and not node.get("correction")
