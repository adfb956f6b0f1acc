"""Which convolutions our kernels compute, and what they compute of the result."""

from __future__ import annotations

from math import prod

import torch

from refold.convolve import LEAST_DEPTH, LEAST_FEATURES, Convolution
from refold.families.epilogue import epilogue
from refold.families.family import Claim
from refold.families.view import View
from refold.ir import Dim, Node, Sym, hint
from refold.plan.draft import Draft
from refold.plan.layout import turned_forth
from refold.plan.memory import source

_MOST = 2**31  # elements of a channel


def claim(node: Node, view: View) -> Claim | None:
    """A convolution that one of our kernels is said to compute, and its epilogue."""
    if refusal(node, view) is not None:
        return None
    places = len(node["strides"])
    bias = node.inputs[2]

    def fits(value: Node) -> bool:
        """Whether it is whole along the places, or one number; the bias has another form."""
        whole = value.shape[-places:] == node.shape[-places:]
        one = all(d == 1 for d in value.shape[-places:])
        return (whole or one) and (value is not bias or value.op == "scalar")

    return Claim(Draft("convolution", node.shape), tuple(epilogue(node, view, fits)), "convolution")


def grow(draft: Draft, node: Node, view: View) -> str | None:
    return None  # the epilogue is closed


def refusal(node: Node, view: View) -> str | None:
    """Why PyTorch's call computes a node; None where one of our kernels does."""
    reason = unfit(node)
    if reason is not None:
        return reason
    if any(view.memory(i) != torch.float32 or source(i) is not i for i in node.inputs):
        return "operands that are not float32 in memory"
    if any(turned_forth(r) for r in view.read_by(node)):
        return "images whose channels lie last"
    choice = view.device.convolutions
    if choice is None or choice(of_node(node)) is None:
        return "the library's call is taken to be faster"
    return None


def unfit(node: Node) -> str | None:
    """Why no kernel of ours computes a node, whatever is faster; None where one does."""
    if node.op != "conv":
        return "no convolution of images as they are"
    c = of_node(node)
    if c.features // c.groups < LEAST_FEATURES or c.depth < LEAST_DEPTH:
        return "few features or few products of each group"
    if prod(c.sizes) >= _MOST or prod(c.made) >= _MOST:
        return "channels of 2^31 elements or more"
    if isinstance(node.inputs[2].get("value"), Sym):
        return "a bias that is a size"
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
    )
