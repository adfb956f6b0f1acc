"""Calls that would end the use of a GPU, found beforehand on the CPU.

An index out of range, or a probability outside of [0, 1], raises an error on the CPU. On a GPU a
kernel asserts that there is none: the process can use the device no more, and the judge is such a
process. So where a reference has operations that assert, a call that may be out of range runs on a
twin of the reference on the CPU first, and what raises there is not tried on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from refold.judge.draws.trees import inexact, tensors
from refold.judge.worker.mode import Mode

if TYPE_CHECKING:
    from refold.judge.truth.oracle import Oracle

BY_INDEX = frozenset(
    {
        *("embedding", "_embedding_bag", "_embedding_bag_forward_only", "embedding_renorm_"),
        *("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "index_select"),
        *("index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_"),
        *("gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce"),
        *("scatter_reduce_", "take", "put", "put_", "bincount", "_ctc_loss"),
        *("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss"),
        *("multilabel_margin_loss_forward", "max_unpool2d", "max_unpool3d", "_assert_async"),
    }
)
_FAR = 32  # times what values are usually apart

BY_VALUE = frozenset({"binary_cross_entropy", "multinomial", "bernoulli", "bernoulli_"})


class Watch(Mode):
    """Notes which operations run, and whether one raised for which a GPU asserts."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()
        self.asserted = False  # an operation raised for which a GPU asserts

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(getattr(func, "overloadpacket", func)).rpartition(".")[2]
        self.seen.add(name)
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            listed = name in BY_INDEX or name in BY_VALUE
            self.asserted = self.asserted or listed or isinstance(error, IndexError)
            raise


class Rehearsal:
    """Runs calls on the twin, the reference on the CPU, unless inputs like them have run before.

    inputs: the file's own, which the reference takes. watch: what ran on them.
    """

    def __init__(self, twin: Oracle, inputs: list[Any], watch: Watch) -> None:
        self.twin = twin
        self.by_value = bool(watch.seen & BY_VALUE)
        self.known: dict[Any, list[torch.Tensor]] = {}
        self._learn(inputs)

    @staticmethod
    def needed(watch: Watch) -> bool:
        """Whether the operations that ran may assert."""
        return bool(watch.seen & (BY_INDEX | BY_VALUE))

    def __call__(
        self, state: dict[str, torch.Tensor], inputs: list[Any], training: bool, seed: int
    ) -> None:
        """Raises what the reference raises on the CPU."""
        if self.ordinary(inputs) and not any(not inexact(t) and t.dim() for t in state.values()):
            return
        self.twin.load(state)
        self.twin.eager(inputs, training, seed)
        self._learn(inputs)

    def ordinary(self, inputs: list[Any]) -> bool:
        """Whether shapes have run before, and integers like these."""
        known = None if self.by_value else self.known.get(_shapes(inputs))
        if known is None:
            return False
        return all(map(_like, _values(inputs), known))

    def _learn(self, inputs: list[Any]) -> None:
        shapes, found = _shapes(inputs), _values(inputs)
        before = self.known.get(shapes, found)
        self.known[shapes] = [
            torch.unique(torch.cat(both)) for both in zip(before, found, strict=True)
        ]


def _shapes(inputs: list[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for t in tensors(inputs))


def _values(inputs: list[Any]) -> list[torch.Tensor]:
    """The values of each tensor of integers, in order."""
    exact = [t for t in tensors(inputs) if not inexact(t) and t.dtype is not torch.bool]
    return [torch.unique(t.cpu().long()) for t in exact]


def _like(values: torch.Tensor, known: torch.Tensor) -> bool:
    """Whether values have run before, or lie between such that are not far apart.

    An index may be valid by itself, far from others: a loss ignores -100, or 255 beside 21 classes,
    and asserts of what lies between.
    """
    new = values[~torch.isin(values, known)]
    if not new.numel():
        return True
    ordered = known[known >= 0]
    if ordered.numel() < 2 or int(new[0]) < int(ordered[0]) or int(new[-1]) > int(ordered[-1]):
        return False
    apart = ordered.diff()
    return bool((apart[torch.searchsorted(ordered, new) - 1] <= _FAR * apart.median()).all())
