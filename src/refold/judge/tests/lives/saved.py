"""Lives of states and of saved modules: loaded in part, refused, taken to another process."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace

import torch

from refold.judge.tests.base import Skip, Test
from refold.judge.tests.lives.common import begin, call, floating, inputs, living
from refold.judge.tests.lives.parts import numbers
from refold.judge.truth.live import Lived
from refold.judge.verdict import alongside, life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED, SECOND
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire import forkserver

_LONG = 5.0  # seconds that an import works, beyond which a quick judgement makes no second one


def _inside(session: Session) -> Iterator[Life]:
    embed = {"do": "embed", "state": SECOND, "label": "names inside another module"}
    states, stale = (PERTURBED, SECOND), Status.STALE_WEIGHTS
    steps = [*begin(False), embed]
    yield Life("in a Sequential", tuple(steps), {}, states, Status.WRONG_CONTRACT)
    steps = [*begin(False), call("first"), embed, call("after it was loaded there", "x1")]
    yield Life("loaded in a Sequential", tuple(steps), inputs(session), states, stale)


def _pickled(session: Session) -> Iterator[Life]:
    names = floating(session)
    steps = [*begin(False), call("before"), {"do": "pickle"}, call("after", "x1")]
    if names:
        write = {"do": "write", "names": names[:1], "how": "in place", "factor": 1.25}
        steps += [write, call("after a write")]
    yield Life("torch.save and torch.load", tuple(steps), inputs(session))


def _states(session: Session) -> Iterator[Life]:
    names = list(session.oracle.state())
    if not names:
        return
    part = {"do": "load_part", "state": SECOND, "names": names[:1], "label": "what is said of it"}
    steps = [*begin(False), call("first"), part, call("after it")]
    if len(names) > 1:
        last = {**part, "names": names[-1:], "label": "what is said of the last"}
        steps += [last, call("after the last")]
    states = (PERTURBED, SECOND)
    case = "one name of a state"
    yield Life(case, tuple(steps), inputs(session, 1), states, Status.STALE_WEIGHTS)
    own = {"do": "own", "state": SECOND, "label": "tensors that are the module's from then on"}
    steps = [*begin(False), call("first"), own, call("after it")]
    case, stale = "load_state_dict(assign=True)", Status.STALE_WEIGHTS
    yield Life(case, tuple(steps), inputs(session, 1), states, stale)
    label = "whether it is refused"
    steps = [*begin(), {"do": "refuse_load", "state": PERTURBED, "name": names[0], "label": label}]
    case = "states that do not fit"
    yield Life(case, tuple(steps), inputs(session, 1), status=Status.WRONG_CONTRACT)
    variables = {"do": "variables", "names": names, "label": "whether they are the module's own"}
    case, status = "state_dict(keep_vars=True)", Status.WRONG_CONTRACT
    yield Life(case, (*begin(), variables), inputs(session, 1), status=status)
    hooks = {"do": "state_hooks", "state": PERTURBED, "label": "hooks called, names of the part"}
    case = "hooks of states, and a part that is added"
    yield Life(case, (*begin(), hooks), inputs(session, 1), status=Status.WRONG_CONTRACT)
    for dtype in (torch.float64, torch.bfloat16):
        word = str(dtype).removeprefix("torch.")
        other = {k: _of_type(v, dtype) for k, v in session.state(SECOND).items()}
        steps = [*begin(False), call("first"), {"do": "load", "state": word}, call("loaded")]
        given = {"own": {word: other}, "status": Status.STALE_WEIGHTS}
        yield Life(f"a state of {word}", tuple(steps), inputs(session, 1), **given)  # type: ignore[arg-type]
    yield from _taken_along(session)
    floats = floating(session)
    if floats:
        steps = [*begin(False), call("first")]
        for name in floats[:2]:
            steps += [{"do": "write_state", "name": name, "factor": 1.25}, call(f"after {name}")]
        case = "what state_dict gives is written to"
        yield Life(case, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)


def _taken_along(session: Session) -> Iterator[Life]:
    """Numbers that a state has beside tensors: changed, and put back by a state that was saved."""
    told = session.oracle.model.state_dict().values()
    if all(isinstance(v, torch.Tensor) for v in told):
        return
    for path, name, value in numbers(session):
        steps = [*begin(False), call("as built"), {"do": "save", "name": "before"}]
        steps += [{"do": "attribute", "path": path, "name": name, "value": value}]
        steps += [call("changed"), {"do": "save", "name": "behind"}]
        for label in ("before", "behind"):
            steps += [{"do": "restore", "name": label}, call(f"with the state {label} the change")]
        steps += [{"do": "build", "state": ""}, {"do": "restore", "name": "behind"}]
        steps += [{"do": "mode", "train": False}, call("another module with that state")]
        case = f"a state that has {path}.{name}".replace(" .", " ")
        yield Life(case, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)


def _of_type(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return t.to(dtype) if t.dtype is torch.float32 else t


def _methods(session: Session) -> Iterator[Life]:
    look = {"do": "methods", "label": "what its methods give"}
    yield Life("", (*begin(), look), inputs(session, 1), status=Status.WRONG_CONTRACT)


def _elsewhere(session: Session) -> Iterator[Failure]:
    """Saved in one process, loaded in another, where it goes on as it would have here."""
    if session.quick and not session.alone and session.import_effort > _LONG:
        raise Skip("left out: a second import takes long; without --quick it runs")
    given, before = inputs(session), [*begin(False), call("before")]
    save = Life("", (*before, {"do": "dump", "label": "file"}), given)
    # what a call leaves in buffers is saved, too
    case = "torch.save here, torch.load in another process"
    whole = Life(case, (*before, call("after", "x1")), given)
    theirs = life.eager(session, whole)
    if theirs.raised is not None or life.eager(session, save).raised is not None:
        raise Skip("the reference cannot be saved")
    saved = alongside.asked(session, save)
    limit = f"{session.test}: raises where the reference answers"
    if saved["raised"] is not None:
        session.assumptions.add(limit)
        session.notes.append(f"{session.test}: raised {saved['raised']['message']}")
        return
    (file,) = (tree for label, _, tree in saved["seen"] if label == "file")
    session.dismiss()
    steps = ({"do": "revive", "inputs": "file"}, call("after", "x1"))
    load = Life("", steps, {"file": [file], "x1": given["x1"]}, states=())
    with _in_another_order(session):
        loaded = alongside.asked(session, load)
    if loaded["raised"] is not None:
        session.assumptions.add(limit)
        session.notes.append(f"{session.test}: raised {loaded['raised']['message']}")
        return
    session.cases += 1
    for failure in life.compared(session, whole, Lived.of(loaded), theirs):
        told = failure.status in (Status.MUTATES, Status.WRONG_CONTRACT)
        stale = session.named(Status.STALE_WEIGHTS)
        yield failure if told else replace(failure, status=stale)


@contextlib.contextmanager
def _in_another_order(session: Session) -> Iterator[None]:
    """A worker that is started meanwhile has another order of sets of texts, as each process of a
    user has. It is an interpreter of its own, which takes seconds: not with ``--quick``."""
    reload = session.reload
    if reload is not None and not session.folder and (session.alone or not session.quick):
        session.reload = functools.partial(reload, forkserver.OTHER_HASHES)
    try:
        yield
    finally:
        session.reload = reload


TESTS: tuple[Test, ...] = (
    living(
        "inside a module",
        "names without the prefix of the module around",
        "As a part of another module it has its names there, and loads by them.",
        _inside,
        3,
        lives=2,
    ),
    living(
        "pickle",
        "folds and handles that a saved module takes along",
        "A module that was saved and loaded computes the same and follows its weights.",
        _pickled,
        4,
    ),
    living(
        "states",
        "states that load though they do not fit, or reset what they do not name, or in one type",
        "A state in part, assigned, of float64, of bfloat16; states that do not fit; writes to "
        "what state_dict gives; hooks of states are called, and parts that are added are in them; "
        "numbers that a state has.",
        _states,
        14,
        lives=7,
    ),
    living(
        "methods",
        "train() that gives nothing back, parameters() that lacks some, freezing that freezes none",
        "What the module's own methods give: itself, its mode, all tensors; and whom they reach.",
        _methods,
        2,
        lives=1,
    ),
    Test(
        "another process",
        "saved modules that hold what their process alone has",
        "A module that was saved here is loaded in another process, and computes the same there; "
        "without --quick in one that has another order of sets of texts.",
        _elsewhere,
        calls=3,
        apart=True,
    ),
)
