"""What kernels of attention compute: attention of float32 from memory, and nothing beside it."""

from __future__ import annotations

import torch

from refold.devices import DeviceModel
from refold.families.attention.price import pays
from refold.families.family import Claim
from refold.families.view import View
from refold.ir import Node
from refold.ir.attention import takes
from refold.ir.ops import ATTENTIONS
from refold.plan.draft import Draft
from refold.plan.plan import is_rematerialized


def is_taken(node: Node, device: DeviceModel) -> bool:
    """Attention of heads that a kernel holds, where four warps feed tensor cores together, of
    values that lie in memory."""
    if node.op not in ATTENTIONS or "wgmma" not in device.device.features:
        return False
    *_, queries, _, features = node.shape
    if not takes(queries, features) or not pays(node, device):
        return False
    return not any(i.op == "scalar" or is_rematerialized(i) for i in node.inputs)


def claim(node: Node, view: View) -> Claim | None:
    """Attention of float32."""
    if not is_taken(node, view.device):
        return None
    if any(view.memory(i) != torch.float32 for i in node.inputs):
        return None
    return Claim(Draft("attention", node.shape), (node,), "attention")


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """Nothing joins it."""
    return None
