"""In which memory the values of a plan lie, and how its results are handed over.

`planner/buffers.py` decides; emitted Python only writes it down, and `plan/reference.py` runs it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from refold.ir import Node
from refold.plan.product import Pack


@dataclass(frozen=True)
class Fresh:
    """A kernel stores the value in new memory, row after row."""


@dataclass(frozen=True)
class InPlaceOf:
    """A kernel stores the value where one lies that nothing reads any more but this kernel, which
    reads each element before it writes that of the same place."""

    node: Node


@dataclass(frozen=True)
class StateOf:
    """A kernel writes the value to the buffer that takes it."""

    state: Node


@dataclass(frozen=True)
class ViewOf:
    """Nothing is computed: the value begins where another does, and is read by its address."""

    node: Node


@dataclass(frozen=True)
class OfPyTorch:
    """The value is what a call of PyTorch gives, in memory of its own or of what it reads."""


Place = Fresh | InPlaceOf | StateOf | ViewOf | OfPyTorch


class Written(enum.Enum):
    """How a buffer gets its new value."""

    BY_KERNEL = "its kernel writes it there"
    ADDED = "the number is added to it in the end"
    COPIED = "the value is copied to it in the end"


@dataclass(frozen=True)
class Handed:
    """How one output of the graph is handed over.

    written: of a buffer's new value; None for a result. cloned: a result is a copy, because its
    memory is a folded parameter's, or another result's. ordered: a result is laid out row after row
    first, because it may lie otherwise.
    """

    written: Written | None = None
    cloned: bool = False
    ordered: bool = False

    def __str__(self) -> str:
        if self.written is not None:
            return self.written.value
        words = ["a copy"] * self.cloned + ["laid out row after row"] * self.ordered
        return ", ".join(words) or "as it lies"


@dataclass(frozen=True)
class Prepared:
    """What calls reuse until a parameter changes, folds aside, and what they read it from.

    sources: parameters and constants that folds or steps read. reads: those of them that steps
    read. as_they_lie: reads that PyTorch takes in whatever order they lie in; all others are laid
    out row after row. channels_last: folds that are laid out so. packs: packed forms of folds and
    of reads.
    """

    sources: tuple[Node, ...] = ()
    reads: tuple[Node, ...] = ()
    as_they_lie: frozenset[Node] = frozenset()
    channels_last: frozenset[Node] = frozenset()
    packs: tuple[Pack, ...] = ()


@dataclass(frozen=True)
class Buffers:
    """places: of each value that a step gives; a step whose value has none is left out, since a
    kernel or an addition in the end does its work. states: the buffers that are read. copied:
    those whose value before the call is read, or returned, after it may have been written. dense:
    arguments, and results of PyTorch, that kernels read by their addresses: they are laid out row
    after row. by_strides: those that kernels read as they lie. given: by kernel, what it is given
    packed; the first that is given a value packs it. handed: as the graph's outputs. turned: values
    that lie with their channels last, and the number of their places: results of PyTorch's
    convolutions, whose call is given such images and gives such, and of kernels.
    """

    places: Mapping[Node, Place] = field(default_factory=dict)
    states: tuple[Node, ...] = ()
    copied: frozenset[Node] = frozenset()
    dense: frozenset[Node] = frozenset()
    by_strides: frozenset[Node] = frozenset()
    given: Mapping[str, tuple[Pack, ...]] = field(default_factory=dict)
    prepared: Prepared = Prepared()
    handed: tuple[Handed, ...] = ()
    turned: Mapping[Node, int] = field(default_factory=dict)
