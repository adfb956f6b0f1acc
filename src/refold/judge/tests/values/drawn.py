"""Single calls on values that no ordinary draw makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.values.beyond import within
from refold.judge.truth import runs
from refold.judge.truth.power import has_power
from refold.judge.verdict.room import starving
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.memory import at_most

_FAR = (1e-30, 1e-24, 1e-12, 1e-6, 1e4, 1e6, 1e9, 1e19, 1e25)
_NEAR = 2.0**-16
_SQUARES = 1e18  # above it, and below its reciprocal, float32 has no such square
_LARGE = (1e4, 1e6, 1e8)
_LARGER = 64.0
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_ROOM = 1 << 30  # bytes that a call may take because of the integers that it is given


def _bears_squares(session: Session, given: list[Any]) -> bool:
    """Whether PyTorch has power without cuDNN, too: cuDNN's batch norm sums squares in float64,
    PyTorch's own in float32, and nobody is held to more than PyTorch's own kernels do."""
    truth = session.truth(given)
    if truth.eager is None:
        return False
    session.oracle_enter(session.base_state)
    enabled = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        run = session.oracle.eager(given, session.oracle.training, session.seed + 7)
    except Exception as error:
        if starving(error):
            raise
        return True  # PyTorch has no other kernels for it
    finally:
        torch.backends.cudnn.enabled = enabled
    return runs.mostly_finite(run.outputs) and has_power(truth, run.outputs)


def _checked(session: Session, case: str, given: list[Any], **options: Any) -> Iterator[Failure]:
    """A case, where eager has power in it."""
    if has_power(session.truth(given, options.get("state"))):
        yield from session.check(case, given, limit=True, **options)


def _initial(session: Session) -> Iterator[Failure]:
    for draw in (0, 1):
        whole = session.file_inputs(draw)
        given = session.cut(whole) if draw or session.large else whole
        case = f"the file's inputs, weights as constructed ({draw + 1})"
        yield from session.check(case, given, state=INITIAL)


def _signed(session: Session) -> Iterator[Failure]:
    drawn = draws.signed(session.state(INITIAL), session.seed + 77)
    other = {k: v * -4 if v.is_floating_point() else v for k, v in drawn.items()}
    given, mode, before = session.inputs(), session.oracle.training, session.cases
    for name, state in (("signed", drawn), ("signed otherwise", other)):
        session.add_state(name, session.legal(state))
        truth = session.truth(given, name)
        if truth.eager is None or not runs.mostly_finite(truth.eager.outputs):
            continue
        case = f"weights of both signs ({name})"
        yield from session.check(case, given, state=name)
        yield from session.check(f"{case}, other mode", given, state=name, training=not mode)
        # what comes off before a factor of the other sign leaves the range of exp in large inputs
        large = draws.valued(given, lambda t: t * _LARGER)
        yield from _checked(session, f"{case}, inputs x {_LARGER:g}", large, state=name)
    if session.cases == before:
        raise Skip("the reference makes nothing finite of weights of both signs")


def _magnitudes(session: Session) -> Iterator[Failure]:
    given = session.inputs()
    if not draws.has_numbers(given):
        raise Skip("no floating inputs")
    for scale in _FAR:
        far = draws.valued(given, lambda t, s=scale: (t.double() * s).to(t.dtype))
        if not 1 / _SQUARES < scale < _SQUARES and not _bears_squares(session, far):
            continue
        yield from within(session, far, _checked(session, f"inputs x {scale:g}", far))
        if scale in (1e-24, 1e19):
            for case, mixed in draws.alone(given, far):
                yield from _checked(session, f"{case} x {scale:g}", mixed)
    yield from _near_zero(session, given)


def _near_zero(session: Session, given: list[Any]) -> Iterator[Failure]:
    """Small inputs and, of parameters, what is added to them: behind a bias of ordinary size
    nothing is small, and what cancels near zero does not show."""
    start = session.state(session.base_state)
    own = dict(session.oracle.model.named_parameters())
    small = {k: v * _NEAR for k, v in start.items() if k in own and v.dim() < 2 and inexact(v)}
    if not small:
        return
    session.add_state("near zero", {**start, **small})
    session.entered("")
    near = draws.valued(given, lambda t: t * _NEAR)
    case = f"inputs and parameters of one axis x {_NEAR:g}"
    yield from _checked(session, case, near, state="near zero")


def _sample(session: Session) -> Iterator[Failure]:
    given = session.inputs()
    if not draws.has_numbers(given):
        raise Skip("no floating inputs")
    for scale in _LARGE:

        def one(t: torch.Tensor, scale: float = scale) -> torch.Tensor:
            if not t.dim() or t.shape[0] < 2:
                return t
            t = t.clone(memory_format=torch.contiguous_format)
            t[t.shape[0] // 3] *= scale
            return t

        yield from session.check(f"one sample x {scale:g}", draws.valued(given, one), limit=True)


def _ids(session: Session) -> Iterator[Failure]:
    given = session.cut(session.file_inputs())
    integers = [t for t in tensors(given) if not inexact(t) and t.dtype is not torch.bool]
    if not any(t.numel() for t in integers):
        raise Skip("no integers among the inputs")

    def fifth(value: int, rest: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
        def change(t: torch.Tensor) -> torch.Tensor:
            if inexact(t) or t.dtype is torch.bool or not t.numel():
                return t
            t = t.clone(memory_format=torch.contiguous_format)
            info = torch.iinfo(t.dtype)
            chosen = (torch.arange(t.numel()) % 5 == 0) ^ rest
            t.view(-1)[chosen] = min(max(value, info.min), info.max)
            return t

        return change

    def filled(value: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def change(t: torch.Tensor) -> torch.Tensor:
            signed = not inexact(t) and t.dtype is not torch.bool and t.dtype.is_signed
            return torch.full_like(t, value) if signed else t

        return change

    def moved(by: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def change(t: torch.Tensor) -> torch.Tensor:
            wide = not inexact(t) and t.dtype is torch.int64
            return t + by if wide else t

        return change

    cases: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        (f"each fifth {value}", fifth(value)) for value in (-1, -100, 0, 2**63 - 1, -(2**63))
    ]
    # what is special about a few shows by chance
    cases += [(f"all but each fifth {value}", fifth(value, True)) for value in (-1, -100)]
    cases += [(f"all {value}", filled(value)) for value in (-1, -100, 0)]
    cases += [(f"all + 2^{n}", moved(1 << n)) for n in (30, 40)]
    cases += [("all x 1000003", lambda t: t * 1000003 if t.dtype is torch.int64 else t)]
    for case, change in cases:
        # on the CPU, where a wrong index raises and asserts nothing on a device
        changed = draws.every(given, change)
        if _in_bounds(session, changed):
            yield from session.check(case, changed, limit=True)
    for dtype in (torch.int32, torch.int16, torch.uint8, torch.int64):
        other = draws.every(given, lambda t, d=dtype: _narrow(t, d))
        if all(a is b for a, b in zip(tensors(other), tensors(given), strict=True)):
            continue
        name = str(dtype).removeprefix("torch.")
        yield from _typed(session, f"as {name}", other)
        if dtype is torch.int64:  # values that the file's type has not
            for value in (-1, 1000):
                more = draws.every(other, fifth(value))
                if _in_bounds(session, more):
                    yield from _typed(session, f"as {name}, each fifth {value}", more)
    # numbers that a table of all integers has not, where the reference computes with them
    halves = draws.every(given, lambda t: t + 0.5 if t.dtype in _WHOLE else t)
    yield from _typed(session, "as float32, with halves", halves)


def _typed(session: Session, case: str, given: list[Any]) -> Iterator[Failure]:
    for failure in session.check(case, given, limit=True):
        if failure.status is Status.WRONG_CONTRACT:
            text = "integers of other types than the file's come out in another type"
            session.assumptions.add(text)
        else:
            yield failure


def _in_bounds(session: Session, given: list[Any]) -> bool:
    """Whether the reference finds ordinary memory enough: an integer may say how much it takes."""
    if session.device.type != "cpu":
        return True  # truth/rehearsal.py asks the CPU first whether an index is out of range
    try:
        with at_most(_ROOM):
            return session.truth(given).eager is not None
    except Exception as error:
        if not starving(error):
            raise
        return False


def _narrow(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Integers in another type that has them all."""
    if inexact(t) or t.dtype in (torch.bool, dtype) or not t.numel():
        return t
    info = torch.iinfo(dtype)
    return t.to(dtype) if info.min <= int(t.min()) and int(t.max()) <= info.max else t


def _masks(session: Session) -> Iterator[Failure]:
    given = session.cut(session.file_inputs())
    found = [i for i, t in enumerate(tensors(given)) if draws.two_valued(t)]
    if not found:
        raise Skip("no input of two values")
    for at in found:
        for case, change in _two_valued(tensors(given)[at]):
            order = iter(range(len(tensors(given))))

            def put(
                t: torch.Tensor, at: int = at, n: Any = order, new: torch.Tensor = change
            ) -> torch.Tensor:
                return new if next(n) == at else t

            yield from session.check(f"input {at} {case}", draws.every(given, put), limit=True)


def _two_valued(mask: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    low, high = mask.min(), mask.max()
    if mask.dtype is torch.bool:
        low, high = torch.tensor(False), torch.tensor(True)
    yield f"all {low.item()}", torch.full_like(mask, low.item())
    yield f"all {high.item()}", torch.full_like(mask, high.item())
    if mask.dim() > 1:
        for value in (low, high):
            rows = mask.clone()
            rows.reshape(-1, mask.shape[-1])[::3] = value
            yield f"with each third row {value.item()}", rows
    places = torch.arange(mask.shape[-1]) if mask.dim() else torch.zeros(())
    if mask.dim() > 1:  # of padding: rows of several lengths
        lengths = 1 + torch.arange(mask[..., :1].numel()).reshape(mask[..., :1].shape) * 5
        behind = places >= lengths % mask.shape[-1]
        yield f"{low.item()}, then {high.item()}", torch.where(behind, high, low)
        yield f"{high.item()}, then {low.item()}", torch.where(behind, low, high)
        # as many in each row, elsewhere in each
        size, rows = mask.shape[-1], torch.arange(mask[..., :1].numel())
        some = (places - 3 * rows.reshape(mask[..., :1].shape)) % size < (size + 2) // 3
        yield f"as many {high.item()} in each row", torch.where(some, high, low)
    between = [v for v in (-1.0, -0.5, 0.25, 0.5) if low < v < high]
    if mask.is_floating_point() and between:  # a bias, or a weight, which may be any number
        drawn = torch.arange(mask.numel()).reshape(mask.shape) * 7 % 11 % (2 + len(between))
        ends = [low.item(), high.item()]
        yield "of numbers between, too", torch.tensor([*ends, *between])[drawn].to(mask.dtype)
    for dtype in (torch.uint8, torch.int64, torch.bool, torch.float32):
        if dtype is not mask.dtype:
            yield f"as {str(dtype).removeprefix('torch.')}", mask.to(dtype)


def _tails(session: Session) -> Iterator[Failure]:
    given = session.inputs()
    if not draws.has_numbers(given):
        raise Skip("no floating inputs")
    for case, change in _wider():
        wide, limit = draws.valued(given, change), case.startswith("one")
        yield from within(session, wide, session.check(case, wide, limit=limit))
    said = tensors(session.cut(session.file_inputs()))
    marks = [i for i, t in enumerate(said) if inexact(t) and draws.two_valued(t)]
    if not 0 < len(marks) < sum(map(inexact, said)):
        return
    for case, change in _wider():  # beside a target of zeros and ones small losses are alone
        order = iter(range(len(said)))

        def kept(t: torch.Tensor, n: Any = order, of: Any = change) -> torch.Tensor:
            i = next(n)
            return said[i] if i in marks else of(t) if inexact(t) else t

        marked = draws.every(given, kept)
        case = f"{case}, but for inputs of two values"
        yield from within(session, marked, session.check(case, marked, limit=True))


def _wider() -> Iterator[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """Changes after which most of what a softmax, or a sigmoid, gives is small."""
    for scale in (8.0, 24.0, 60.0):

        def peaked(t: torch.Tensor, s: float = scale) -> torch.Tensor:
            t = t.clone(memory_format=torch.contiguous_format)
            if t.dim():
                t[..., 0] += s
            return t

        yield f"inputs x {scale:g}", lambda t, s=scale: t * s  # type: ignore[misc]
        yield f"one peak of {scale:g} a row", peaked


def _layouts(session: Session) -> Iterator[Failure]:
    given = session.inputs()
    if not tensors(given):
        raise Skip("no tensors among the inputs")
    for case, changed in (*draws.axes(given), *draws.one_for_all(given)):
        yield from session.check(case, changed, limit=True)


TESTS: tuple[Test, ...] = (
    Test(
        "initial state",
        "errors that show only under the weights that the constructor draws",
        "The file's inputs under the weights as constructed, where large terms may cancel.",
        _initial,
        calls=4,
    ),
    Test(
        "signed state",
        "weights taken for positive",
        "Every floating parameter of either sign; under larger inputs, too.",
        _signed,
        calls=6,
    ),
    Test(
        "far magnitudes",
        "squares that overflow, sums that run out of range, what cancels near zero",
        "Inputs from 1e-30 to 1e25, where eager keeps its digits; the farthest without cuDNN, too; "
        "small ones with small parameters of one axis.",
        _magnitudes,
        calls=26,
    ),
    Test(
        "one large sample",
        "samples that share a scale",
        "One sample of 1e8 beside others, each held to its own scale.",
        _sample,
        calls=6,
    ),
    Test(
        "far ids",
        "indices cut to 32 bits, or of one type, special indices ignored",
        "Integers far away, negative, all of one special value, at the ends of their type, in "
        "other types and halves between them, where taken.",
        _ids,
        calls=18,
    ),
    Test(
        "masks",
        "rows that are masked throughout, masks of one type",
        "Masks all true, all false, of rows, of padding, of as many in each row, of numbers "
        "between, and in other types, where taken.",
        _masks,
        calls=15,
    ),
    Test(
        "tails",
        "small values that come out as zero",
        "What eager and float64 agree on is never zero; inputs of two values, as marks of a loss, "
        "stay so, too.",
        _tails,
        calls=12,
    ),
    Test(
        "layout of each axis",
        "strides of one axis ignored",
        "Each axis narrowed, exchanged with the first, expanded; one row of an input for all, "
        "where that is taken.",
        _layouts,
        calls=20,
    ),
)
