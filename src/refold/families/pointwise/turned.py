"""Which images a pointwise kernel may read with their channels last (cuda/channels_last.cuh)."""

from __future__ import annotations

from refold.ir import OPS, Kind, Node
from refold.ir.ops import CONVOLUTIONS
from refold.plan.plan import Group

MOST = 2  # of a group: tiles of more do not fit


def turns(group: Group) -> list[Node]:
    """Results of convolutions of the space of a group that stores whole images and reads nothing
    that is spread along some of its places' axes alone."""
    pointwise = all(OPS[n.op].kind is Kind.POINTWISE for n in group.nodes)
    whole = all(o.shape == group.dims for o in group.outputs)
    if not pointwise or not whole or group.counters or group.quantized is not None:
        return []
    found = [i for i in group.inputs if i.op in CONVOLUTIONS and i.shape == group.dims]
    if not found or len({len(i["strides"]) for i in found}) > 1:
        return []
    places = len(found[0]["strides"])

    def fits(node: Node) -> bool:
        behind = node.shape[-places:]
        return behind == group.dims[-places:] or all(d == 1 for d in behind)

    return found[:MOST] if all(map(fits, group.inputs)) else []
