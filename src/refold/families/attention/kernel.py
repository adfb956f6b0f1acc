"""The text of kernels of attention (cuda/attention.cuh): their functor has constants alone."""

from __future__ import annotations

from refold.codegen.kernel import Form, GroupKernel
from refold.ir import Dim, Node, numel
from refold.ir.literals import cpp_literal

_PANEL = 64  # features that a row of shared memory holds


def attention_of(kernel: GroupKernel) -> Node:
    """The one node that the kernel computes."""
    (node,) = kernel.group.nodes
    return node


def masked(node: Node) -> bool:
    """Whether a mask is added to the scores."""
    return len(node.inputs) > 3


def functor(kernel: GroupKernel) -> list[str]:
    node = attention_of(kernel)
    lines = []
    for name, holds in (("kMasked", masked(node)), ("kCausal", node.get("causal"))):
        lines += [f"static constexpr bool {name} = true;"] if holds else []
    features = node.shape[-1]
    assert isinstance(features, int)  # as `claim` has it
    if features > _PANEL:
        lines.append("static constexpr int kPanels = 2;")
    if node.op == "softmax_filled_attention":
        lines.append("static constexpr bool kFilled = true;")
    if node.op.startswith("softmax_"):
        lines.append("static RF_FN float unseen() { return __int_as_float(0x7fffffff); }")
    lines.append(f"static constexpr float kScale = {cpp_literal(node['scale'])};")
    (out,) = kernel.group.outputs
    return lines + kernel.function("float* destination()", [f"return {kernel.member(out)};"])


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    node = attention_of(kernel)
    *_, batches, queries, heads, features = node.shape
    found = [
        ("batches", batches),
        ("queries", queries),
        ("keys", node.inputs[1].shape[-3]),
        ("heads", heads),
        ("width", features),
    ]
    return found + _distances(node)


def _distances(node: Node) -> list[tuple[str, Dim]]:
    """From an element of the mask to that of the next batch, head and query; zero where these have
    one."""
    names = ("mask_batch", "mask_head", "mask_query")
    if not masked(node):
        return [(name, 0) for name in names]
    shape = node.inputs[3].shape
    steps = (0 if shape[a] == 1 else numel(shape[a + 1 :]) for a in (-4, -3, -2))
    return list(zip(names, steps, strict=True))


FORM = Form(functor, sizes, "AttentionBody")
