"""Ours beside Inductor's, timed on made-up arguments while a graph is compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold.backend.arguments import Forward, as_called, examples, places_of, rehearse
from refold.backend.graphs import sizes_of
from refold.backend.loaded import Boxed
from refold.capture.aot import COPY
from refold.measure import Timing, compare

SECONDS = 0.4  # of a comparison
FASTER = 1.02  # Inductor's time over ours from which on ours is taken: less may be noise


def is_faster(timing: Timing) -> bool:
    """Are we: by the median of the pairs, and in three of four of them, so that a machine that is
    busy with something else decides nothing?"""
    return timing.ratio >= FASTER and timing.low >= 1


def _is_finite(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    return bool(value.isfinite().all())


@dataclass(frozen=True)
class _Given:
    """Arguments of a graph, which calls may write to. spoiled: what a call leaves otherwise
    than it was, by its place, as it was."""

    values: list[Any]
    spoiled: Mapping[int, torch.Tensor]

    def again(self) -> list[Any]:
        """The same arguments once more."""
        for i, value in self.spoiled.items():
            self.values[i].copy_(value)
        return list(self.values)


@dataclass(frozen=True)
class _Examples:
    """Arguments that are made up for a graph. inputs: what Inductor is given for each, whose
    strides calls have: what a forward saves may lie otherwise than the graph says."""

    module: torch.fx.GraphModule
    parameters: Collection[str]
    forward: Forward | None
    inputs: Sequence[Any]

    def all(self) -> Iterator[list[Any]]:
        for given in examples(self.module, self.parameters, self.forward):
            yield list(map(_laid_as, given, self.inputs)) if self.inputs else given

    def again(self, number: int) -> list[Any]:
        return next(itertools.islice(self.all(), number, None))


def _laid_as(value: Any, known: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not isinstance(known, torch.Tensor):
        return value
    strides = tuple(sizes_of(known.stride()))
    if value.shape != tuple(sizes_of(known.shape)) or value.stride() == strides or 0 in strides:
        return value
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return made.copy_(value)


def _given(other: Callable[[list[Any]], Any], made: _Examples, ours: Boxed | None = None) -> _Given:
    """Arguments of which results are finite, or else as many as there are: what is not a kernel may
    compute again, slowly, which says nothing about real ones.

    A backward may write into what was saved for it, as nobody reads it again. Called once more on
    what that left, it would soon have results that are not finite.
    """
    best, least = 0, math.inf
    written = _written(made.module)
    own = {i for i, n in enumerate(places_of(made.module)) if n in written}
    spoiled: set[int] = set()
    for number, given in enumerate(made.all()):
        if any(isinstance(v, torch.Tensor) and v.is_cuda for v in given):
            rehearse(made.module, given)
        before = _digests(given)
        wrong = sum(not _is_finite(r) for r in other(list(given)))
        spoiled |= _changed(before, given) - own
        if wrong < least:
            best, least = number, wrong
        if wrong == 0:
            break
    del given  # before there are others
    values = made.again(best)
    if ours is not None:  # of parts of the graph, Inductor compiles the rest
        before = _digests(values)
        ours(list(values))
        more = _changed(before, values) - own
        if more:
            values.clear()
            values = made.again(best)
        spoiled |= more
    return _Given(values, {i: values[i].clone() for i in spoiled})


def _changed(before: Sequence[Any], given: Sequence[Any]) -> set[int]:
    now = zip(before, _digests(given), strict=True)
    return {i for i, (old, new) in enumerate(now) if old != new}


def _digests(given: Sequence[Any]) -> list[tuple[float, float] | None]:
    """Of each tensor that can be written to, what another value in its memory changes."""
    found: list[tuple[float, float] | None] = []
    for value in given:
        if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
            found.append(None)
            continue
        if any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape, strict=True)):
            found.append(None)  # several places of one number
            continue
        total = value.sum(dtype=torch.float64 if value.is_floating_point() else torch.int64)
        found.append((float(total), float(value[(-1,) * value.dim()])))
    return found


def _written(module: torch.fx.GraphModule) -> set[Any]:
    """The arguments that the graph itself says it writes to: both sides do, at each call."""
    return {n.args[0] for n in module.graph.nodes if n.target is COPY}


def timed(
    ours: Boxed,
    other: Callable[[list[Any]], Any],
    module: torch.fx.GraphModule,
    parameters: Collection[str],
    forward: Forward | None = None,
    inputs: Sequence[Any] = (),
) -> Timing:
    """Both on the same arguments of a graph, in turns. The graph may write to its arguments. The
    random state is left as it was. Both times hold the copies that restore what a call has spoiled,
    so that the ratio is nearer to 1 than the graphs' own.

    parameters: the placeholders that are parameters or buffers. forward: of which the graph is the
    backward, where it is known. inputs: what Inductor is given for the arguments.
    """
    metas = [n.meta["val"] for n in places_of(module)]
    devices = {m.device for m in metas if isinstance(m, torch.Tensor) and m.device.type == "cuda"}
    kind = "cuda" if devices else "cpu"
    with as_called():
        with torch.random.fork_rng(sorted(d.index or 0 for d in devices)):
            given = _given(other, _Examples(module, parameters, forward, inputs), ours)
        return compare(lambda: other(given.again()), lambda: ours(given.again()), kind, SECONDS)
