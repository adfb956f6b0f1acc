"""Which convolutions our kernels compute, and what they compute of the result."""

from __future__ import annotations

from collections.abc import Callable

import torch

from refold.convolve import pools, takes
from refold.families.epilogue import epilogue
from refold.families.family import Claim
from refold.families.pooling.windows import is_pool, windows_of
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
    nodes = epilogue(node, view, _readable(node, node))
    pool = _pooled(nodes, node, view)
    if pool is not None:
        nodes += epilogue(pool, view, _readable(pool, node))
    return Claim(Draft("convolution", node.shape), tuple(nodes), "convolution")


def _readable(result: Node, conv: Node) -> Callable[[Node], bool]:
    """Whether a value is whole along the places of a result, or one number; the bias has another
    form."""
    places = len(conv["strides"])
    bias = conv.inputs[2]

    def fits(value: Node) -> bool:
        whole = value.shape[-places:] == result.shape[-places:]
        one = all(d == 1 for d in value.shape[-places:])
        return (whole or one) and (value is not bias or value.op == "scalar")

    return fits


def _pooled(nodes: list[Node], conv: Node, view: View) -> Node | None:
    """The pooling of the epilogue's result, if nothing else reads that, and the kernel has each
    window whole: in a tile's rows, one after the other."""
    inside = set(nodes)
    read = {n: [r for r in view.read_by(n) if r not in inside] for n in nodes}
    exits = [n for n in nodes if read[n] or n in view.roots]
    if len(exits) != 1 or exits[0] in view.roots or len(read[exits[0]]) != 1:
        return None
    (pool,) = read[exits[0]]
    choice = view.device.convolutions
    algorithm = None if choice is None else choice(of_node(conv))
    if algorithm is None or not is_pool(pool) or view.memory(pool) != torch.float32:
        return None
    laid = windows_of(pool)
    whole = all(w.size == w.step and not w.padding and w.apart == 1 for w in laid)
    whole = whole and all(w.made == w.given // w.size for w in laid)
    turned = any(map(turned_forth, view.read_by(pool)))
    if turned or not whole or not pools(of_node(conv), algorithm, tuple(w.size for w in laid)):
        return None
    return pool


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
