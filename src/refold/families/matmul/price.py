"""What products take: the search's charge for one, and the price of a kernel."""

from __future__ import annotations

from refold.devices import DeviceModel
from refold.families.prices import computed, moved
from refold.ir import Kind, Node, hint
from refold.ir.graph import is_parametric
from refold.plan.plan import Group
from refold.plan.product import ProductKernel
from refold.price import (
    Charge,
    Parametric,
    Price,
    elements,
    is_folded,
    product_charge,
    product_flops,
    product_seconds,
)
from refold.schedule import PROCESSORS, SKINNY_ROWS, TILE_COSTS, plain_seconds, tile_units

# Parts of a row from which on a kernel of its own merges them, and the columns of a part
# (cuda/operand.cuh, rows_apart).
_ROW_PARTS, _PART = 32, 128


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """Of a product with one weight; what follows it is charged for by itself."""
    if node.op != "linear" or any(d != 1 for d in node.inputs[1].shape[:-2]):
        return None
    return Charge(product_charge(node, device, parametric))


def price(group: Group, device: DeviceModel) -> Price:
    """Of a product and what is computed of its values. A GPU finishes reductions of columns, and
    of rows in many parts, by kernels of their own."""
    return Price.of(
        device,
        busy=_busy(group, device),
        moved=moved(group) + _packed(group),
        beside=computed(group, device),
        kernels=1 if group.kernel is None else 1 + _finishing(group),
    )


def _packed(group: Group) -> float:
    """Bytes moved at each call to pack the weight into whole panels, on the CPU."""
    if group.kernel is not None:
        return 0.0
    w = group.sides[1]
    return 3 * elements(w) * group.stored(w).itemsize


def _busy(group: Group, device: DeviceModel) -> float:
    node, kernel = group.product, group.kernel
    if not isinstance(kernel, ProductKernel):
        return product_seconds(node, device, is_folded(node.inputs[1], is_parametric))
    sizes = hint(group.rows), hint(group.width), hint(node.inputs[0].shape[-1])
    few_rows = sizes[0] <= SKINNY_ROWS
    if kernel.schedule.plain or (kernel.sometimes_plain and few_rows):
        if few_rows or sizes[1] <= SKINNY_ROWS:
            return product_flops(node) / 2 / device.plain_flops
        return plain_seconds(*sizes)
    return _seconds_of_tiles(kernel, sizes, hint(group.batches), device)


def _seconds_of_tiles(
    kernel: ProductKernel, sizes: tuple[int, int, int], batches: int, device: DeviceModel
) -> float:
    """With processors that idle: the last tiles of many, or all where there are few."""
    rows, cols, depth = sizes
    units = tile_units(
        kernel.schedule, rows, cols, depth * kernel.parts, TILE_COSTS[kernel.kind], batches
    )
    # of a unit, the products of a tile of 256 x 128 on each processor, at the device's full rate
    unit = 2 * 256 * 128 * PROCESSORS / device.product_flops
    return units * unit / kernel.schedule.kernels.slow


def _finishing(group: Group) -> int:
    along, down = False, False
    for n in group.nodes:
        if n.kind is Kind.REDUCE:
            along, down = along or n["axes"] == (-1,), down or n["axes"] != (-1,)
    return int(along and hint(group.width) > _ROW_PARTS * _PART) + int(down)
