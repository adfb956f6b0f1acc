"""What convolutions by our kernels take: the search's charge for one, and the price of a kernel."""

from __future__ import annotations

from refold import flat
from refold.convolve import Algorithm, Convolution, takes, tile_products
from refold.devices import DeviceModel
from refold.families.prices import computed, moved
from refold.ir import Node
from refold.plan.convolution import ConvolutionKernel, of_node, unsupported
from refold.plan.plan import Group
from refold.price import Charge, Parametric, Price, product_seconds, size_bytes


def charges(node: Node, device: DeviceModel, parametric: Parametric) -> Charge | None:
    """Of a convolution by itself; what follows it is charged for by itself."""
    if device.convolutions is None or unsupported(node, _on_cpu(device)) is not None:
        return None
    c = of_node(node)
    algorithm = device.convolutions(c)
    if algorithm is None or not (_on_cpu(device) or takes(algorithm.schedule, c, algorithm.kind)):
        return None
    read = sum(size_bytes(i) for i in node.inputs[:2]) / device.bandwidth
    written = size_bytes(node) / device.bandwidth
    busy = product_seconds(node, device) if _on_cpu(device) else _busy(c, algorithm, device)
    return Charge(max(busy, read) + device.called + written)


def price(group: Group, device: DeviceModel) -> Price:
    kernel, kernels = group.kernel, 1
    if isinstance(kernel, ConvolutionKernel):
        kernels = 3 if kernel.schedule.kernels is flat.FLAT else 1  # two convert both sides
        busy = _busy(of_node(group.product), Algorithm(kernel.schedule, kernel.kind), device)
    else:
        busy = product_seconds(group.product, device)
    return Price.of(
        device,
        busy=busy,
        moved=moved(group),
        beside=computed(group, device),
        kernels=kernels,
    )


def _on_cpu(device: DeviceModel) -> bool:
    return device.device.toolchain == "cpp"


def _busy(c: Convolution, algorithm: Algorithm, device: DeviceModel) -> float:
    """Seconds of its tiles; a rate is that of three products of 16 bits (devices/table.py)."""
    parts = 1.0 if algorithm.kind == "ieee" else 1 / 3
    flops = 2 * tile_products(algorithm.schedule, c)
    seconds = flops * parts * algorithm.schedule.kernels.slow / device.product_flops
    if algorithm.schedule.kernels is flat.FLAT:
        seconds += flat.moved(c, algorithm.kind) / device.bandwidth
    return seconds
