"""Which convolutions our kernels compute, and what they compute of the result."""

from __future__ import annotations

import torch

from refold.convolve import PATCHES, STRIPS, Algorithm, Convolution, takes
from refold.devices import DeviceModel
from refold.families.convolution.over_channels import (
    passes_over_channels,
    readable,
    reduces_channels,
)
from refold.families.epilogue import epilogue
from refold.families.family import Claim
from refold.families.pooling.windows import is_pool, windows_of
from refold.families.view import View
from refold.ir import Node
from refold.plan.convolution import is_statistic, of_node, unsupported
from refold.plan.draft import Draft
from refold.plan.layout import turned_forth
from refold.plan.memory import source
from refold.plan.plan import last_full


def claim(node: Node, view: View) -> Claim | None:
    """A convolution that one of our kernels is said to compute, and its epilogue."""
    if refusal(node, view) is not None:
        return None
    nodes = epilogue(node, view, readable(node, node))
    passes = _over_channels(nodes, node, view)
    if passes:
        return Claim(Draft("convolution", node.shape), (*nodes, *passes), "convolution")
    smaller = _made_smaller(nodes, node, view)
    if smaller is not None:
        nodes += epilogue(smaller, view, readable(smaller, node))
    elif takes_statistics(node, view.device):
        nodes += _statistics(nodes, node, view)
    return Claim(Draft("convolution", node.shape), tuple(nodes), "convolution")


def _made_smaller(nodes: list[Node], conv: Node, view: View) -> Node | None:
    """What makes less of the epilogue's result, if nothing else reads that: a pooling whose windows
    the kernel has whole, in a tile's rows, one after the other; or a reduction over all channels,
    which a tile has."""
    inside = set(nodes)
    read = {n: [r for r in view.read_by(n) if r not in inside] for n in nodes}
    exits = [n for n in nodes if read[n] or n in view.roots]
    if len(exits) != 1 or exits[0] in view.roots or len(read[exits[0]]) != 1:
        return None
    (reader,) = read[exits[0]]
    choice, c = view.device.convolutions, of_node(conv)
    algorithm = None if choice is None else choice(c)
    if algorithm is None or view.memory(reader) != torch.float32:
        return None
    if any(map(turned_forth, view.read_by(reader))):
        return None
    if is_pool(reader):
        return reader if _pools(c, algorithm, reader) else None
    return reader if reduces_channels(reader, conv) and _has_all(c, algorithm) else None


def _over_channels(nodes: list[Node], conv: Node, view: View) -> list[Node]:
    """The passes over a place's channels that follow on the epilogue's result, by patches whose
    tiles have all channels."""
    choice, c = view.device.convolutions, of_node(conv)
    algorithm = None if choice is None else choice(c)
    if algorithm is None or algorithm.schedule.kernels is not PATCHES:
        return []
    if c.groups != 1 or c.features > algorithm.schedule.sizes[0]:
        return []
    most = 2 if c.axes[-1].phases == 2 else 4  # words of a place that its warp has room for
    return passes_over_channels(last_full(nodes, conv.shape), conv, view, most)


# features of a tile of an ordinary convolution by patches, of which adding up was less than it
# spares: level 2's 23, of 24 features, 750 us to 717 on an H100; of 16 features 83 1906 and 1908,
# 27 4464 and 4466, 79 349 and 359
_LEAST_BESIDE = 32


def takes_statistics(conv: Node, device: DeviceModel) -> bool:
    """Whether the kernel of a convolution takes the mean and the variance of each of its channels:
    patches, and strips of one image's rows, whose lanes have values of the same features
    throughout."""
    if device.convolutions is None or unsupported(conv, _on_cpu(device)) is not None:
        return False
    c = of_node(conv)
    algorithm = device.convolutions(c)
    if algorithm is None:
        return False
    by_patches = algorithm.schedule.kernels is PATCHES
    if by_patches and not c.transposed and algorithm.schedule.sizes[0] < _LEAST_BESIDE:
        return False
    return by_patches or _alone(c, algorithm)


def _statistics(nodes: list[Node], conv: Node, view: View) -> list[Node]:
    """The means and variances of each channel of an image that are asked for of what is stored."""
    value = last_full(nodes, conv.shape)
    return [r for r in view.read_by(value) if is_statistic(r, conv)]


def _pools(c: Convolution, algorithm: Algorithm, pool: Node) -> bool:
    """Whether the kernel can pool its result: by windows next to each other, by strips of images,
    whose lanes have two or four places of a row next to each other."""
    if not _alone(c, algorithm) or len(c.sizes) != 2:
        return False
    laid = windows_of(pool)
    whole = all(w.size == w.step and not w.padding and w.apart == 1 for w in laid)
    whole = whole and all(w.made == w.given // w.size for w in laid)
    if not whole or len(laid) != 2 or max(c.strides) > 1:
        return False
    return laid[0].size <= 4 and laid[1].size in (2, 4)


def _has_all(c: Convolution, algorithm: Algorithm) -> bool:
    """Whether a tile of the kernel has all channels of a place."""
    return _alone(c, algorithm) and c.groups == 1 and c.features <= algorithm.schedule.sizes[0]


def _alone(c: Convolution, algorithm: Algorithm) -> bool:
    """Whether the kernel is strips whose tile has one image's places of one phase along a row."""
    strips = algorithm.schedule.kernels is STRIPS and algorithm.schedule.tile != "joined"
    return strips and not (c.transposed and c.strides[-1] > 1)


def grow(draft: Draft, node: Node, view: View) -> str | None:
    return None  # the epilogue is closed


def refusal(node: Node, view: View) -> str | None:
    """Why PyTorch's call computes a node; None where one of our kernels does."""
    on_cpu = _on_cpu(view.device)
    reason = unsupported(node, on_cpu)
    if reason is not None:
        return reason
    if any(view.memory(i) != torch.float32 or source(i) is not i for i in node.inputs):
        return "operands that are not float32 in memory"
    if any(turned_forth(r) for r in view.read_by(node)):
        return "images whose channels lie last"
    choice, c = view.device.convolutions, of_node(node)
    algorithm = None if choice is None else choice(c)
    if algorithm is None or not (on_cpu or takes(algorithm.schedule, c, algorithm.kind)):
        return "the library's call is taken to be faster"
    return None


def _on_cpu(device: DeviceModel) -> bool:
    return device.device.toolchain == "cpp"
