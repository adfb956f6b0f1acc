"""How a convolution is cut on a GPU; on a CPU its sizes decide."""

from __future__ import annotations

from dataclasses import replace

import torch

from refold.convolve import (
    IMPLICIT,
    PATCHES,
    STRIPS,
    Algorithm,
    Convolution,
    candidates,
    every_schedule,
    takes,
)
from refold.devices import DeviceModel
from refold.families.convolution.kernel import is_long
from refold.families.pooling.windows import is_pool
from refold.flat import FLAT
from refold.plan.convolution import CONVOLUTION, TURNED, ConvolutionKernel, is_statistic, of_node
from refold.plan.plan import Group
from refold.schedule import Schedule, ScheduleChooser


def of_device(device: DeviceModel) -> list[Schedule]:
    """All that the device has."""
    return every_schedule(device.device.features) if device.device.toolchain == "cuda" else []


def schedule(group: Group, device: DeviceModel, choose: ScheduleChooser | None) -> Group:
    """The convolution with its kernel, as the device's choice has it, or as it is cut."""
    if device.device.toolchain == "cpp":
        return group
    c = of_node(group.product)
    algorithm = device.convolutions(c) if device.convolutions is not None else None
    if algorithm is None:
        raise ValueError(f"{group.name}: expected a device whose convolutions are our kernels'")
    chosen, kind = algorithm.schedule, _kind(group, c, algorithm)
    smaller = group.reductions or any(map(is_pool, group.nodes))
    if choose is not None and not smaller:
        given = choose(c.features, c.pixels, c.depth, kind)
        known = candidates(c, kind, device.device.features)
        chosen = given if given in (w.schedule for w in known) else chosen
    packed = chosen.kernels in (IMPLICIT, STRIPS)
    form = CONVOLUTION + kind + (TURNED if c.transposed else "")
    packs = ((group.sides[1], form),) if packed else ()
    at_once = c.at_once(chosen, kind) if chosen.kernels in (PATCHES, FLAT) else 0
    by_sectors = (
        chosen.kernels is STRIPS
        and chosen.tile in ("broad", "slim")
        and not (smaller or group.last or is_long(group))
        and [group.stored(n) for n in group.outputs] == [torch.float32]
        and c.has_split_sectors
    )
    return replace(group, kernel=ConvolutionKernel(kind, chosen, packs, at_once, by_sectors))


def _kind(group: Group, c: Convolution, algorithm: Algorithm) -> str:
    """The class of accuracy. fp32 of what is stored as a variance alone: what it normalises is
    computed in another way, whose roundings are others and do not cancel with those of a mean in
    TF32 (file 72 of KernelBench's level 2, error 1.3e-3, eager's 4.3e-4; so 9e-7)."""
    conv = group.product
    alone = all(is_statistic(n, conv) for n in group.outputs)
    if alone and any(n.op == "var" for n in group.outputs) and takes(algorithm.schedule, c, "ieee"):
        return "ieee"
    return algorithm.kind
