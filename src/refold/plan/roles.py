"""What values are to those that read them: a weight, a factor, a shift. Files name them so."""

from __future__ import annotations

from collections.abc import Iterable

from refold.ir import Node

_OF_PRODUCTS = ("", "weight", "bias")
_OF_ARITHMETIC = {"mul": "factor", "div": "divisor", "add": "shift", "sub": "shift"}


def roles(nodes: Iterable[Node]) -> dict[Node, str]:
    """The role of each value in the first of `nodes` that gives it one.

    A weight or a bias of a product; what a larger value is multiplied with, or has added.
    """
    found: dict[Node, str] = {}
    for reader in nodes:
        for place, node in enumerate(reader.inputs):
            role = _role(reader, place)
            if role:
                found.setdefault(node, role)
    return found


def _role(reader: Node, place: int) -> str:
    if reader.row.is_contraction:
        return _OF_PRODUCTS[place]
    node = reader.inputs[place]
    if node.shape == reader.shape:
        return ""
    return _OF_ARITHMETIC.get(reader.op, "")
