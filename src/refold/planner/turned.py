"""Convolutions that PyTorch's library computes with the channels of its images last.

On a GPU cuDNN computes so whatever it is given: it converts images that lie channels first, and its
result back, in passes of their own. Where kernels that compute what follows on each element read
the result as cuDNN leaves it, and store channels first, the second pass, over what is often much
larger, is none. The images are laid out by a call of PyTorch's, which is slower than cuDNN's own
pass. docs/decisions/0028 has what was measured.
"""

from __future__ import annotations

from dataclasses import replace

from refold.devices import DeviceModel
from refold.families import BY_NAME
from refold.ir import Node
from refold.plan import ExternCall, Group, Plan
from refold.plan.plan import reads
from refold.planner.buffers import placed
from refold.planner.conversions import is_converted
from refold.planner.plan_price import plan_price

# of what a convolution and its readers take, what must be gained by the facts, which are few
_GAIN = 0.1


def with_turned(plan: Plan, device: DeviceModel) -> Plan:
    """The plan, with those of its convolutions computed so where that is ahead by far."""
    for step in plan.steps:
        if not isinstance(step, ExternCall) or not is_converted(step.node, plan, device):
            continue
        found = _turned(step.node, plan)
        if found is not None:
            before, after = plan_price(plan, device), plan_price(found, device)
            least = _GAIN * sum(
                price.seconds
                for s, price in zip(plan.steps, before.steps, strict=True)
                if s is step or (isinstance(s, Group) and step.node in s.inputs)
            )
            plan = found if after.seconds + least < before.seconds else plan
    return plan


def _turned(node: Node, plan: Plan) -> Plan | None:
    """The plan in which all that reads a convolution's result reads it with its channels last."""
    called = (s.node for s in plan.steps if isinstance(s, ExternCall))
    if node in plan.graph.roots() or any(node in (*reads(n), *n.inputs) for n in called):
        return None
    changed: dict[str, Group] = {}
    for group in plan.groups:
        if node in group.inputs:
            turned = (*group.turned, node)
            if not set(turned) <= set(BY_NAME[group.family].turns(group)):
                return None
            changed[group.name] = replace(group, turned=turned)
    if not changed:
        return None
    steps = tuple(changed.get(s.name, s) if isinstance(s, Group) else s for s in plan.steps)
    return placed(replace(plan, steps=steps))
