"""What capturing gives: a graph, forward's arguments, and how the result is put together."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from refold.capture.forms import Built
from refold.capture.sizes import Derived
from refold.capture.values import FREE, Bound
from refold.ir import Dim, Graph, Sym


@dataclass(frozen=True)
class Argument:
    """One flattened argument of forward.

    path: Python text that reaches it from forward's own names, e.g. `x` or `batch["mask"]`.
    shape and dtype: of a tensor; None for a plain Python value, which is then `value`. An attribute
    that forward replaces is read at a path that begins with `self`. strides, offset: those of the
    example, where forward asks for them; strides also where it depends on them whether a result is
    a view of the argument. order: of its dimensions in memory, where these are another than its own
    and shape is of them in that order; the text begins by turning the argument so.
    """

    path: str
    shape: tuple[Dim, ...] | None
    dtype: torch.dtype | None
    value: Any = None
    strides: tuple[int, ...] | None = None
    offset: int | None = None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Container:
    """A container among forward's arguments, which has to be of the same class and arrangement.

    tree: how it is arranged. starred: whether it is what *args or **kwargs collects.
    """

    path: str
    tree: Built
    starred: bool = False


@dataclass(frozen=True)
class Captured:
    """A module's forward in one mode, as a graph.

    graph: its user outputs come first, then the buffers that it writes.
    fields: forward's flattened arguments; an `input` node's index counts the tensor fields only.
    containers: what holds them.
    result: a tree of containers and plain values; of an output, its `OutputIndex`. classes: text
        that gives the containers' classes.
    assigned: trees of the attributes that forward sets, by their paths.
    ranges: smallest and largest allowed value of every named size (None: no bound).
    constants: tensors that are neither parameters nor buffers, by the name used in the graph;
        those reachable as attributes are listed in `attributes`.
    conditions: what must hold of the sizes beside, as Python text over forward's parameters.
    images_last: of each of the example's images whether its channels lie last in memory.
        orders: of each tensor that matters here, by its index among `tensors`, the order of its
        dimensions in memory, which a call's has to have: results follow it.
        fixed_layout: whether a call's images have to lie as the example's, because it is not known
        how eager's results would lie else.
    derived: what named sizes that no argument has are computed from, in order.
    queries: PyTorch's settings that have to be as they were, as Python text, and their values.
    reads_mode: whether the other mode may be another function. apart: the paths of modules that
        were in the other mode than the model. inference: whether forward gives tensors of
        inference mode, whatever mode it is called in. device: of the tensors. bound:
        sizes that do not vary by themselves, because others than polynomials would follow from
        them or because others have to be the same. numbers: named sizes that an argument
        gives by itself, and its path. reals: arguments of class float that vary. varied: the paths
        of attributes that do, of which there is an argument each. inside: the places of numbers
        that vary inside what attributes hold (`Example.settings`), of which there is one, too.
    """

    graph: Graph
    fields: tuple[Argument, ...]
    containers: tuple[Container, ...]
    result: Any
    assigned: Mapping[str, Any]
    classes: Mapping[type, str]
    ranges: Mapping[str, tuple[int, int | None]]
    constants: Mapping[str, torch.Tensor]
    attributes: frozenset[str]
    training: bool
    conditions: tuple[str, ...] = ()
    derived: Mapping[str, Derived] = field(default_factory=dict)
    queries: Mapping[str, Any] = field(default_factory=dict)
    reads_mode: bool = True
    device: torch.device | None = None
    bound: Bound = FREE
    images_last: tuple[bool, ...] = ()
    fixed_layout: bool = False
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    reals: frozenset[str] = frozenset()
    varied: frozenset[str] = frozenset()
    inside: tuple[tuple[Any, ...], ...] = ()
    apart: frozenset[str] = frozenset()
    inference: bool = False

    @property
    def tensors(self) -> list[Argument]:
        return [f for f in self.fields if f.shape is not None]

    def symbol_sources(self) -> dict[str, tuple[Argument, int]]:
        """Where each named size can be read: a tensor argument and its dimension."""
        found: dict[str, tuple[Argument, int]] = {}
        for one in self.tensors:
            assert one.shape is not None
            for i, dim in enumerate(one.shape):
                if isinstance(dim, Sym) and len(dim.terms) == 1 and dim.terms[0][1] == 1:
                    names = dim.terms[0][0]
                    if len(names) == 1:
                        found.setdefault(names[0], (one, i))
        return found


def attribute(path: str) -> str:
    """The text that reads a dotted attribute name from self, numbers included."""
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text


def has_attribute(module: torch.nn.Module, name: str) -> bool:
    """Has a module a tensor of this path?"""
    try:
        return isinstance(operator.attrgetter(name)(module), torch.Tensor)
    except AttributeError:
        return False
