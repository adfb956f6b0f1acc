"""The text of kernels of attention (cuda/attention.cuh): their functor has constants alone."""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.kernel import Form, GroupKernel
from refold.ir import Dim, Node, numel
from refold.ir.attention import is_gradient, operands
from refold.ir.literals import cpp_literal
from refold.plan import Group

_PANEL = 64  # features that a row of shared memory holds
_DESTINATIONS = {
    "query_gradient": "of_queries",
    "key_gradient": "of_keys",
    "value_gradient": "of_values",
    "sums": "sums",
}

_GRADIENTS = {
    "query_gradient": "kQueryGradient",
    "key_gradient": "kKeyGradient",
    "value_gradient": "kValueGradient",
}


def of_gradient(group: Group) -> bool:
    """Whether it computes gradients."""
    return is_gradient(group.nodes[0])


def given(group: Group) -> list[Node | None]:
    """The operands that the kernel takes, in its order; None for what there is not."""
    node = min(group.nodes, key=lambda n: n.op.endswith("_sums"))  # of sums alone no values
    q, k, v, masks = operands(node)
    mask = masks[0] if masks else None
    if not of_gradient(group):
        return [q, k, v, mask]
    gradient, *_, result, sums = node.inputs[:6]
    return [gradient, q, k, v, result, sums, mask]


def functor(kernel: GroupKernel) -> list[str]:
    node, *_ = kernel.group.nodes
    q, _, _, masks = operands(node)
    lines = []
    for name, holds in (("kMasked", masks), ("kCausal", node.get("causal"))):
        lines += [f"static constexpr bool {name} = true;"] if holds else []
    features = q.shape[-1]
    assert isinstance(features, int)  # as `claim` has it
    if features > _PANEL:
        lines.append("static constexpr int kPanels = 2;")
    if node.op == "softmax_filled_attention":
        lines.append("static constexpr bool kFilled = true;")
    if node.op.startswith("softmax_"):
        lines.append("static RF_FN float unseen() { return __int_as_float(0x7fffffff); }")
    lines.append(f"static constexpr float kScale = {cpp_literal(node['scale'])};")
    for out in kernel.group.outputs:
        lines += _destination(kernel, out)
    made = [o.op for o in kernel.group.outputs]
    found = [c for end, c in _GRADIENTS.items() if any(op.endswith(end) for op in made)]
    if found:
        lines.append(f"static constexpr int kGradients = {' | '.join(found)};")
    return lines


def _destination(kernel: GroupKernel, out: Node) -> list[str]:
    name = next((n for end, n in _DESTINATIONS.items() if out.op.endswith(end)), "destination")
    lines = kernel.function(f"float* {name}()", [f"return {kernel.member(out)};"])
    if name == "sums":
        lines.append(f"static constexpr long kPlaces = {out['multiple']};")
    return lines


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    node, *_ = kernel.group.nodes
    q, k, _, masks = operands(node)
    *_, batches, queries, heads, features = q.shape
    found = [
        ("batches", batches),
        ("queries", queries),
        ("keys", k.shape[-3]),
        ("heads", heads),
        ("width", features),
    ]
    kept = [("places", node.inputs[5].shape[-1])] if of_gradient(kernel.group) else []
    return found + _distances(masks) + kept


def _distances(masks: Sequence[Node]) -> list[tuple[str, Dim]]:
    """From an element of the mask to that of the next batch, head and query; zero where these have
    one."""
    names = ("mask_batch", "mask_head", "mask_query")
    if not masks:
        return [(name, 0) for name in names]
    shape = masks[0].shape
    steps = (0 if shape[a] == 1 else numel(shape[a + 1 :]) for a in (-4, -3, -2))
    return list(zip(names, steps, strict=True))


FORM = Form(functor, sizes, "AttentionBody")
GRADIENT_FORM = Form(functor, sizes, "AttentionGradientBody")
