"""Calls of images so few that PyTorch's library computes their convolution in fp32: the original
takes them where the kernels compute in TF32."""

from __future__ import annotations

from math import prod

from refold.capture import Captured
from refold.conv_class import kind_of, least_places
from refold.emit.guards import Refusal, size_texts
from refold.ir import Node, Sym
from refold.ir.ops import CONVOLUTIONS
from refold.plan import ExternCall, Plan
from refold.plan.convolution import ConvolutionKernel, of_node


def class_refusals(captured: Captured, plan: Plan) -> list[Refusal]:
    """Tests of how many places the images have together (`least_sizes`)."""
    told = "so few images that PyTorch computes their convolution in fp32"
    return [(f"{t} < {least}", repr(told)) for t, least in least_sizes(captured, plan).items()]


def least_sizes(captured: Captured, plan: Plan) -> dict[str, int]:
    """From how many places of all images on the kernels are taken, by the text of their number: for
    convolutions that the plan computes in TF32 in another way than the model does, by kernels, or a
    transposed one as an ordinary one."""
    kernels = (g.kernel for g in plan.groups)
    ours = any(isinstance(k, ConvolutionKernel) and k.kind == "tf32" for k in kernels)
    called = [s.node.op for s in plan.steps if isinstance(s, ExternCall)]
    nodes = [n for n in captured.graph.nodes() if n.op in CONVOLUTIONS]
    changed = any(called.count(op) > sum(n.op == op for n in nodes) for op in CONVOLUTIONS)
    if not (ours or changed):
        return {}
    seen = size_texts(captured)
    found: dict[str, int] = {}
    for node in nodes:
        text = _places(node, seen)
        found[text] = max(found.get(text, 0), _least(node))
    return {text: least for text, least in found.items() if text and least}


def _least(node: Node) -> int:
    """From how many places on the library computes a convolution in TF32; 0 where it does so of
    any, or did not so of the example."""
    c = of_node(node)
    return least_places(c) if kind_of(c, "tf32") == "tf32" else 0


def _places(node: Node, seen: dict[str, str]) -> str:
    """The text of how many places the images have together; empty where no call changes it."""
    shape, axes = node.inputs[0].shape, len(node["strides"])
    places = prod(shape[-axes:], start=shape[-axes - 2])
    return places.text(seen) if isinstance(places, Sym) else ""
