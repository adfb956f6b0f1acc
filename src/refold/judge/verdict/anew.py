"""What is wrong behind a write is stale only where a new module with these weights is right."""

from __future__ import annotations

from dataclasses import replace

from refold.judge.truth.live import Lived
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.worker.steps import Step

_THEN = "the state then"
# what leaves nothing but other weights behind, and a mode of the whole
_PLAIN = {
    *("build", "call", "mode", "write", "write_part", "write_state", "load", "load_part", "own"),
    *("backward", "zero", "optimizer", "update", "take", "put_back", "save", "restore", "state"),
}


def fresh(session: Session, one: Life, failure: Failure) -> Life | None:
    """A life in which a new module is built with the weights that the reference had at the call
    that came out wrong, and makes that call; None where that cannot be said."""
    label = failure.case.removeprefix(f"{one.case}: ") if one.case else failure.case
    at = next((i for i, s in enumerate(one.steps) if s.get("label") == label), 0)
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
    """The failure, whose values are wrong and not stale where the new module's are wrong, too."""
    wrong = mine.raised is None and any(True for _ in life.compared(session, one, mine, theirs))
    return replace(failure, status=Status.WRONG_NUMERICS) if wrong else failure


def _of_the_whole(step: Step) -> bool:
    return not step.get("path") and step.get("model", "a") == "a" and "init" not in step
