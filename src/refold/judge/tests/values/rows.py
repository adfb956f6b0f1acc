"""Single calls on rows that are nearly alike, on very many rows, and on very long ones."""

from __future__ import annotations

import contextlib
import functools
import math
import random
import time
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.clock.stopwatch import effort_of, least
from refold.judge.draws.inputs import dimensions, resized
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.values.beyond import within
from refold.judge.truth.power import has_power
from refold.judge.verdict.room import starving
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure
from refold.judge.wire.memory import at_most

_MANY = (1 << 16) + 37  # more than an axis of a grid, or a number of 16 bits, holds
_STEP = 4
_BYTES = 512 << 20  # of inputs and outputs, were they to grow with the square of the rows
_SECONDS = 2.0  # of a call, likewise
# lengths of an axis: beyond rooms of a row, and numbers of 16 bits with and without a sign
_LONG = (257, 2049, 8209, 33001, 66001)
_AXES, _LEAST, _WIDE = 4, 3, 1 << 21  # axes; samples of those; elements of an input
_LONG_SECONDS = 0.8  # of this thread, for the next one, were it to grow with the length's square
_ANSWERED = 4.0  # of a candidate, for the next answer
_GROSS = 16.0  # times its bar: honest sums of so many terms lie further apart than usual


def _alike(session: Session) -> Iterator[Failure]:
    given = session.inputs()
    if not any(_has_rows(t) for t in tensors(given)):
        raise Skip("no rows of several floats among the inputs")
    before = session.cases
    for case, last in (("in their last element", True), ("in one element", False)):
        draw = random.Random(session.secret)

        def change(t: torch.Tensor, last: bool = last, draw: random.Random = draw) -> torch.Tensor:
            if not _has_rows(t):
                return t
            rows = t[:1].expand(t.shape).clone(memory_format=torch.contiguous_format)
            flat = rows.reshape(len(rows), -1)
            for i in range(1, len(flat)):
                at = flat.shape[1] - 1 if last else draw.randrange(flat.shape[1])
                flat[i, at] = flat[i, at] * 0.5 + i / len(flat)
            return flat.reshape(t.shape)

        alike = draws.valued(given, change)
        if has_power(session.truth(alike)):
            yield from session.check(f"rows that differ {case}", alike, limit=True)
    if session.cases == before:
        raise Skip("eager keeps its digits on no such rows")


def _has_rows(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.dim() > 1 and t.shape[0] > 1 and t[0].numel() > 1


def _many(session: Session) -> Iterator[Failure]:
    if session.quick and not session.alone:
        raise Skip("left out: it takes seconds; without --quick it runs")
    given = session.inputs()
    all_tensors = tensors(given)
    if not all_tensors or not all_tensors[0].dim() or not all_tensors[0].shape[0]:
        raise Skip("the first input has no rows")
    batch = all_tensors[0].shape[0]
    first = [(i, 0) for i, t in enumerate(all_tensors) if t.dim() and t.shape[0] == batch]
    for count in _steps(batch):  # what grows with the square of the rows shows on the way
        began = _clock(session)
        more = resized(given, batch, count, iter(first))
        truth = session.truth(more)
        if truth.eager is None:
            raise Skip("the reference does not take so many rows")
        found = (*tensors(more), *tensors(truth.eager.outputs))
        held = sum(t.numel() * t.element_size() for t in found)
        spent = _clock(session) - began
        next_takes = min(_STEP, _MANY / count) ** 2
        too_long = next_takes * spent > _SECONDS and not session.alone
        if next_takes * held > _BYTES or too_long:
            raise Skip(f"{_MANY:,} rows take too long, or too much memory")
    yield from session.check(f"{_MANY:,} rows", more, limit=True)


def _long(session: Session) -> Iterator[Failure]:
    """One axis after the other as long as the reference's time and memory allow. What is wrong
    there because of an index or a room is wrong altogether: sums in another order are not."""
    given = session.inputs()
    held = tensors(given)
    if not held or not held[0].dim() or not held[0].shape[0]:
        raise Skip("no axis but the samples")
    batch = held[0].shape[0]
    first = [(i, 0) for i, t in enumerate(held) if t.dim() and t.shape[0] == batch]
    few = resized(given, batch, min(batch, _LEAST), iter(first))
    before = session.cases
    taken, usual = least(lambda: _takes(session, list(few)), 0.0)
    if not taken:
        raise Skip("the reference does not take few samples")
    for name, dims, size in list(dimensions(given))[:_AXES]:
        for count, following in zip(_LONG, (*_LONG[1:], 0), strict=True):
            if count <= size:
                continue
            times = (following / count) ** 2
            most = usual + (_LONG_SECONDS / times if times else math.inf)
            lengthen = functools.partial(_lengthened, session, few, size, count, dims)
            more, took = least(lengthen, most)
            if more is None:
                break
            if count > _LONG[0]:  # else it is there to see how long the next takes
                spent = effort_of(session.worker())
                found = session.check(f"{name} = {count}", more, limit=True)
                failures = [f for f in within(session, more, found) if _is_gross(f)]
                yield from failures
                # a candidate may be a loop where the reference is none
                answered = spent() * following / count
                if failures or (answered > _ANSWERED and not session.alone):
                    break
            if took > most:
                break
    if session.cases == before:
        raise Skip("the reference takes no long axis")


def _lengthened(
    session: Session, few: list[Any], size: int, count: int, dims: list[tuple[int, int]]
) -> list[Any] | None:
    """Inputs with an axis of another length; None where the reference does not take them."""
    more = resized(few, size, count, iter(dims))
    more = draws.valued(more, functools.partial(_at_its_end, count=count))
    fits = max(t.numel() for t in tensors(more)) <= _WIDE
    return more if fits and _takes(session, more) else None


def _at_its_end(t: torch.Tensor, count: int) -> torch.Tensor:
    """A tensor whose largest values along an axis of that length stand in its last place, and whose
    smallest before it: drawn by luck, few places that are found lie beyond a number of 16 bits."""
    if not t.is_floating_point() or count not in t.shape:
        return t
    axis = t.shape.index(count)
    for place, found in ((count - 1, torch.max), (count - 2, torch.min)):
        value, at = found(t, axis, keepdim=True)
        t = t.scatter(axis, at, t.narrow(axis, place, 1))
        t = t.slice_scatter(value, axis, place, place + 1)
    return t


def _is_gross(failure: Failure) -> bool:
    """Whether values are wrong altogether, or it is no matter of values."""
    worst = failure.worst
    return worst is None or not abs(worst.got - worst.exact) <= _GROSS * worst.bar


def _takes(session: Session, given: list[Any]) -> bool:
    """Whether the reference takes inputs, in ordinary memory, and keeps its digits there."""
    room = at_most(_BYTES) if session.device.type == "cpu" else contextlib.nullcontext()
    try:
        with room:
            return has_power(session.truth(given))
    except Exception as error:
        if not starving(error):
            raise
        return False


def _clock(session: Session) -> float:
    """Seconds; on the CPU of this process alone, which a busy machine does not add to."""
    on_cpu = session.device.type == "cpu"
    return time.process_time() if on_cpu else time.perf_counter()


def _steps(batch: int) -> Iterator[int]:
    """Numbers of rows on the way to many."""
    count = batch * _STEP
    while count < _MANY:
        yield count
        count *= _STEP
    yield _MANY


TESTS: tuple[Test, ...] = (
    Test(
        "rows alike",
        "rows taken for equal by some of their elements",
        "Rows that differ in one element only, the last or a secret one.",
        _alike,
        calls=2,
    ),
    Test(
        "many rows",
        "grids whose second axis ends at 65,535, row numbers of 16 bits",
        "More than 65,536 rows, where that takes no more than seconds; not with --quick.",
        _many,
        calls=4,
    ),
    Test(
        "long axes",
        "column numbers of 16 bits, rows that end where a kernel's room does",
        "Each axis as long as 66,001, on the way 2049 to 33,001, as far as the reference is quick "
        "there; what is wrong by little is not asked.",
        _long,
        calls=12,
    ),
)
