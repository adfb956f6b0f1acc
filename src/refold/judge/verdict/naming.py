"""What is found wrong, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from refold.judge.verdict.verdict import Status
from refold.judge.worker.looks import GENERATOR, LEAST, MOST, SWITCHES, WRITTEN
from refold.judge.worker.steps import FACT, GRADS

if TYPE_CHECKING:
    from refold.judge.verdict.life import Life
    from refold.judge.verdict.session import Session

_ACCUSES = (Status.CHEATS, Status.MUTATES, Status.NONDETERMINISTIC)
_FOLLOWS = (*_ACCUSES, Status.STALE_WEIGHTS, Status.WRONG_CONTRACT, Status.CRASHED)
WRITES = (
    *("write", "write_part", "write_state", "load", "load_part", "restore", "put_back", "embed"),
    *("own", "parametrize", "restructure", "update", "dtype", "take_away", "empty"),
)
_BEGINS = ("build", "mode")
_GOES_BACK = (*_BEGINS, "call", "backward")
_GRADIENTS = ("grads", "slopes")
_PLAIN = {"do", "inputs", "label", "grad", "want"}  # of a step that is a call like any other


@dataclass
class Plain:
    """What plain calls showed, by which what is found later is named."""

    wrong: bool = False
    never_right: bool = False  # under the constructor's weights, either: no search for ties
    wrong_in_both: bool = False  # modes, or in the one that there is
    moves_wrongly: bool = False  # buffers


def value(session: Session, status: Status) -> Status:
    """Of values that are wrong. Where plain calls are wrong already, another that is wrong too says
    nothing of caches or of memory; where they are wrong under the constructor's weights, too,
    nothing of stale ones; in both modes, nothing of modes. Where plain calls leave other buffers,
    what comes of these is a matter of modes."""
    if status is not Status.WRONG_MODE:
        if session.plain.wrong if status in _ACCUSES else session.plain.never_right:
            return Status.WRONG_NUMERICS
        return Status.WRONG_MODE if session.plain.moves_wrongly and status in _FOLLOWS else status
    plain = session.plain
    return Status.WRONG_NUMERICS if plain.never_right and plain.wrong_in_both else status


def status(session: Session, life: Life, label: str, kind: str, structural: bool) -> Status:
    """The life's own status, unless what came says another: other names, shapes and types are the
    contract's; what is wrong before the life has begun is another function, and so is what is wrong
    in every plain call. What is wrong before any weight was written is not stale."""
    if label in (SWITCHES, WRITTEN) or label.startswith(GENERATOR):
        return Status.MUTATES
    if kind in (FACT, LEAST, MOST):
        return life.status
    if structural and kind != GRADS:
        return Status.WRONG_CONTRACT
    if life.status is Status.STALE_WEIGHTS and not _written(life, label):
        return Status.WRONG_NUMERICS
    if life.status is not Status.WRONG_MODE and label == _shown(life, _BEGINS):
        return Status.WRONG_NUMERICS
    if life.status in _ACCUSES and (label == _shown(life, _GOES_BACK) or _computed(life, label)):
        return value(session, Status.WRONG_MODE)
    return value(session, life.status)


def _written(life: Life, label: str) -> bool:
    for step in life.steps:
        if step["do"] in WRITES:
            return True
        if step.get("label") == label:
            return False
        if step["do"] == "threads" and label.startswith(f"{step['label']}, thread "):
            return False
    return True


def _computed(life: Life, label: str) -> bool:
    """Whether what is wrong are gradients as a backward gave them: nobody has changed them yet."""
    return any(s["do"] == "slopes" and s["label"] == label for s in life.steps)


def _shown(life: Life, before: tuple[str, ...]) -> str:
    """The label of what a life shows first: of a plain call, or of gradients, where there is
    nothing before but steps that do this; of a module that is built as the file says."""
    for step in life.steps:
        if step.get("see", True) and "label" in step:
            plain = step["do"] == "call" and step.keys() <= _PLAIN
            return str(step["label"]) if plain or step["do"] in _GRADIENTS else ""
        if step["do"] not in before or "init" in step:
            return ""
    return ""
