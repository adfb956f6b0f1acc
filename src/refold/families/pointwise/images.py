"""Which images a pointwise kernel may read and store with their channels last: its operands in the
other order go by way of shared memory (cuda/channels_last.cuh)."""

from __future__ import annotations

from refold.ir import OPS, Kind
from refold.plan.plan import Group
from refold.plan.space import lies_alike

_MOST = 2  # operands in the other order: tiles of more do not fit


def lays_out(group: Group) -> bool:
    """Does it store whole images, and read what it may so?"""
    pointwise = all(OPS[n.op].kind is Kind.POINTWISE for n in group.nodes)
    whole = all(o.shape == group.dims for o in group.outputs)
    if not pointwise or not whole or group.counters or group.quantized is not None:
        return False
    return all(lies_alike(n, group) for n in group.inputs) and len(group.turned) <= _MOST
