"""How a convolution is cut on a GPU."""

from __future__ import annotations

from dataclasses import replace

from refold.convolve import candidates, ways
from refold.devices import DeviceModel
from refold.plan.convolution import CONVOLUTION, ConvolutionKernel, of_node
from refold.plan.plan import Group
from refold.schedule import Cut, Schedule


def of_device(device: DeviceModel) -> list[Schedule]:
    """All that the device has."""
    return ways(device.device.features) if device.device.toolchain == "cuda" else []


def schedule(group: Group, device: DeviceModel, cut: Cut | None) -> Group:
    """The convolution with its kernel, as the device's choice has it, or as it is cut."""
    c = of_node(group.product)
    way = device.convolutions(c) if device.convolutions is not None else None
    if way is None:
        raise ValueError(f"{group.name}: expected a device whose convolutions are our kernels'")
    chosen = way.schedule
    if cut is not None:
        given = cut(c.features, c.pixels, c.depth, way.kind)
        known = candidates(c, way.kind, device.device.features)
        chosen = given if given in (w.schedule for w in known) else chosen
    packs = ((group.sides[1], CONVOLUTION + way.kind),)
    return replace(group, kernel=ConvolutionKernel(way.kind, chosen, packs))
