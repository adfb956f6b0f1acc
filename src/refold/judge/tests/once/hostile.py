"""hostile values: softmax without its max, cancellation, denormals, NaN and infinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure

Change = Callable[[torch.Tensor], torch.Tensor]


def run(session: Session) -> Iterator[Failure]:
    """Each value in turn; NaN and infinity are only recorded if the candidate assumes finite."""
    inputs = session.inputs()
    if not draws.has_numbers(inputs):
        raise Skip("no floating inputs")
    for case, change, finite in (*CASES, *_alone(inputs), *_hidden(inputs)):
        # what complex arithmetic makes of NaN and infinity its form decides
        changed = (draws.valued if finite else draws.mapped)(inputs, change)
        found = list(session.check(case, changed))
        if found and not finite and session.finite_only:
            session.assumptions.add("finite: differs from eager on NaN or infinite inputs")
            continue
        if found and not finite and _by_zeros(session, changed):
            session.assumptions.add(ZEROS)
            continue
        yield from found


def _by_zeros(session: Session, inputs: list[Any]) -> bool:
    """Whether outputs are numbers, where eager has NaN, because nothing there depends on what is no
    number: eager multiplies it by zeros (of a mask's softmax), and a kernel that skips what is
    masked does not. Large numbers in its place change no bit of these outputs then, and all outputs
    are right."""
    for training in dict.fromkeys((session.oracle.training, False)):
        truth = session.truth(inputs, training=training)
        if truth.eager is None:
            return False
        mine = draws.tensors(session.call(inputs, training=training)["outputs"])
        theirs = draws.tensors(truth.eager.outputs)
        free = [torch.isnan(e) & ~torch.isnan(m) for m, e in zip(mine, theirs, strict=True)]
        lost = [at & torch.isfinite(m) for at, m in zip(free, mine, strict=True)]
        endless = [at & torch.isinf(m) for at, m in zip(free, mine, strict=True)]
        if any(bool(at.any()) for at in endless) and not _goes_there(
            session, inputs, training, mine, endless
        ):
            return False
        for value in LARGE:

            def put(t: torch.Tensor, value: float = value) -> torch.Tensor:
                return torch.where(torch.isfinite(t), t, value)

            other = draws.mapped(inputs, put)
            known = session.truth(other, training=training)
            if known.eager is None:
                return False
            reply = session.call(other, training=training)["outputs"]
            again = draws.tensors(reply)
            if any(bool((a != m)[at].any()) for a, m, at in zip(again, mine, lost, strict=True)):
                return False
            if not session.agrees(reply, known):
                return False
        mended = iter([torch.where(at, e, m) for m, e, at in zip(mine, theirs, free, strict=True)])
        whole = session.call(inputs, training=training)["outputs"]
        if not session.agrees(draws.every(whole, lambda _, n=mended: next(n)), truth):
            return False
    return True


def _goes_there(
    session: Session,
    inputs: list[Any],
    training: bool,
    mine: list[torch.Tensor],
    at: list[torch.Tensor],
) -> bool:
    """Whether what is infinite there, where eager has NaN, is what eager's own numbers become with
    numbers of a sign in the place of infinities, the larger the farther: eager multiplies what is
    no number by zeros (of the state before a first step), and a scan that begins with the first
    step does not."""
    last: list[torch.Tensor] | None = None
    for size in _ENDLESS:

        def put(t: torch.Tensor, size: float = size) -> torch.Tensor:
            return torch.where(torch.isinf(t), torch.sign(t) * size, torch.nan_to_num(t, size))

        other = draws.mapped(inputs, put)
        known = session.truth(other, training=training)
        if known.eager is None:
            return False
        if not session.agrees(session.call(other, training=training)["outputs"], known):
            return False
        now = draws.tensors(known.eager.outputs)
        for n, (e, m, there) in enumerate(zip(now, mine, at, strict=True)):
            far = torch.isfinite(e) & (torch.sign(e) == torch.sign(m))
            if last is not None:
                far &= e.abs() > _FARTHER * last[n].abs()
            if not bool(far[there].all()):
                return False
        last = now
    return True


_ENDLESS, _FARTHER = (2.0**16, 2.0**32), 2.0**8  # in the place of infinities, and what they make
LARGE = (2.0**16, -(2.0**10))  # in the place of what is no number
ZEROS = "NaN and infinity that only zeros multiply are passed by"


def _element(value: float) -> Change:
    def change(t: torch.Tensor) -> torch.Tensor:
        t = t.clone(memory_format=torch.contiguous_format)
        if t.numel():
            t.view(-1)[t.numel() // 2] = value
        return t

    return change


def _alone(inputs: list[Any]) -> Iterator[tuple[str, Change, bool]]:
    """A NaN in one of several inputs: beside another one in its place it decides nothing."""
    floats = list(dict.fromkeys(id(t) for t in draws.tensors(inputs) if t.is_floating_point()))
    for number, one in enumerate(floats[:_MOST_ALONE] if len(floats) > 1 else ()):

        def change(t: torch.Tensor, one: int = one) -> torch.Tensor:
            return _element(float("nan"))(t) if id(t) == one else t

        yield f"one NaN, in floating input {number} alone", change, False


_MOST_ALONE = 4  # inputs, and those of two values


def _hidden(inputs: list[Any]) -> Iterator[tuple[str, Change, bool]]:
    """NaN wherever an input of two values, which may be a mask, has the one, or the other: what is
    filled in there is no number times zero."""
    found = [(i, t) for i, t in enumerate(draws.tensors(inputs)) if draws.two_valued(t)]
    for i, mask in found[:_MOST_ALONE]:
        for value in (mask.min(), mask.max()):
            there = mask == value

            def change(t: torch.Tensor, there: torch.Tensor = there) -> torch.Tensor:
                if t.dim() <= there.dim() or t.shape[: there.dim()] != there.shape:
                    return t
                wide = there.reshape(*there.shape, *[1] * (t.dim() - there.dim()))
                return t.masked_fill(wide, float("nan"))

            yield f"NaN where input {i} is {value.item()}", change, False


def _row(value: float) -> Change:
    def change(t: torch.Tensor) -> torch.Tensor:
        t = t.clone(memory_format=torch.contiguous_format)
        if t.numel() and t.dim():
            t[t.shape[0] // 2] = value
        return t

    return change


def _places(value: float, place: Callable[[torch.Tensor, int], torch.Tensor]) -> Change:
    """A value in each row, at a place that the row's number and its width give: who looks at whole
    blocks alone, or begins with the first element, loses it in some rows."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if not t.dim() or not t.numel():
            return t
        t = t.clone(memory_format=torch.contiguous_format)
        rows = t.view(-1, t.shape[-1])
        at = place(torch.arange(len(rows)), rows.shape[1]) % rows.shape[1]
        rows[torch.arange(len(rows)), at] = value
        return t

    return change


def _infinities(t: torch.Tensor) -> torch.Tensor:
    """Row by row: infinities of both signs, two of one sign, of the other, one at the end."""
    if not t.dim() or t.shape[-1] < 4:
        return t
    t = t.clone(memory_format=torch.contiguous_format)
    rows = t.view(-1, t.shape[-1])
    for kind, (first, last) in enumerate(((1, -1), (1, 1), (-1, -1), (0, 1))):
        if first:
            rows[kind::4, 1] = first * float("inf")
        rows[kind::4, -1] = last * float("inf")
    return t


def _runs(t: torch.Tensor) -> torch.Tensor:
    """Row by row: minus infinity in the first half, in the second half, in all but the last, in all
    but the first: as masks of attention, whose blocks may be masked throughout."""
    if not t.dim() or t.shape[-1] < 2:
        return t
    t = t.clone(memory_format=torch.contiguous_format)
    rows = t.view(-1, t.shape[-1])
    half = t.shape[-1] // 2
    spans = (slice(half), slice(half, None), slice(-1), slice(1, None))
    for kind, span in enumerate(spans):
        rows[kind::4, span] = float("-inf")
    return t


def _rows_of_scales(t: torch.Tensor) -> torch.Tensor:
    if t.dim() < 2:
        return t
    steps = 2.0 ** (torch.arange(t.shape[0]) % 21 - 10)
    return t * steps.reshape(-1, *[1] * (t.dim() - 1)).to(t.dtype)


def _signed_zeros(t: torch.Tensor) -> torch.Tensor:
    return torch.copysign(torch.zeros_like(t), t)


def _far(t: torch.Tensor) -> torch.Tensor:
    return t + 3.0e3


_NAN = float("nan")
CASES: tuple[tuple[str, Change, bool], ...] = (
    ("all zeros, both signs", _signed_zeros, True),
    ("denormals", lambda t: t * 1e-40, True),
    ("large values (x 200)", lambda t: t * 200, True),
    ("all shifted by 3000", _far, True),
    ("rows of scales 2^-10 to 2^10", _rows_of_scales, True),
    ("one NaN", _element(float("nan")), False),
    ("one infinity", _element(float("inf")), False),
    ("one row of -infinity", _row(float("-inf")), False),
    ("one row of NaN", _row(float("nan")), False),
    ("a NaN in each row, from the first place on", _places(_NAN, lambda i, _: i), False),
    ("a NaN in each row, from the last place on", _places(_NAN, lambda i, n: n - 1 - i), False),
    ("a NaN in each row, here and there", _places(_NAN, lambda i, n: i * 7919 + n // 3), False),
    ("infinities of both signs, and two of a sign", _infinities, False),
    ("rows that are minus infinity in part", _runs, False),
)


def describe() -> list[Any]:
    """Names of the cases."""
    return [*(name for name, _, _ in CASES), "one NaN, in each floating input alone"]


TEST = Test(
    "hostile values",
    "softmax without its max, cancellation, lost NaN or infinity",
    "Zeros, denormals, large and shifted values, NaN and infinity, alone and in runs, wherever "
    "they lie, come out as eager's do.",
    run,
)
