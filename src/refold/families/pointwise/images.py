"""Which images a pointwise kernel may read and store with their channels last: its operands in the
other order go by way of shared memory (cuda/channels_last.cuh)."""

from __future__ import annotations

from refold.ir import OPS, Kind, Node
from refold.plan.layout import TRANSPOSED
from refold.plan.plan import Group

_MOST = 2  # operands in the other order: tiles of more do not fit


def lays_out(group: Group) -> bool:
    """Does it store whole images, and read nothing that is spread along some of its places' axes
    alone? What is no whole image lies in one order, whatever the kernel's is."""
    pointwise = all(OPS[n.op].kind is Kind.POINTWISE for n in group.nodes)
    whole = all(o.shape == group.dims for o in group.outputs)
    if not pointwise or not whole or group.counters or group.quantized is not None:
        return False
    places = group.images

    def fits(node: Node) -> bool:
        behind = node.shape[-places:]
        if behind != group.dims[-places:] and any(d != 1 for d in behind):
            return False
        wide = [a for a in TRANSPOSED[places] if node.shape[a] != 1]
        return node.shape == group.dims or not group.last or wide == sorted(wide)

    return all(map(fits, group.inputs)) and len(group.turned) <= _MOST
