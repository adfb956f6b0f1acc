"""Models of many kinds: one class a case, each with `inputs()`; the tests run every one of them.

They are small, and odd on purpose: sizes that no vector divides, three-dimensional inputs, several
inputs and outputs. They run on the device that their inputs are on.
"""

from zoo import convolutions, forms, losses, models, norms, parts, pools, sums, values
from zoo.registry import CASES

__all__ = [
    "CASES",
    "convolutions",
    "forms",
    "losses",
    "models",
    "norms",
    "parts",
    "pools",
    "sums",
    "values",
]
