"""What kernels of columns compute: reductions over one run of axes before the last."""

from __future__ import annotations

from refold.families.family import Claim
from refold.families.view import View
from refold.ir import OPS, Kind, Node
from refold.plan.draft import Draft
from refold.plan.plan import leading
from refold.price import size_bytes

# bytes of values that are reduced side by side to save a launch, though they have nothing in
# common; larger ones would all be held until the last is there
_SMALL = 4 << 20
_NEAR = 64  # values at most, of which a value is computed in passing
# reductions of one kernel: of each a thread holds 36 numbers (4 rows of 4 columns, twice, and their
# partial), and has room for 200
_MOST = 4


def claim(node: Node, view: View) -> Claim | None:
    """Reductions of values of one shape over the same axes share a walk, where the values are
    computed from something in common, or are small: as many as a thread holds. All gradients of a
    network's norms have something in common."""
    if OPS[node.op].kind is not Kind.REDUCE or node.row.reduction is None:
        return None
    x = node.inputs[0]
    if not leading(node["axes"], x.shape):
        return None
    cyclic = view.cyclic(node)
    small, near = size_bytes(x) <= _SMALL, _near(x)
    state = _state(node)
    columns = [d for d in reversed(view.drafts) if d.family == "columns"]
    for draft in sorted(columns, key=lambda d: state not in _states(d)):
        states = _states(draft)
        if state not in states and len(states) >= _MOST:
            continue
        first = next(n for n in draft.nodes if OPS[n.op].kind is Kind.REDUCE)
        same = first.inputs[0].shape == x.shape and first["axes"] == node["axes"]
        if (
            same
            and (small or any(not near.isdisjoint(_near(v)) for v in reduced(draft, view)))
            and not cyclic(draft)
        ):
            return Claim(draft, (node,), "columns")
    return Claim(Draft("columns", x.shape), (node,), "columns")


def _near(value: Node) -> set[Node]:
    """A value, and values in memory or on the way that it follows from element by element."""
    found, stack = {value}, [value]
    while stack and len(found) < _NEAR:
        node = stack.pop()
        if OPS[node.op].kind is Kind.POINTWISE:
            new = [i for i in node.inputs if i not in found and i.shape == value.shape]
            found.update(new)
            stack += new
    return found


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """Nothing that reads what the columns are reduced to is computed with them: planner/drafts.py
    adds vectors of one value a column once every value has its place."""
    return None


def _state(node: Node) -> tuple[Node, str]:
    """What a thread holds for a reduction: of a mean and a variance of one value it is the same."""
    assert node.row.reduction is not None
    return node.inputs[0], node.row.reduction.state_of or node.op


def _states(draft: Draft) -> set[tuple[Node, str]]:
    return {_state(n) for n in draft.nodes if OPS[n.op].kind is Kind.REDUCE}


def reduced(draft: Draft, view: View) -> list[Node]:
    """The values that a draft reduces."""
    return [n.inputs[0] for n in draft.nodes if OPS[n.op].kind is Kind.REDUCE]
