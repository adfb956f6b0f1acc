"""The schedules of a plan's kernels: by rule, or as timing says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refold.convolve import Convolution
from refold.devices import DeviceModel
from refold.families import BY_NAME
from refold.families.family import Sizes
from refold.plan.convolution import of_node, unsupported
from refold.plan.plan import ExternCall, Group, Plan, Step
from refold.planner.buffers import placed
from refold.schedule import ScheduleChooser


def with_schedules(
    steps: tuple[Step, ...], device: DeviceModel, choose: ScheduleChooser | None = None
) -> tuple[Step, ...]:
    """The steps, each kernel with its schedules.

    choose: how a product of some sizes and kind is cut; by rule where nothing is given.
    """
    return tuple(
        BY_NAME[s.family].schedule(s, device, choose) if isinstance(s, Group) else s for s in steps
    )


def tuned(plan: Plan, device: DeviceModel, choose: ScheduleChooser) -> Plan:
    """The plan with its products cut anew."""
    return placed(replace(plan, steps=with_schedules(plan.steps, device, choose)))


def to_tune(plan: Plan) -> Iterator[tuple[str, Sizes]]:
    """Kind and sizes of each product that timing may cut better than the rule does."""
    for group in plan.groups:
        found = BY_NAME[group.family].to_tune(group)
        if found is not None:
            yield found


def convolutions_of(plan: Plan, on_cpu: bool = False) -> Iterator[Convolution]:
    """The sizes of each convolution that is PyTorch's or could be, and that a kernel of our own
    could compute."""
    for step in plan.steps:
        node = (
            step.node if isinstance(step, ExternCall) else step.product if step.is_product else None
        )
        if node is not None and unsupported(node, on_cpu) is None:
            yield of_node(node)
