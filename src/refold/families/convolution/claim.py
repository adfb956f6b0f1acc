"""Which convolutions our kernels compute, and what they compute of the result."""

from __future__ import annotations

import torch

from refold.convolve import takes
from refold.families.epilogue import epilogue
from refold.families.family import Claim
from refold.families.view import View
from refold.ir import Node
from refold.plan.convolution import of_node, unsupported
from refold.plan.draft import Draft
from refold.plan.layout import turned_forth
from refold.plan.memory import source


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
    on_cpu = view.device.device.toolchain == "cpp"
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
