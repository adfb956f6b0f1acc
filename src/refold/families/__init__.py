"""Families of kernels, a folder each. A new one is a folder and a line."""

from collections.abc import Mapping
from importlib import import_module

from refold.families.family import Claim, Family
from refold.families.view import View

# in the order in which the planner asks them
FAMILIES: tuple[Family, ...] = tuple(
    import_module(f"refold.families.{name}").FAMILY
    for name in (
        "matmul",
        "attention",
        "convolution",
        "channels",
        "columns",
        "rows",
        "pointwise",
        "pooling",
    )
)
BY_NAME: Mapping[str, Family] = {f.name: f for f in FAMILIES}

__all__ = ["BY_NAME", "FAMILIES", "Claim", "Family", "View"]
