"""Whether kernels of convolutions are worth it among convolutions of PyTorch's library.

On a GPU the library's convolutions hand images on with their channels last (planner/turned.py). A
kernel that reads and writes them channels first cuts such a chain, so that others convert them. One
by one long row of places need not, but where what follows in it wants them channels first.
"""

from __future__ import annotations

from dataclasses import replace

from refold import flat
from refold.devices import DeviceModel
from refold.plan import ExternCall, Group, Plan
from refold.plan.convolution import ConvolutionKernel
from refold.planner.conversions import lies_last
from refold.planner.plan_price import plan_price

# by how much less time a plan that cuts chains has to take at least, by prices that know little of
# how the library computes: on an H100 resnet18 took 2138 us with kernels that cut them and 1950
# without, resnet50 6310 and 5593; by the prices 0.17 and 0.02 less with them
_GAIN = 0.25


def beside_kernels(plan: Plan, device: DeviceModel) -> bool:
    """Are there convolutions of the library beside kernels that there could be a call for?"""
    called = (s.node for s in plan.steps if isinstance(s, ExternCall))
    return bool(_by_kernels(plan)) and any(lies_last(n, plan, device) for n in called)


def _by_kernels(plan: Plan) -> list[Group]:
    """Convolutions by one long row of places."""
    kernels = ((g, g.kernel) for g in plan.groups)
    return [
        g
        for g, k in kernels
        if isinstance(k, ConvolutionKernel) and k.schedule.kernels is flat.FLAT
    ]


def _converted(plan: Plan, device: DeviceModel) -> int:
    """Convolutions of the library whose image or result lies with its channels first."""
    called = (s.node for s in plan.steps if isinstance(s, ExternCall))
    turned = plan.buffers.turned
    return sum(not {n, n.inputs[0]} <= turned.keys() for n in called if lies_last(n, plan, device))


def without_kernels(device: DeviceModel) -> DeviceModel:
    """The device, whose library computes what would cut a chain."""
    choice = device.convolutions
    return device if choice is None else replace(device, convolutions=flat.left_out(choice))


def better(plan: Plan, without: Plan, device: DeviceModel) -> Plan:
    """The plan, if it is faster than the one without its kernels; by far where one cuts a chain."""
    cuts = _converted(plan, device) > _converted(without, device)
    least = (1 - _GAIN * cuts) * plan_price(without, device).seconds
    return plan if plan_price(plan, device).seconds < least else without
