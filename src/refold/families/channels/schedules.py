"""How kernels of channels are cut on a GPU."""

from __future__ import annotations

from dataclasses import replace

import torch

from refold.devices import DeviceModel
from refold.families.channels.kernel import FORM
from refold.families.rows.one_pass import one_pass
from refold.families.rows.schedules import is_slow, kept
from refold.ir import Node
from refold.plan.plan import Group
from refold.plan.rows import ChannelsSchedule
from refold.plan.space import channels_of
from refold.schedule import ScheduleChooser

_MOST_HELD = 512  # channels
_MOST_RESULTS = 2  # of each


def schedule(group: Group, device: DeviceModel, choose: ScheduleChooser | None) -> Group:
    """The group with its schedule, where a GPU computes it."""
    if device.device.toolchain != "cuda":
        return group
    return replace(group, rows_schedule=ChannelsSchedule(_is_held(group)))


def _is_held(group: Group) -> bool:
    """Whether registers can hold all channels, and they would be read again otherwise: a logsumexp
    alone takes one pass (file 92 of KernelBench's level 2 took 300 us so, and 2150 held)."""
    axis = channels_of(group)
    assert axis is not None
    count = group.dims[axis]
    if not isinstance(count, int) or count > _MOST_HELD or group.real != torch.float32:
        return False
    stored = [n for n in group.outputs if n.shape == group.dims]
    passes = FORM.reductions(group)
    if is_slow(group) or len(stored) > _MOST_RESULTS or len(one_pass(passes)) + bool(stored) < 2:
        return False

    def is_element(n: Node) -> bool:
        return n.shape[axis] != 1

    return kept(group, passes, is_element) <= 1
