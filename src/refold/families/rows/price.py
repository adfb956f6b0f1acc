"""What kernels of rows take: the search's charge for a reduction, and the price of a kernel."""

from __future__ import annotations

from refold.codegen.body import reductions
from refold.devices import DeviceModel
from refold.families.prices import computed, moved, of_one_pass
from refold.families.rows.one_pass import one_pass, with_squares
from refold.families.rows.schedules import SPLIT_FROM, SPLIT_ROWS
from refold.ir import OPS, Kind, Node, hint
from refold.plan.plan import Group
from refold.plan.rows import RowsSchedule
from refold.price import Charge, Parametric, Price, fused_seconds


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """A reduction along rows is made in the kernel that makes the rows."""
    if OPS[node.op].kind is not Kind.REDUCE or not _along_rows(node):
        return None
    return Charge(fused_seconds(node, device))


def _along_rows(node: Node) -> bool:
    x = node.inputs[0]
    wide = [a for a in node["axes"] if x.shape[a] != 1]
    return not wide or wide == [-1]


def price(group: Group, device: DeviceModel) -> Price:
    """Of passes over rows that are read from memory once. Of few rows that are too long for a
    block, each pass is a kernel and reads them again."""
    once = of_one_pass(group, device)
    cut, rows, width = group.rows_schedule, hint(group.rows), hint(group.width)
    if (
        not isinstance(cut, RowsSchedule)
        or not cut.may_split
        or rows > SPLIT_ROWS
        or width < SPLIT_FROM
    ):
        return once
    statistics = with_squares(reductions(group))
    stores = any(n.shape == group.dims for n in group.outputs)
    passes = max(1, len(one_pass(statistics) if cut.one_pass else statistics) + stores)
    return Price.of(
        device,
        moved=passes * moved(group),
        beside=computed(group, device),
        kernels=passes,
    )
