"""Which constants no call keeps for the next."""

from __future__ import annotations

from refold.ir import Node
from refold.price import size_bytes

KEPT = 1 << 20  # bytes


def is_large_fill(node: Node) -> bool:
    """Is it one number in so much memory that no call should leave it there for the next?"""
    return node.op == "expand" and node.inputs[0].op == "scalar" and size_bytes(node) > KEPT
