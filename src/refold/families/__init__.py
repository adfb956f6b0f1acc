"""Families of kernels, a folder each. The planner asks them in this order; a new one is a line."""

from collections.abc import Mapping

from refold.families import columns, matmul, pointwise, rows
from refold.families.family import Claim, Family
from refold.families.view import View

FAMILIES: tuple[Family, ...] = (
    matmul.FAMILY,
    columns.FAMILY,
    rows.FAMILY,
    pointwise.FAMILY,
)
BY_NAME: Mapping[str, Family] = {f.name: f for f in FAMILIES}

__all__ = ["BY_NAME", "FAMILIES", "Claim", "Family", "View"]
