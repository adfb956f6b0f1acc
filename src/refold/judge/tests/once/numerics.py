"""numerics: the error rule on the file's inputs (in both modes) and on zero-mean normals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Test
from refold.judge.truth.oracle import Truth, digest
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """Distributions, with the vacuity of each measured."""
    cases: list[tuple[str, list[Any]]] = [("the file's inputs", session.file_inputs())]
    if draws.has_floats(session.file_inputs()):
        scales = (1.0,) if session.frugal else draws.SCALES
        whole = session.file_inputs()
        for i, scale in enumerate(scales):
            shape = whole if scale == 1.0 and not session.large else session.cut(whole)
            probe = draws.normal(shape, scale, session.seed + 3000 + i)
            if session.frugal:
                probe = session.inputs()  # shared with the other tests: truths are dear
            cases.append((f"normal inputs, scale 2^{int(torch.tensor(scale).log2())}", probe))
    if not (session.quick or session.frugal):
        cases.append(("the file's inputs, second draw", session.file_inputs(1)))
    if not session.frugal:
        cases += _secret(session)
    previous: Any = None
    for name, inputs in cases:
        truth = session.truth(inputs)
        if truth.eager is None:
            if name == cases[0][0]:
                session.notes.append(f"the reference raises on its own inputs: {truth.raised}")
            continue
        if has_power(session, inputs, truth, previous):
            session.powered += 1
        else:
            session.notes.append(f"no power: a trivial answer passes on {name}")
        previous = truth.eager.outputs
        for failure in session.check(name, inputs):
            session.plainly_wrong = True
            yield failure
    yield from _other_mode(session)


def _secret(session: Session) -> list[tuple[str, list[Any]]]:
    """Draws that no candidate can have foreseen from ``--seed``; the verdict tells the secret."""
    drawn = session.cut(session.reference.inputs(session.secret))
    cases = [("the file's inputs, a secret draw", drawn)]
    if draws.has_floats(drawn):
        probe = draws.normal(drawn, 1.0, session.secret + 1)
        cases.append(("normal inputs, a secret draw", probe))
    return cases


def _other_mode(session: Session) -> Iterator[Failure]:
    """The file's inputs in the mode that the file's model is not in, where that matters."""
    inputs, mode = session.file_inputs(), session.oracle.training
    truth = session.truth(inputs)
    if truth.eager is None:
        return
    try:
        other = session.oracle.eager(inputs, not mode, session.seed + 7)
    except Exception:
        return  # the reference does not run in that mode
    pairs = zip(tensors(truth.eager.outputs), tensors(other.outputs), strict=False)
    if all(digest(a) == digest(b) for a, b in pairs):
        return
    name = "the file's inputs, " + ("eval" if mode else "train")
    yield from session.check(name, inputs, Status.WRONG_MODE, training=not mode)


def has_power(session: Session, inputs: list[Any], truth: Truth, previous: Any) -> bool:
    """Whether zeros, the mean, the input and the previous output are all rejected here.

    The mean of a single element is the right answer; another draw's answer stands for it.
    """
    assert truth.eager is not None
    outputs = truth.eager.outputs
    if not any(bool(torch.isfinite(t).any()) for t in tensors(outputs)):
        return False  # empty, or NaN everywhere, which is as easily said

    def mean(t: torch.Tensor) -> torch.Tensor:
        if not t.is_floating_point():
            return torch.zeros_like(t)
        finite = torch.isfinite(t)
        total = torch.where(finite, t, 0.0).sum(dtype=torch.float64)
        return torch.full_like(t, float(total / finite.sum().clamp(min=1)))

    trivial = [_each(outputs, torch.zeros_like)]
    if any(t.numel() > 1 for t in tensors(outputs)):
        trivial.append(_each(outputs, mean))
    elif previous is None:
        other = session.truth(session.file_inputs(1)).eager
        previous = None if other is None else other.outputs
    given = {(t.shape, t.dtype): t for t in tensors(inputs)}
    if all((t.shape, t.dtype) in given for t in tensors(outputs)):
        trivial.append(_each(outputs, lambda t: given[(t.shape, t.dtype)].contiguous()))
    if previous is not None:
        trivial.append(previous)
    return not any(session.agrees(answer, truth) for answer in trivial)


def _each(tree: Any, change: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        return type(tree)(_each(v, change) for v in tree)
    if isinstance(tree, dict):
        return {k: _each(v, change) for k, v in tree.items()}
    return tree


TEST = Test(
    "numerics",
    "wrong functions, TF32 or half operands, narrow accumulators, constants",
    "Errors against float64 stay within k times eager's, per output and row.",
    run,
    frugal=True,
)
