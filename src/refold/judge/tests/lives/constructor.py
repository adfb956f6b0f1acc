"""The constructor's numbers, each changed: a second build of both sides."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from refold.judge import draws
from refold.judge.clock.stopwatch import effort
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import call, inputs, living
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status

_NUMBERS = 8
# what a quick judgement builds at most: bytes of states; seconds of the reference's own work
_QUICK_BYTES, _QUICK_SECONDS = 256 << 20, 4.0


def _others(value: Any) -> list[Any]:
    """Other values of a constructor's argument; what may be a probability stays one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return list(dict.fromkeys((value + 1, value - 1, 2 * value)))
    if isinstance(value, float) and math.isfinite(value):
        return [(1 + value) / 2 if 0 <= value < 1 else 1.5 * value]
    return []


def _varied(session: Session) -> Iterator[Life]:
    init = session.oracle.init
    found = [(i, new) for i, value in enumerate(init) for new in _others(value)]
    if len(found) > _NUMBERS:
        found = random.Random(session.secret).sample(found, _NUMBERS)
    elif session.quick:
        random.Random(session.secret).shuffle(found)
    spent, built = effort(), 0
    hurried = session.quick and not session.alone
    for at, new in found:
        if hurried and (built > _QUICK_BYTES or spent() > _QUICK_SECONDS):
            session.notes.append(f"{session.test}: a secret choice of numbers; building takes long")
            return
        given = [new if i == at else v for i, v in enumerate(init)]
        try:
            model = session.reference.make(session.seed, given)
        except Exception:  # no such module
            continue
        built += sum(v.numel() * v.element_size() for v in model.state_dict().values())
        held = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
        state = draws.perturbed(held, session.seed + 31)
        steps = [{"do": "build", "state": "other", "init": given}, call("y"), call("again", "x1")]
        one = Life(
            f"argument {at} = {new} instead of {init[at]}",
            tuple(steps),
            inputs(session),
            states=(),
            own={"other": state},
            status=Status.WRONG_CONTRACT,
        )
        if life.eager(session, one).raised is None:
            yield one


TESTS: tuple[Test, ...] = (
    living(
        "constructor",
        "sizes and numbers of the constructor that are built in",
        "The constructor's whole numbers, one more, one less and doubled, its switches and other "
        "numbers, where taken.",
        _varied,
        12,
    ),
)
