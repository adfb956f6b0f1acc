"""numerics: the error rule on the file's inputs (in both modes) and on zero-mean normals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import differ, inexact, tensors
from refold.judge.rule import beside
from refold.judge.rule.beside import some
from refold.judge.tests.base import Test
from refold.judge.truth.copies import widen
from refold.judge.truth.runs import distance
from refold.judge.truth.truth import Truth
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL
from refold.judge.verdict.verdict import Failure, Status

_ROUNDINGS = 128  # of the outputs' scale: more is another function, less another order of sums


def run(session: Session) -> Iterator[Failure]:
    """Distributions, with the vacuity of each measured."""
    previous: _Known | None = None
    for number, (name, inputs) in enumerate(_cases(session)):
        truth = session.truth(inputs)
        if truth.eager is None:
            if not number:
                session.notes.append(f"the reference raises on its own inputs: {truth.raised}")
            continue
        if has_power(session, inputs, truth, previous):
            session.powered += 1
        else:
            session.notes.append(f"no power: a trivial answer passes on {name}")
        previous = _known(truth, inputs)
        for failure in session.check(name, inputs):
            session.plain.wrong = True
            yield failure
    session.plain.never_right = session.plain.wrong and _wrong_at_first(session)
    session.plain.wrong_in_both = True
    yield from _other_mode(session)


def _wrong_at_first(session: Session) -> bool:
    """Whether the function is wrong under the constructor's weights, too: it is not stale then."""
    given = session.cut(session.file_inputs())
    truth = session.truth(given, INITIAL)
    if truth.eager is None:
        return True
    return not session.agrees(session.call(given, INITIAL)["outputs"], truth)


def _cases(session: Session) -> Iterator[tuple[str, list[Any]]]:
    """Inputs by name, each drawn when its turn comes."""
    yield "the file's inputs", session.file_inputs()
    if draws.has_numbers(session.file_inputs()):
        scales = (1.0,) if session.frugal else draws.SCALES
        whole = session.file_inputs()
        for i, scale in enumerate(scales):
            shape = whole if scale == 1.0 and not session.large else session.cut(whole)
            probe = draws.normal(shape, scale, session.seed + 3000 + i)
            if session.frugal:
                probe = session.inputs()  # shared with the other tests: truths are dear
            yield f"normal inputs, scale 2^{int(torch.tensor(scale).log2())}", probe
    if not (session.quick or session.frugal):
        yield "the file's inputs, second draw", session.file_inputs(1)
    if not session.frugal:
        yield from _secret(session)


def _secret(session: Session) -> Iterator[tuple[str, list[Any]]]:
    """Draws that no candidate can have foreseen from ``--seed``; the verdict tells the secret."""
    drawn = session.cut(session.drawn(session.secret))
    yield "the file's inputs, a secret draw", drawn
    if draws.has_numbers(drawn):
        yield "normal inputs, a secret draw", draws.normal(drawn, 1.0, session.secret + 1)


def _other_mode(session: Session) -> Iterator[Failure]:
    """The file's inputs in the mode that the file's model is not in, where that matters."""
    inputs, mode = session.file_inputs(), session.oracle.training
    few = session.cut(inputs)  # says as well whether the modes differ
    truth = session.truth(few)
    if truth.eager is None:
        return
    try:
        session.oracle_enter(session.base_state)
        other = session.oracle.eager(few, not mode, session.seed + 7)
    except Exception:
        return  # the reference does not run in that mode
    pairs = zip(tensors(truth.eager.outputs), tensors(other.outputs), strict=False)
    if all(_alike(a, b) for a, b in pairs):
        return
    name = "the file's inputs, " + ("eval" if mode else "train")
    session.plain.wrong_in_both = False
    for failure in session.check(name, inputs, Status.WRONG_MODE, training=not mode):
        session.plain.wrong_in_both = session.plain.wrong
        yield failure


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two runs differ by the order of their sums at most, which on some processors depends
    on where a tensor lies."""
    if not differ([a], [b]):
        return True
    if a.shape != b.shape or not inexact(a):
        return False
    finite = widen(a)[torch.isfinite(a)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return distance(a, b)[1] <= _ROUNDINGS * torch.finfo(a.dtype).eps * scale and bool(
        torch.equal(torch.isfinite(a), torch.isfinite(b))
    )


_Known = tuple[Any, list[Any]]  # some samples of an answer, and the inputs of which it comes


def _known(truth: Truth, inputs: list[Any]) -> _Known:
    assert truth.eager is not None
    return draws.every(some(truth.eager.outputs), torch.Tensor.clone), inputs


def has_power(session: Session, inputs: list[Any], truth: Truth, previous: _Known | None) -> bool:
    """Whether zeros, the mean, the input and the previous output are all rejected here.

    The mean of a single element is the right answer; another draw's answer stands for it.
    """
    assert truth.eager is not None
    outputs = truth.eager.outputs
    if not any(bool(torch.isfinite(some(t)).any()) for t in tensors(outputs)):
        return False  # empty, or NaN everywhere, which is as easily said
    if all(t.numel() <= 1 for t in tensors(outputs)) and previous is None:
        other = session.truth(session.file_inputs(1))
        previous = None if other.eager is None else _known(other, session.file_inputs(1))
    if any(session.agrees(answer, truth) for answer in _trivial(inputs, outputs)):
        return False
    if previous is None or not session.few_agree(previous[0], truth):
        return True
    again = session.truth(previous[1]).eager
    return again is None or not session.agrees(again.outputs, truth)


def _trivial(inputs: list[Any], outputs: Any) -> Iterator[Any]:
    """Answers that compute nothing, each made when its turn comes. They take no memory of the
    outputs' size, but for the inputs in other strides."""

    def constant(t: torch.Tensor, value: float) -> torch.Tensor:
        return torch.full((), value, dtype=t.dtype, device=t.device).expand(t.shape)

    yield draws.every(outputs, lambda t: constant(t, 0))
    if any(t.numel() > 1 for t in tensors(outputs)):
        yield draws.every(outputs, lambda t: constant(t, _mean(t)))
    given = {(t.shape, t.dtype): t for t in tensors(inputs)}
    if all((t.shape, t.dtype) in given for t in tensors(outputs)):
        yield draws.every(outputs, lambda t: given[(t.shape, t.dtype)])


def _mean(t: torch.Tensor) -> float:
    """Of the finite values; zero of what is no floating tensor."""
    if not t.is_floating_point():
        return 0.0
    total, count = 0.0, 0
    for at in beside.slices(t.numel(), t.device):
        part = beside.piece(t, at)
        finite = torch.isfinite(part)
        total += float(torch.where(finite, part, 0.0).sum(dtype=torch.float64))
        count += int(finite.sum())
    return total / max(count, 1)


TEST = Test(
    "numerics",
    "wrong functions, TF32 or half operands, narrow accumulators, constants",
    "Errors against float64 stay within k times eager's, per output and row.",
    run,
    frugal=True,
)
