"""What the judge draws: inputs, layouts, states. Every function here is pure."""

from refold.judge.draws.inputs import SCALES, alone, larger_batch, normal, resized, scalars, shapes
from refold.judge.draws.layouts import (
    LAID,
    axes,
    bedded,
    layouts,
    one_for_all,
    otherwise_laid,
    slices,
    twice,
)
from refold.judge.draws.states import lattice, perturbed, rolled, signed
from refold.judge.draws.trees import (
    all_finite,
    every,
    firsts,
    has_floats,
    inexact,
    joined,
    mapped,
    tensors,
)

__all__ = [
    "LAID",
    "SCALES",
    "all_finite",
    "alone",
    "axes",
    "bedded",
    "every",
    "firsts",
    "has_floats",
    "inexact",
    "joined",
    "larger_batch",
    "lattice",
    "layouts",
    "mapped",
    "normal",
    "one_for_all",
    "otherwise_laid",
    "perturbed",
    "resized",
    "rolled",
    "scalars",
    "shapes",
    "signed",
    "slices",
    "tensors",
    "twice",
]
