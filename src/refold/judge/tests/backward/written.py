"""Lives in which what a backward needs is written before it: PyTorch refuses that."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge import draws
from refold.judge.tests.lives.common import begin, call, inputs, trained
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.worker.steps import Step

_LABEL = "whether it is refused"
_NOT_NOTICED = "{} that are written between forward and backward are not noticed"
_FORWARD = call("y", grad=True, want=True, see=False)
_REFUSED: Step = {"do": "refuse_backward", "of": "y", "label": _LABEL}


def lives(session: Session) -> Iterator[Life]:
    """Weights, inputs and outputs are written between forward and backward."""
    names = trained(session)
    write: Step = {"do": "write", "names": names, "how": "in place", "factor": 1.25}
    if names:
        yield _told(session, "weights written before the backward", [_FORWARD, write], "weights")
    if not draws.has_numbers(session.inputs()):
        return
    touched: list[Step] = [_FORWARD, {"do": "touch", "of": "y"}]
    grads: list[Step] = [{"do": "backward", "of": "y"}]
    grads += [{"do": "grads", "names": names, "label": "gradients", "of": "y"}]
    steps = (*begin(), *touched, *grads)
    yield Life("inputs written before the backward", steps, inputs(session, 1))
    one = _told(session, "inputs written, refused", touched, "inputs")
    if _is_refused(session, one):
        yield one
    changed: list[Step] = [_FORWARD, {"do": "change", "of": "y"}]
    if _is_refused(session, _told(session, "", changed, "outputs")):
        # who needs them no more may go backward, and is right
        steps = (*begin(), _FORWARD, {"do": "change", "of": "y", "apart": True}, *grads)
        stamps = {"gradients": _NOT_NOTICED.format("outputs")}
        yield Life("outputs written", steps, inputs(session, 1), stamps=stamps, quiet=True)


def _is_refused(session: Session, one: Life) -> bool:
    refused: bool = life.eager(session, one).seen.get(_LABEL, ("", False))[1]
    return refused


def _told(session: Session, case: str, done: list[Step], what: str) -> Life:
    """Whether the backward behind these steps is refused, which is told."""
    stamps = {_LABEL: _NOT_NOTICED.format(what)}
    return Life(case, (*begin(), *done, _REFUSED), inputs(session, 1), stamps=stamps)
