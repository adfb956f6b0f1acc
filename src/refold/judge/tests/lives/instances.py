"""Lives of several modules, of saved ones, and of calls in unusual succession."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.draws.trees import mapped
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, floating, inputs, living, trained
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED, SECOND
from refold.judge.verdict.verdict import Status
from refold.judge.worker.looks import GENERATOR
from refold.judge.worker.steps import Step

_BUILT = 12  # modules, of which an honest class keeps a few at most
_BUILT_BYTES = 256 << 20  # of all their states: by size, since a busy machine's clock says little


def narrowed(given: list[Any]) -> list[Any]:
    """The inputs one element narrower in the last axis."""

    def narrow(t: torch.Tensor) -> torch.Tensor:
        return t[..., :-1].contiguous() if t.dim() and t.shape[-1] > 1 else t

    result: list[Any] = mapped(given, narrow)
    return result


def _refusal(session: Session) -> Iterator[Life]:
    given = {**inputs(session), "wrong": narrowed(session.inputs(0))}
    probe = Life("", (*begin(), call("y", "wrong")), given)
    if life.eager(session, probe).raised is None:
        return
    steps = [*begin(), call("first"), {"do": "refuse", "inputs": "wrong"}, call("after it", "x1")]
    steps += [{"do": "refuse", "inputs": "wrong", "grad": True}, call("after the second")]
    yield Life("a refused call between", tuple(steps), given, status=Status.CRASHED, must=True)


def _instances(session: Session) -> Iterator[Life]:
    states = (PERTURBED, SECOND)
    for train in (False, True):
        steps = begin(train)
        steps += [{"do": "build", "state": SECOND, "model": "b"}]
        steps += [{"do": "mode", "train": train, "model": "b"}]
        for i in (0, 1):
            steps += [call(f"a{i}", f"x{i}"), call(f"b{i}", f"x{i}", model="b")]
        steps += [{"do": "drop", "model": "a"}, call("b alone", model="b")]
        where = "train" if train else "eval"
        yield Life(f"two modules, {where}", tuple(steps), inputs(session), states)
    names = trained(session)
    if not names:
        return
    trains: list[Step] = [{"do": "mode", "train": True}, call("trains"), call("trains on", "x1")]
    steps = [*begin(False), {"do": "clone", "to": "b"}, call("the copy", model="b"), *trains]
    steps += [call("the copy of one that trained", model="b"), {"do": "mode", "train": False}]
    steps += [{"do": "mode", "train": True, "model": "b"}, call("the copy trains", model="b")]
    steps += [call("the original at last")]
    case = "a copy, and either trains"
    yield Life(case, tuple(steps), inputs(session), status=Status.MUTATES)
    write = {"do": "write", "names": names, "how": "in place", "factor": 1.25, "model": "b"}
    steps = [*begin(False), call("the original"), {"do": "clone", "to": "b"}]
    steps += [{"do": "random", "label": f"{GENERATOR} the copy"}]
    steps += [call("the copy", "x1", model="b"), write, call("the copy changed", model="b")]
    steps += [call("the original then", "x1"), {"do": "drop", "model": "a"}]
    steps += [call("the copy alone", "x1", model="b")]
    stamps = {f"{GENERATOR} the copy": "a copy of the module draws random numbers"}
    case, given = "a copy that is changed", inputs(session)
    yield Life(case, tuple(steps), given, status=Status.MUTATES, stamps=stamps)


def _others(session: Session) -> Iterator[Life]:
    """Another module of other sizes is built while the first lives; a copy of a frozen one."""
    init = session.oracle.init
    whole = [i for i, v in enumerate(init) if isinstance(v, int) and not isinstance(v, bool)]
    for at in random.Random(session.secret).sample(whole, min(len(whole), 2)):
        for new in (init[at] - 1, 2 * init[at]):
            given = [new if i == at else v for i, v in enumerate(init)]
            other = {"do": "build", "state": "", "model": "b", "init": given}
            steps = [*begin(False), call("first"), other, call("beside another", "x1")]
            steps += [{"do": "drop", "model": "b"}, call("after it is gone")]
            case = f"beside one whose argument {at} is {new}"
            yield Life(case, tuple(steps), inputs(session))
    names = trained(session)
    if names:
        frozen = {"do": "want", "names": names[:1], "value": False}
        steps = [*begin(False), frozen, {"do": "clone", "to": "b"}]
        label = "whether the copy's parameters want gradients"
        steps += [{"do": "identity", "names": names, "label": label, "model": "b"}]
        case = "a copy of one that is frozen in part"
        stamps = {label: "a copy forgets which parameters are frozen"}
        yield Life(case, tuple(steps), inputs(session, 1), stamps=stamps)


def _gone(session: Session) -> Iterator[Life]:
    """Modules that nobody holds any more."""
    label = f"whether all of {_BUILT} modules live on"
    gone = {"do": "gone", "state": "", "count": _BUILT, "inputs": "x0", "label": label}
    case = "modules that are built, called and let go of"
    yield Life(case, (gone,), inputs(session, 1), status=Status.CRASHED, built=True)


def _all(session: Session) -> Iterator[Life]:
    yield from _instances(session)
    yield from _others(session)
    if _BUILT * session.oracle.bytes <= _BUILT_BYTES:
        yield from _gone(session)


def _unseeded(session: Session) -> Iterator[Life]:
    if not session.random:
        return
    for train in (True, False):
        steps = begin(train)
        for i in range(4):
            steps += [call(f"call {i + 1}", f"x{i % 2}", seeded=i == 0)]
        steps += [{"do": "random", "label": "the generator"}]
        where = "train" if train else "eval"
        status = Status.WRONG_NUMERICS
        yield Life(f"one seed, four calls, {where}", tuple(steps), inputs(session), status=status)
    steps = begin(True)
    for i in range(2):
        steps += [call(f"y{i}", f"x{i}", seeded=i == 0, grad=True)]
        steps += [{"do": "backward", "of": f"y{i}"}, {"do": "random", "label": f"generator {i}"}]
    status = Status.WRONG_NUMERICS
    yield Life("one seed, two backwards", tuple(steps), inputs(session), status=status)


def _threaded(session: Session) -> Iterator[Life]:
    if session.random or session.remembers(False):
        return
    steps = [*begin(False), {"do": "threads", "inputs": ["x0", "x1"], "count": 6, "label": "y"}]
    status = Status.NONDETERMINISTIC
    yield Life("the first calls at once", tuple(steps), inputs(session), status=status)
    steps = [*begin(False), call("first"), *steps[2:]]
    yield Life("two threads", tuple(steps), inputs(session), status=status)
    back = [*begin(False), {**steps[-1], "back": trained(session), "count": 3}]
    yield Life("backwards of two threads", tuple(back), inputs(session), status=status)
    names = floating(session)
    if names:
        again = {**steps[-1], "label": "again", "count": 2}
        write = {"do": "write", "names": names, "how": "in place", "factor": 1.25}
        steps = [*steps[:-1], {**steps[-1], "count": 2}, write, again]
        case = "weights written between calls of two threads"
        yield Life(case, tuple(steps), inputs(session), status=Status.STALE_WEIGHTS)


TESTS: tuple[Test, ...] = (
    living(
        "after a refusal",
        "something half done that a refused call leaves behind",
        "A call that is refused leaves nothing behind: the next one is right.",
        _refusal,
        5,
        lives=1,
    ),
    living(
        "two instances",
        "what modules of one class share: folds, buffers, streams",
        "Two modules, of one size or of two, and a module and its copy are called in turn and do "
        "not meet; modules that nobody holds do not all live on; whether a copy is frozen where "
        "the original is, is told.",
        _all,
        38,
        lives=8,
    ),
    living(
        "unseeded sequence",
        "random numbers that the seed alone decides",
        "Several calls, and backwards, under one seed draw what eager draws, and leave the "
        "generator there.",
        _unseeded,
        8,
    ),
    living(
        "threads",
        "scratch memory that calls share, folds of threads",
        "Two threads call one module at once, each on its own inputs, go backward, too; weights "
        "change between.",
        _threaded,
        40,
        lives=4,
    ),
)
