"""Single calls under weights that no ordinary draw makes: one tensor of another size, one NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.draws.trees import inexact, tensors
from refold.judge.rule import compare
from refold.judge.tests.base import Skip, Test
from refold.judge.tests.lives.common import floating
from refold.judge.tests.values.drawn import has_power
from refold.judge.truth import runs
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised

_SCALES = (2.0**-12, 2.0**12)
_TENSORS = 4  # of which each is tried alone


def _parameters(session: Session, buffers: bool = False) -> list[str]:
    found = floating(session, buffers=False)[:_TENSORS]
    if buffers:
        found += floating(session, parameters=False)[:_TENSORS]
    if not found:
        raise Skip("no floating parameters")
    return found


def _sizes(session: Session) -> Iterator[Failure]:
    given, start, before = session.inputs(), session.state(PERTURBED), session.cases
    parameters = dict(session.oracle.model.named_parameters())
    for name in _parameters(session, buffers=True):
        for scale in _SCALES:
            session.add_state("sized", {k: v * scale if k == name else v for k, v in start.items()})
            session.entered("")  # the worker has the last one of that name
            # running statistics are what counts in eval mode
            mode = None if name in parameters else False
            truth = session.truth(given, "sized", mode)
            if truth.eager is None or not runs.mostly_finite(truth.eager.outputs):
                continue
            if has_power(truth):
                own = {"state": "sized", "training": mode, "limit": True}
                yield from session.check(f"{name} x {scale:g}", given, **own)  # type: ignore[arg-type]
    if session.cases == before:
        raise Skip("eager keeps its digits under none of them")


def _nan(session: Session) -> Iterator[Failure]:
    given, start, before = session.inputs(), session.state(PERTURBED), session.cases
    for name in _parameters(session):
        changed = start[name].clone(memory_format=torch.contiguous_format)
        changed.view(-1)[changed.numel() // 2] = float("nan")
        session.add_state("one nan", {**start, name: changed})
        session.entered("")
        truth = session.truth(given, "one nan")
        if truth.eager is None or not _has_nan(truth.eager.outputs):
            continue
        try:
            outputs = session.call(given, "one nan")["outputs"]
        except Raised as error:
            session.assumptions.add(f"{session.test}: raises where the reference answers")
            session.notes.append(f"{session.test}: {name}: raised {str(error)[:200]}")
            continue
        session.cases += 1
        lost = _lost(outputs, truth.eager.outputs)
        if lost and session.finite_only:
            session.assumptions.add("finite: NaN among the weights is lost")
        elif lost:
            detail = f"{lost} values are numbers where eager's are NaN"
            yield session.fail(Status.WRONG_NUMERICS, f"one NaN in {name}", detail)
    if session.cases == before:
        raise Skip("the reference gives NaN for no NaN in a weight")


def _has_nan(outputs: Any) -> bool:
    return any(inexact(t) and bool(torch.isnan(t).any()) for t in tensors(outputs))


def _lost(outputs: Any, eager: Any) -> int:
    """How many values are numbers where eager's are NaN. More NaN than eager's are no finding: an
    honest scale of a whole tensor is NaN then."""
    mine, theirs = (dict(compare.leaves(tree)) for tree in (outputs, eager))
    count = 0
    for name, value in theirs.items():
        got = mine.get(name)
        if not isinstance(value, torch.Tensor) or not isinstance(got, torch.Tensor):
            continue
        if inexact(value) and inexact(got) and got.shape == value.shape:
            count += int((torch.isnan(value) & ~torch.isnan(got.to(value.device))).sum())
    return count


TESTS: tuple[Test, ...] = (
    Test(
        "one tensor's size",
        "weights clamped, or left out where they are small",
        "Each of four parameters and four buffers alone times 2^-12 and 2^12, wherever eager keeps "
        "its digits.",
        _sizes,
        calls=12,
    ),
    Test(
        "NaN in a weight",
        "weights of a run that diverged, hidden",
        "One NaN in each of four parameters: what is NaN in eager is NaN.",
        _nan,
        calls=4,
    ),
)
