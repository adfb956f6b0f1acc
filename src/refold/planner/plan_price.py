"""Prices of plans, of what families say of their kernels and `planner/calls.py` of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refold.devices import DeviceModel
from refold.families import BY_NAME
from refold.plan import Plan
from refold.plan.buffers import Fresh, Written
from refold.plan.plan import Group
from refold.plan.product import TRANSPOSED, Pack
from refold.planner.calls import CALLS_PER_FOLD, CallPrices, fold_seconds
from refold.price import PlanPrice, Price, elements, size_bytes

PACKED_BYTES = 4  # of an element: two halves of 16 bits, whatever its dtype was


def plan_price(plan: Plan, device: DeviceModel) -> PlanPrice:
    """What a plan takes on a device: each kernel by its family, each call of PyTorch, and what is
    folded, packed and copied beside them."""
    calls = CallPrices(plan, device)
    steps: list[Price] = []
    for step in plan.steps:
        if isinstance(step, Group):
            got = sum(isinstance(plan.buffers.places.get(o), Fresh) for o in step.outputs)
            memory = Price(got * device.memory)
            steps.append(BY_NAME[step.family].price(step, device).then(memory))
        elif step.node in plan.buffers.places:
            steps.append(calls.price(step))
        else:
            steps.append(Price(0.0))  # a kernel, or an addition in the end, does its work
    return PlanPrice(tuple(steps), tuple(_beside(plan, device, calls)))


def _beside(plan: Plan, device: DeviceModel, calls: CallPrices) -> Iterator[tuple[str, Price]]:
    buffers = plan.buffers
    for fold in plan.folds:
        yield f"folding {fold.name}", Price(fold_seconds(fold.node, device))
    for pack in buffers.prepared.packs:
        moved, held = _packed(pack)
        share = moved / device.bandwidth / CALLS_PER_FOLD
        yield "packing a parameter", Price(share + device.hold * held)
    seen = set(buffers.prepared.packs)
    for group in plan.groups:
        given = buffers.given.get(group.name, ())
        for pack in given:
            if pack not in seen:
                seen.add(pack)
                yield "packing a value", _packing(pack, device)
        kernel = group.kernel
        if kernel is None or kernel.itself is None or kernel.itself in given:
            continue
        if not kernel.schedule.rs:
            inside = _packing(kernel.itself, device)
            yield f"packing by {group.name}", replace(inside, launches=0)
    for node in plan.graph.nodes():
        if node in buffers.copied:
            yield "copying a buffer", calls.copied(node)
    for out, handed in zip(plan.outputs, buffers.handed, strict=True):
        if handed.written is Written.BY_KERNEL:
            continue
        if handed.written is not None or handed.cloned or not calls.lies_as_wanted(out):
            yield "handing over a result", calls.copied(out.value)


def _packed(pack: Pack) -> tuple[float, float]:
    """Bytes moved to pack a value, and that its packed form takes."""
    node, _ = pack
    held = PACKED_BYTES * elements(node)
    return size_bytes(node) + held, held


def _packing(pack: Pack, device: DeviceModel) -> Price:
    # the largest of each column first, unless a cluster of blocks holds all of it
    apart = pack[1] == TRANSPOSED and "clusters" not in device.device.features
    kernels = 2 if apart else 1
    return Price.of(device, moved=_packed(pack)[0], kernels=kernels)
