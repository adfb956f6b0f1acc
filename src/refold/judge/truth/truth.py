"""What the reference does on one case: a run, and the truth that eager and float64 runs make."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from refold.judge.draws.trees import each, tensors
from refold.judge.rule import beside


@dataclass(frozen=True)
class Meta:
    """Of an output tensor, beside its values."""

    stride: tuple[int, ...]
    parameter: bool  # nothing else than a plain tensor otherwise


@dataclass(frozen=True)
class Run:
    """One forward (and backward) of the reference."""

    outputs: Any
    buffers: dict[str, torch.Tensor]
    grads: dict[str, torch.Tensor]
    random: str
    changed: tuple[int, ...]
    meta: tuple[Meta, ...] = ()
    written: tuple[torch.Tensor, ...] = ()  # what the inputs in `changed` became
    drew: bool = False  # random numbers
    shared: tuple[str, ...] = ()  # memory that outputs share with others
    others: tuple[bool, ...] = ()  # whether Python's and NumPy's generators moved
    sparse: tuple[str, ...] = ()  # gradients that are no dense tensors

    def bytes(self) -> int:
        """What it holds of outputs, gradients and changed inputs."""
        return self._bytes

    @functools.cached_property
    def _bytes(self) -> int:
        held = [*tensors(self.outputs), *self.grads.values(), *self.written]
        apart = 0

        def count(leaf: Any) -> Any:
            nonlocal apart
            apart += leaf.bytes() if _is_beside(leaf) else 0
            return leaf

        each(self.outputs, count)
        return sum(t.numel() * t.element_size() for t in held) + apart


@dataclass
class Truth:
    """Eager and float64 runs on one case; ``raised`` if the reference does not take the input.

    It holds the inputs: truths are found by their identity. The float64 run is made when it is
    asked for: what is near enough to eager needs none. ``make`` gives it, and ``mend`` eager with
    its own jumps taken out, which may take many more.
    """

    plain: Run | None  # eager as it ran
    make: Callable[[Truth], Run] | None = None
    mend: Callable[[Truth, Run], Run] | None = None
    raised: str = ""
    cotangents: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    state: str = ""
    training: bool = False

    _wide: Run | None = None
    _mended: Run | None = None
    relative: dict[str, float] = field(default_factory=dict)  # eager's error, of small outputs

    @property
    def eager(self) -> Run | None:
        """The reference as it is; None where it raises. Ask for `exact` first where both count."""
        return self.plain if self._mended is None else self._mended

    @property
    def wide(self) -> Run | None:
        """The reference in float64; eager's run where there is none. Eager stays as it ran."""
        if self._wide is None and self.plain is not None and self.make is not None:
            self._wide = self.make(self)
        return self._wide

    @property
    def exact(self) -> Run | None:
        """The same; from then on eager has its own jumps taken out."""
        wide = self.wide
        if wide is not None and self._mended is None:
            self._mended = self.plain if self.mend is None else self.mend(self, wide)
        return wide

    def bytes(self) -> int:
        """What its runs hold."""
        held = (self.plain, self._wide, self._mended)
        runs = {id(r): r for r in held if r is not None}
        return sum(run.bytes() for run in runs.values())


def _is_beside(value: Any) -> bool:
    return isinstance(value, beside.Beside)
