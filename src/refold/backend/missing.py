"""Gradients that do not come: of results that a loss does not use.

Autograd gives a compiled backward zeros for them. Parameters that only those results used have
gradients of zeros then, where eager has None: an optimizer with weight decay moves them. Zero times
an infinite slope is no number, and the zeros take as much memory as the results.

Here such a backward is told which gradients are missing. It runs as a graph of its own without
them, which is compiled when they are missing for the first time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from refold.backend.loaded import Boxed

log = logging.getLogger("refold")


@dataclass(frozen=True)
class Missing:
    """Stands for a gradient among a backward's arguments. known: what autograd knows of it."""

    known: Any

    def zeros(self, order: Sequence[int]) -> torch.Tensor:
        """order: of its dimensions in memory, the outermost first."""
        sizes = [self.known.shape[i] for i in order]
        made = torch.zeros(sizes, dtype=self.known.dtype, device=self.known.device)
        return made.permute([order.index(i) for i in range(len(order))])


def let_miss(node: Any, made: Any) -> None:
    """Let autograd tell a compiled graph's node, of the class `made`, which gradients do not come.

    Gradients of a subclass of tensors are taken apart before the backward sees them.
    """
    if made.maybe_subclass_metadata is None and hasattr(node, "_input_metadata"):
        node.set_materialize_grads(False)


def all_come(made: Any, node: Any) -> Any:
    """What PyTorch's compiled autograd knows a node by. It asks before it reads the backward, which
    is the whole one: that needs zeros for what does not come."""
    node.set_materialize_grads(True)
    return made._refold_key(node)


def with_missing(node: Any, come: Sequence[Any]) -> list[Any]:
    """The gradients that came to a node; in the place of the others what stands for them."""
    pairs = zip(come, node._input_metadata, strict=True)
    return [Missing(known) if gradient is None else gradient for gradient, known in pairs]


def without_missing(node: Any, found: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """What a node's backward gives: a gradient that is one that did not come is none.

    Autograd calls hooks of a tensor even so, with None, which eager's never see: a tensor that has
    any gets zeros. given: what the graph was called with, as far as it is known.
    """
    made = [None if isinstance(g, Missing) else g for g in found]
    asked = [i for i, needed in enumerate(node.needs_input_grad) if needed]
    edges = [function for function, _ in node.next_functions if function is not None]
    for i, edge in zip(asked, edges, strict=True):
        if made[i] is None:
            tensor = getattr(edge, "variable", given[i] if len(given) == len(made) else None)
            if tensor is not None and (tensor._backward_hooks or _after(tensor)):
                made[i] = torch.zeros_like(tensor)
    return tuple(made)


def _after(tensor: Any) -> Any:
    return tensor.is_leaf and tensor._post_accumulate_grad_hooks


class Source(Protocol):
    """Of what a backward without some of its gradients is made. key: of the whole one on disk."""

    key: str | None

    def compile(self, missing: frozenset[int]) -> tuple[Boxed, Sequence[int]]:
        """It, and which arguments of the whole one it takes. missing: places of gradients among
        these."""

    def stored(self) -> Source | None:
        """What another process can have of it, for a graph that is kept; None where it cannot."""


@dataclass
class Gradients:
    """The gradients that a backward takes, and what it computes without some of them.

    places: of the gradients among its arguments. orders: of their dimensions in memory. needs: of
    each result, the gradients that it is computed of; None for no tensor. source: None where only
    zeros can stand for gradients.
    """

    places: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    needs: tuple[frozenset[int] | None, ...]
    source: Source | None
    _known: dict[frozenset[int], tuple[Boxed, Sequence[int]] | None] = field(
        default_factory=dict, repr=False, compare=False
    )

    def missing(self, given: Sequence[Any]) -> frozenset[int]:
        return frozenset(i for i in self.places if isinstance(given[i], Missing))

    def run(self, whole: Boxed, given: list[Any], missing: frozenset[int]) -> list[Any]:
        """The results, None for what is computed of nothing but gradients that are missing. whole:
        the backward with all of them. given: its arguments, a list that is emptied."""
        needed = [need is not None and not (need and need <= missing) for need in self.needs]
        if not any(needed):
            given.clear()
            return [None] * len(needed)
        other = self._without(missing)
        if other is None:
            for i, order in zip(self.places, self.orders, strict=True):
                if i in missing:
                    given[i] = given[i].zeros(order)
            found = whole(given)
            return [value if asked else None for asked, value in zip(needed, found, strict=True)]
        run, taken = other
        left = [given[i] for i in taken]
        given.clear()
        results = iter(run(left))
        return [next(results) if asked else None for asked in needed]

    def _without(self, missing: frozenset[int]) -> tuple[Boxed, Sequence[int]] | None:
        if missing not in self._known:
            from torch._dynamo.convert_frame import compile_lock

            with compile_lock:  # PyTorch's compilers take one graph of a process at a time
                if missing not in self._known:
                    self._known[missing] = self._compiled(missing)
        return self._known[missing]

    def _compiled(self, missing: frozenset[int]) -> tuple[Boxed, Sequence[int]] | None:
        if self.source is None:
            return None
        try:
            return self.source.compile(missing)
        except Exception as error:  # whatever it is, zeros can stand for them
            line = (str(error).strip().splitlines() or ["no message"])[0]
            log.warning(
                "refold: zeros stand for gradients of results that are not used, because the"
                " backward without them was not compiled (%s: %s)", type(error).__name__, line,
            )  # fmt: skip
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        """What was compiled here is kept by itself."""
        source = None if self.source is None else self.source.stored()
        return Gradients, (self.places, self.orders, self.needs, source)
