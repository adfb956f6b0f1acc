"""How kernels of rows, and pointwise ones, are cut on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from refold.codegen.body import Reduction, reductions
from refold.devices import DeviceModel
from refold.families.rows.one_pass import one_pass, with_squares
from refold.ir import Node, hint
from refold.plan.plan import Group
from refold.plan.rows import RowsSchedule
from refold.schedule import ScheduleChooser

# Columns of a row that a block holds in registers (row_partition.cuh, ResidentShapes): by Vec4, as
# many where threads read or keep more than a value of an element, and one by one.
HELD, HELD_CRAMPED, HELD_SINGLY = 32768, 8192, 4096
# Narrower rows are never taken by several blocks, nor are more of them (row_partition.cuh,
# kMultiBlockFrom).
SPLIT_FROM, SPLIT_ROWS = 65536, 2048


def schedule(group: Group, device: DeviceModel, choose: ScheduleChooser | None) -> Group:
    """The group with its schedule, where a GPU computes it."""
    if device.device.toolchain != "cuda":
        return group
    width = hint(group.width)
    passes = with_squares(reductions(group))
    held = HELD if is_roomy(group) and _blocks(group, passes) > 1 else HELD_CRAMPED
    if all(n.shape != group.dims for n in group.outputs):  # two passes alone would not pay
        held = min(held, HELD // 2)
    long = width > (HELD_SINGLY if width % 4 else held)
    narrow = isinstance(group.width, int) and group.width < SPLIT_FROM
    blocks = _blocks(group, one_pass(passes) if long else passes)
    splits = bool(passes) and not narrow
    return replace(group, rows_schedule=RowsSchedule(long, blocks, splits, is_roomy(group)))


def is_roomy(group: Group) -> bool:
    """Whether a thread of two blocks has room for twice as much of a row: if it reads one value of
    an element, not two."""
    width = group.width
    return sum(n.shape[-1] == width and any(d != 1 for d in n.shape[:-1]) for n in group.inputs) < 2


def _blocks(group: Group, passes: Sequence[Reduction]) -> int:
    """As many as registers suffice for: a thread of two blocks has 64, and its part of a row takes
    16."""
    wide = kept(group, passes, lambda n: n.shape[-1] == group.width) > 1
    return 1 if is_slow(group) or group.real == torch.float64 or wide else 2


def is_slow(group: Group) -> bool:
    """Whether some function has a slow way for some arguments, which takes registers."""
    return any(n.row.flops.slow_path for n in group.nodes)


def kept(group: Group, passes: Sequence[Reduction], is_element: Callable[[Node], bool]) -> int:
    """How many values of an element a thread keeps from one pass for later ones, at most."""
    stored = {n for n in group.outputs if n.shape == group.dims}
    needed = [_needed(group, [r.source], is_element) for r in passes]
    needed.append(_needed(group, stored, is_element))
    most = 0
    for k in range(1, len(needed)):
        before = {n for values in needed[:k] for n in values}
        later = {n for values in needed[k:] for n in values}
        read = {i for n in later - before for i in n.inputs}
        most = max(most, len(before & (read | stored)))
    return most


def _needed(group: Group, values: Iterable[Node], is_element: Callable[[Node], bool]) -> set[Node]:
    """What of an element `values` are computed from, themselves and operands among it."""
    inside = set(group.nodes)
    found: set[Node] = set()
    stack = list(values)
    while stack:
        n = stack.pop()
        if n not in found and is_element(n):
            found.add(n)
            stack += n.inputs if n in inside else ()
    return found
