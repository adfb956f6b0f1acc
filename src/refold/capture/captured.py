"""What capturing gives: a graph, forward's arguments, and how the result is put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.ir import Dim, Graph, Sym


@dataclass(frozen=True)
class Field:
    """One flattened argument of forward.

    path: Python text that reaches it from forward's own names, e.g. `x` or `batch["mask"]`.
    shape and dtype: of a tensor; None for a plain Python value, which is then `value`.
    """

    path: str
    shape: tuple[Dim, ...] | None
    dtype: torch.dtype | None
    value: Any = None


@dataclass(frozen=True)
class Captured:
    """A module's forward in one mode, as a graph.

    graph: its user outputs come first, then the buffers that it writes.
    fields: forward's flattened arguments; an `input` node's index counts the tensor fields only.
    result: nested containers and plain values; an `Output` index stands as `Slot`. makers: text
        of the containers' classes, but for tuple, list and dict.
    ranges: smallest and largest allowed value of every named size (None: no bound).
    constants: tensors that are neither parameters nor buffers, by the name used in the graph;
        those reachable as attributes are listed in `attributes`.
    conditions: what must hold of the sizes beside, as Python text over forward's parameters.
    default_dtype: PyTorch's, where the dtype of a value follows from it.
    images_last: of each of the example's images whether its channels lie last in memory.
        fixed_layout: whether a call's images have to lie as the example's, because it is not known
        how eager's results would lie else.
    """

    graph: Graph
    fields: tuple[Field, ...]
    result: Any
    makers: Mapping[type, str]
    ranges: Mapping[str, tuple[int, int | None]]
    constants: Mapping[str, torch.Tensor]
    attributes: frozenset[str]
    training: bool
    conditions: tuple[str, ...] = ()
    default_dtype: torch.dtype | None = None
    images_last: tuple[bool, ...] = ()
    fixed_layout: bool = False

    @property
    def tensors(self) -> list[Field]:
        return [f for f in self.fields if f.shape is not None]

    def symbol_sources(self) -> dict[str, tuple[Field, int]]:
        """Where each named size can be read: a tensor argument and its dimension."""
        found: dict[str, tuple[Field, int]] = {}
        for field in self.tensors:
            assert field.shape is not None
            for i, dim in enumerate(field.shape):
                if isinstance(dim, Sym) and len(dim.terms) == 1 and dim.terms[0][1] == 1:
                    names = dim.terms[0][0]
                    if len(names) == 1:
                        found.setdefault(names[0], (field, i))
        return found
