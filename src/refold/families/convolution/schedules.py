"""How a convolution is cut on a GPU; on a CPU its sizes decide."""

from __future__ import annotations

from dataclasses import replace

from refold.convolve import IMPLICIT, PATCHES, STRIPS, candidates, every_schedule
from refold.devices import DeviceModel
from refold.families.pooling.windows import is_pool
from refold.plan.convolution import CONVOLUTION, TURNED, ConvolutionKernel, of_node
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
    chosen = algorithm.schedule
    smaller = group.reductions or any(map(is_pool, group.nodes))
    if choose is not None and not smaller:
        given = choose(c.features, c.pixels, c.depth, algorithm.kind)
        known = candidates(c, algorithm.kind, device.device.features)
        chosen = given if given in (w.schedule for w in known) else chosen
    packed = chosen.kernels in (IMPLICIT, STRIPS)
    form = CONVOLUTION + algorithm.kind + (TURNED if c.transposed else "")
    packs = ((group.sides[1], form),) if packed else ()
    at_once = c.at_once(chosen) if chosen.kernels is PATCHES else 0
    return replace(group, kernel=ConvolutionKernel(algorithm.kind, chosen, packs, at_once))
