"""What kernels of attention compute: attention of float32 from memory, and what training
computes of it: logarithms of sums, and gradients."""

from __future__ import annotations

import torch

from refold.devices import DeviceModel
from refold.families.attention.price import pays
from refold.families.family import Claim
from refold.families.view import View
from refold.ir import Node
from refold.ir.attention import is_gradient, operands, takes
from refold.ir.ops import ATTENTIONS
from refold.plan.draft import Draft
from refold.plan.plan import is_rematerialized


def is_taken(node: Node, device: DeviceModel) -> bool:
    """Attention of heads that a kernel holds, where four warps feed tensor cores together, of
    values that lie in memory."""
    if node.op not in ATTENTIONS or "wgmma" not in device.device.features:
        return False
    q, *_ = operands(node)
    *_, queries, _, features = q.shape
    if not takes(queries, features) or not pays(node, device):
        return False
    return not any(i.op == "scalar" or is_rematerialized(i) for i in node.inputs)


def claim(node: Node, view: View) -> Claim | None:
    """Attention of float32, beside what is computed of the same operands."""
    if not is_taken(node, view.device):
        return None
    if any(view.memory(i) != torch.float32 for i in node.inputs):
        return None
    waits = view.cyclic(node)
    for draft in view.drafts:
        others = draft.nodes
        if draft.family != "attention" or any(n.op == node.op for n in others):
            continue
        if all(_call_of(n) == _call_of(node) for n in others) and not waits(draft):
            return Claim(draft, (node,), "attention")
    return Claim(Draft("attention", node.shape), (node,), "attention")


def _call_of(node: Node) -> object:
    """What a node is one result of: equal for those that a kernel computes together."""
    attrs = node["scale"], node.get("causal")
    if is_gradient(node):
        return node.op.removesuffix("_gradient").rpartition("_")[0], node.inputs, attrs
    q, k, _, masks = operands(node)
    return node.op.removesuffix("_sums"), (q, k, *masks), attrs


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """Nothing that reads its results joins it."""
    return None
