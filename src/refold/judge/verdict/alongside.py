"""Lives are begun in the candidate's worker, and judged when it has lived them.

While it lives one, this process has the reference live the next, and compares the last: both are
Python's own work for the most part, of which two processors do twice as much.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from refold.judge.draws.trees import tensors
from refold.judge.rule import threads
from refold.judge.truth.live import Lived
from refold.judge.verdict import anew
from refold.judge.verdict.life import Life, compared, eager, states_of, steps_of
from refold.judge.verdict.owed import Asked
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised, WorkerDied
from refold.judge.wire.memory import Starved, exhausted

_BUILT = 0.2  # of lives, whose module is no copy, however long its constructor takes
_WHOLE = 0.2  # of quick lives of small models, that have all threads wherever they are
_ASKED = 4  # stale and other answers of a test for which a new module is asked
# tests in which the number of threads may matter: it is as the candidate's users have it
_SIDE_BY_SIDE = {
    *("batches", "every batch", "batches with gradients", "threads", "number of threads"),
    *("many backwards", "volume"),
}
_NO_GRADIENTS = ("NotImplementedError", "does not require grad", "no output requires grad")


def every(
    session: Session, lives: Iterable[Life] | Iterable[tuple[Life, Lived]]
) -> Iterator[Failure]:
    """Judge lives one after another; a life may come with what the reference showed in it."""
    last: Begun | None = None
    stale: list[tuple[Life, Failure]] = []
    for one in lives:
        life, seen = one if isinstance(one, tuple) else (one, None)
        theirs = seen or eager(session, life)
        if theirs.raised is not None:
            continue  # no life of this reference
        if last is not None:
            last.asked.answer()
        now = begun(session, life, theirs)
        if last is not None:
            yield from _set_aside(last, stale)
        last = now
    if last is not None:
        yield from _set_aside(last, stale)
    for i, (life, failure) in enumerate(stale):
        yield _named_anew(session, life, failure) if i < _ASKED else failure


def _set_aside(last: Begun, stale: list[tuple[Life, Failure]]) -> Iterator[Failure]:
    """What a life showed; what may be stale, or of values alone, waits until the worker has time
    to tell."""
    for failure in last.judged():
        if failure.status in anew.OTHER_NAMES:
            stale.append((last.life, failure))
        else:
            yield failure


def _named_anew(session: Session, life: Life, failure: Failure) -> Failure:
    one = anew.fresh(session, life, failure)
    theirs = None if one is None else eager(session, one)
    if one is None or theirs is None or theirs.raised is not None:
        return failure
    try:
        mine = Lived.of(begun(session, one, theirs).asked.answer())
    except Raised:
        return failure
    except WorkerDied:
        session.dismiss()
        return failure
    return anew.named(session, one, failure, mine, theirs)


def asked(session: Session, life: Life) -> dict[str, Any]:
    """What the candidate's worker answers to a life."""
    answer: dict[str, Any] = _posted(session, life).answer()
    return answer


def begun(session: Session, life: Life, theirs: Lived) -> Begun:
    """The candidate's worker begins a life, in which the reference showed ``theirs``."""
    life = replace(life, own=states_of(session, life), states=())  # as they are named now
    asked = _posted(session, life)
    session.cases += 1
    return Begun(session, life, theirs, asked)


@dataclass(frozen=True)
class Begun:
    """A life that the candidate's worker lives while this process does something else."""

    session: Session
    life: Life
    theirs: Lived
    asked: Asked

    def judged(self) -> Iterator[Failure]:
        """Wait for it, and compare."""
        mine = Lived.of(self.asked.answer())
        yield from compared(self.session, self.life, mine, self.theirs)
        if mine.raised is not None:
            yield from _raised(self.session, self.life, mine.raised)


def _posted(session: Session, life: Life) -> Asked:
    host = session.worker()
    states = {n: s for n, s in states_of(session, life).items() if session.unheld(("state", n), s)}
    inputs = {n: v for n, v in life.inputs.items() if session.unheld(("inputs", n), v)}
    if states or inputs:
        host.request("hold", 120, states=states, inputs=inputs)
    patience = session.limits.call_seconds * (1 + len(life.steps) / 8)
    chance = random.Random(f"{session.secret} {session.test} {life.case}").random()
    anew = life.built or session.alone or chance < _BUILT
    asked = {"steps": steps_of(session, life), "seed": session.seed + 7, "anew": anew}
    return session.post("live", patience, **asked, alone=_by_one_thread(session, life))


def _by_one_thread(session: Session, life: Life) -> bool:
    """Whether one of PyTorch's threads lives a life: of a small model two wait for one another
    longer than they work, on a busy machine for most of the time. Single calls, lives of many sizes
    and of many calls, and some of the others, a secret choice, have all threads."""
    if not session.quick or session.alone or session.device.type != "cpu":
        return False
    drawn = random.Random(f"{session.secret} threads {session.test} {life.case}").random()
    elements = session.oracle.bytes // 4
    elements += sum(t.numel() for v in life.inputs.values() for t in tensors(v))
    return threads.small(elements) and session.test not in _SIDE_BY_SIDE and drawn >= _WHOLE


def _raised(session: Session, life: Life, raised: dict[str, Any]) -> Iterator[Failure]:
    words = f"{raised['type']}: {raised['message']}"[:200]
    if exhausted(str(raised["type"]), str(raised["message"])):
        raise Starved(f"the candidate: {words}")
    if raised["type"] == "Missing":
        session.notes.append(f"{session.test}: {life.case}: not tried, {raised['message']}")
    elif life.must or (life.firm and life.steps[raised["step"]].get("label") == life.firm):
        yield session.fail(Status.CRASHED, life.case, f"raised {words}")
    elif life.quiet:
        session.notes.append(f"{session.test}: {life.case}: raised {words}")
    elif any(word in words for word in _NO_GRADIENTS):
        session.assumptions.add(f"inference only: {session.test}")
    else:
        session.assumptions.add(f"{session.test}: raises where the reference answers")
        session.notes.append(f"{session.test}: {life.case}: raised {words}")
