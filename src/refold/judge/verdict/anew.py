"""What is wrong behind a write is stale only where a new module with these weights is right; and
what is wrong behind a refusal comes of it only where a new module is right.
"""

from __future__ import annotations

from dataclasses import replace

from refold.judge.truth.live import Lived
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.naming import WRITES
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.worker.steps import Step

_THEN = "the state then"
# what leaves nothing but other weights behind, and a mode of the whole
_PLAIN = {
    *("build", "call", "mode", "write", "write_part", "write_state", "load", "load_part", "own"),
    *("backward", "zero", "optimizer", "update", "take", "put_back", "save", "restore", "state"),
}
_OF_A_CALL = {"do", "inputs", "label", "rows", "grad", "want"}

OTHER_NAMES = (Status.STALE_WEIGHTS, Status.CRASHED)  # than that of wrong values


def fresh(session: Session, one: Life, failure: Failure) -> Life | None:
    """A life in which a new module makes the call that came out wrong, and that alone; None where
    that cannot be said."""
    if failure.status is Status.STALE_WEIGHTS:
        return _rewritten(session, one, failure)
    return _plainly(one, failure)


def _asked(one: Life, failure: Failure) -> int:
    """Which step of a life showed what is wrong; 0 if none."""
    label = failure.case.removeprefix(f"{one.case}: ") if one.case else failure.case
    return next((i for i, s in enumerate(one.steps) if s.get("label") == label), 0)


def _plainly(one: Life, failure: Failure) -> Life | None:
    """Where no weight was written: the call on these inputs, as the first of all."""
    at = _asked(one, failure)
    before, asked = one.steps[:at], one.steps[at]
    if not at or asked["do"] != "call" or "words" in asked or "given_to" in asked:
        return None
    if any(s["do"] in WRITES or not _of_the_whole(s) for s in (*before, asked)):
        return None
    builds = [s for s in before if s["do"] == "build"][-1:]
    modes = [s for s in before if s["do"] == "mode"][-1:]
    call = {key: value for key, value in asked.items() if key in _OF_A_CALL}
    steps = (*builds, *modes, call)
    if len(steps) == at + 1 and call == asked:
        return None  # it is what was asked
    return replace(one, steps=steps, built=True)


def _rewritten(session: Session, one: Life, failure: Failure) -> Life | None:
    """A life in which a new module is built with the weights that the reference had at the call
    that came out wrong, and makes that call; None where that cannot be said."""
    at = _asked(one, failure)
    before, asked = one.steps[:at], one.steps[at]
    plain = all(s["do"] in _PLAIN and _of_the_whole(s) for s in before)
    if not at or asked["do"] != "call" or "given_to" in asked or not plain:
        return None
    names = list(session.oracle.state())
    look: Step = {"do": "state", "names": names, "label": _THEN}
    seen = life.eager(session, replace(one, steps=(*before, look))).seen
    if _THEN not in seen or seen[_THEN][1].keys() != set(names):
        return None
    modes = [s for s in before if s["do"] == "mode"][-1:]
    steps: tuple[Step, ...] = ({"do": "build", "state": _THEN}, *modes, asked)
    own = {_THEN: seen[_THEN][1]}
    return Life(one.case, steps, one.inputs, (), one.status, own=own, built=True)


def named(session: Session, one: Life, failure: Failure, mine: Lived, theirs: Lived) -> Failure:
    """The failure, which is one of values alone where the new module's are wrong, too."""
    plain = replace(one, status=Status.WRONG_NUMERICS)
    found = [] if mine.raised is not None else list(life.compared(session, plain, mine, theirs))
    wrong = any(f.status is Status.WRONG_NUMERICS for f in found)
    return replace(failure, status=Status.WRONG_NUMERICS) if wrong else failure


def _of_the_whole(step: Step) -> bool:
    return not step.get("path") and step.get("model", "a") == "a" and "init" not in step
