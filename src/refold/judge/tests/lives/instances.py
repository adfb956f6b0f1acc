"""Lives of several modules, of saved ones, and of calls in unusual succession."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from refold.judge.draws.trees import differ, every, has_numbers, inexact, mapped, tensors, valued
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
_ENDED = 6  # parts, and parameters, whose hooks end something; of more a secret choice
_UNLIKE: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("zeros", torch.zeros_like),
    ("tiny numbers", lambda t: t * 2.0**-12),
    ("large numbers", lambda t: t * 2.0**8),
    ("NaN", lambda t: torch.full_like(t, float("nan"))),
)
_DRAWS = 12  # of few samples, so that what one in four draws gives is seen
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


def _ended(session: Session) -> Iterator[Life]:
    """Calls and backwards that a hook ends from within, one after the other."""
    drawn = random.Random(session.secret)
    parts = [path for path, _ in session.oracle.model.named_modules() if path]
    steps = [*begin(False), call("first")]
    for path in drawn.sample(parts, min(len(parts), _ENDED)):
        steps += [{"do": "interrupt", "inputs": "x0", "path": path}]
        steps += [call(f"after {path}", "x1"), call(f"the second after {path}")]
    if parts:
        case, status = "calls that hooks of parts end", Status.CRASHED
        yield Life(case, tuple(steps), inputs(session), status=status, must=True)
    names, steps = trained(session), begin()
    for name in drawn.sample(names, min(len(names), _ENDED)):
        label = f"y after {name}"
        steps += [{"do": "interrupt", "inputs": "x0", "names": [name]}, {"do": "zero"}]
        steps += [call(label, "x1", grad=True, want=True), {"do": "backward", "of": label}]
        label, of = f"gradients after {name}", label
        steps += [{"do": "grads", "names": names, "label": label, "of": of}]
    if names:
        yield Life("backwards that hooks of parameters end", tuple(steps), inputs(session))


def _after(session: Session) -> Iterator[Life]:
    yield from _refusal(session)
    yield from _ended(session)


def _first_calls(session: Session) -> Iterator[Life]:
    """What a module finds at its first call: whoever measures, plans or packs then has measured
    that."""
    given = session.inputs(0)
    held, floats = tensors(given), has_numbers(given)
    rows = ((f"of {n} samples", given, {"rows": n}) for n in (0, 1, 2))
    other: list[tuple[str, list[Any], dict[str, Any]]] = []
    if held and held[0].dim() and held[0].shape[0] > 2:
        other += rows
    for case, change in _UNLIKE if floats else ():
        other.append((f"of {case}", valued(given, change), {}))
    if any(map(_many_whole, held)):
        other.append(("of least integers", every(given, _least), {}))
    if floats or trained(session):
        other.append(("with gradients", given, {"grad": True, "want": True}))
    for case, unlike, options in other:
        steps = [*begin(False), call("the first", "unlike", see=False, **options), call("as usual")]
        steps += [call("once more", "x1")]
        whole = {**inputs(session), "unlike": unlike}
        yield Life(f"a first call {case}", tuple(steps), whole, status=Status.WRONG_NUMERICS)


def _many_whole(t: torch.Tensor) -> bool:
    return not inexact(t) and t.dtype is not torch.bool and t.numel() > 1


def _least(t: torch.Tensor) -> torch.Tensor:
    """The least of whole numbers everywhere: shorter lengths than those of any later call."""
    return torch.full_like(t, int(t.min())) if _many_whole(t) else t


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
        # built both: copies of one do not share what a class, or a default argument, holds
        yield Life(f"two modules, {where}", tuple(steps), inputs(session), states, built=not train)
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
    # whose hooks and closures are the original's: tensors that it is given are nobody else's
    steps = [*begin(False), call("the original"), {"do": "clone", "to": "b"}]
    for name, state in (("b", SECOND), ("a", "third")):
        steps += [{"do": "load", "state": state, "assign": True, "model": name}]
        steps += [call(f"{name} assigned", "x1", model=name)]
    steps += [call("the copy at last", model="b")]
    third = {k: v * 0.5 if inexact(v) else v for k, v in session.state(PERTURBED).items()}
    case = "a copy to which tensors are assigned"
    how = (inputs(session), states, Status.STALE_WEIGHTS)
    yield Life(case, tuple(steps), *how, own={"third": third})


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


def _shallow(session: Session) -> Iterator[Life]:
    """A copy that shares its tensors and parts, as replicas are made."""
    steps: list[Step] = [*begin(True), call("first"), {"do": "clone", "to": "b", "deep": False}]
    for train in (False, True):
        steps += [{"do": "attribute", "path": "", "name": "training", "value": train, "model": "b"}]
        what = f"whose mode is {'train' if train else 'eval'}"
        steps += [call(f"the copy, {what}", "x1", model="b"), call(f"beside one {what}")]
    yield Life("a shallow copy", tuple(steps), inputs(session))


def _gone(session: Session) -> Iterator[Life]:
    """Modules that nobody holds any more."""
    label = f"whether all of {_BUILT} modules live on"
    gone = {"do": "gone", "state": "", "count": _BUILT, "inputs": "x0", "label": label}
    case = "modules that are built, called and let go of"
    yield Life(case, (gone,), inputs(session, 1), status=Status.CRASHED, built=True)


def _all(session: Session) -> Iterator[Life]:
    yield from _instances(session)
    yield from _others(session)
    yield from _shallow(session)
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
    held = tensors(session.inputs())
    if held and held[0].dim() and held[0].shape[0] > 2:
        sizes = [call(f"{n} samples", rows=n, seeded=n == 1) for n in (1, 0, 2)]
        steps = [*begin(True), *sizes, {"do": "random", "label": "the generator"}]
        yield Life("one seed, few samples", tuple(steps), inputs(session, 1), status=status)
        # what is drawn for one sample alone may be nothing, or all
        for samples in (1, 2):
            many = [call(f"call {i + 1}", rows=samples, seeded=i == 0) for i in range(_DRAWS)]
            case = f"one seed, many calls of {samples} samples"
            yield Life(case, (*begin(True), *many), inputs(session, 1), status=status)
    steps = begin(True)
    for i in range(2):
        steps += [call(f"y{i}", f"x{i}", seeded=i == 0, grad=True)]
        steps += [{"do": "backward", "of": f"y{i}"}, {"do": "random", "label": f"generator {i}"}]
        label = f"gradients {i}"
        steps += [{"do": "grads", "names": trained(session), "label": label, "of": f"y{i}"}]
    status = Status.WRONG_NUMERICS
    yield Life("one seed, two backwards", tuple(steps), inputs(session), status=status)


def _writes(session: Session) -> bool:
    """Whether a call in eval mode writes buffers or parameters, as a table does that keeps its rows
    short: two at once meet there, in the reference, too."""
    run, state = session.truth(session.inputs(), PERTURBED, False).plain, session.state(PERTURBED)
    held = {} if run is None else run.buffers
    return any(name in state and differ(value, state[name]) for name, value in held.items())


def _threaded(session: Session) -> Iterator[Life]:
    if session.random or session.remembers(False) or _writes(session):
        return
    steps = [*begin(False), {"do": "threads", "inputs": ["x0", "x1"], "count": 6, "label": "y"}]
    status = Status.NONDETERMINISTIC
    yield Life("the first calls at once", tuple(steps), inputs(session), status=status)
    steps = [*begin(False), call("first"), *steps[2:]]
    yield Life("two threads", tuple(steps), inputs(session), status=status)
    back = [*begin(False), {**steps[-1], "back": trained(session), "count": 3}]
    yield Life("backwards of two threads", tuple(back), inputs(session), status=status)
    meet = {"do": "meet", "inputs": ["x0", "x1"]}
    meets = [{**meet, "label": "the result"}]
    meets += [{**meet, "label": "gradients", "back": trained(session)}]
    case = "a call while another thread stands still in one"
    yield Life(case, (*begin(False), *meets), inputs(session), status=status)
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
        "something half done that a call which ends early leaves behind",
        "A call that is refused, or that a hook ends, leaves nothing behind: the next one is "
        "right; nor does a backward that a hook of a parameter ends.",
        _after,
        30,
        lives=3,
    ),
    living(
        "first calls",
        "scales, plans and tables that the first call decides for all",
        "The first call is of few samples or none, of zeros, of tiny or large numbers, of NaN, of "
        "the least integers, or with gradients; those behind it are as usual.",
        _first_calls,
        27,
        lives=9,
    ),
    living(
        "two instances",
        "what modules of one class share: folds, buffers, streams",
        "Two modules, of one size or of two, and a module and its copy, deep or shallow, are "
        "called in turn and do not meet, nor where the copy's tensors are assigned; modules that "
        "nobody holds do not all live on; whether a copy is frozen where the original is, is told.",
        _all,
        42,
        lives=9,
    ),
    living(
        "unseeded sequence",
        "random numbers that the seed alone decides",
        "Several calls, many of one sample, and backwards, under one seed draw what eager draws, "
        "and leave the generator there.",
        _unseeded,
        34,
        lives=6,
    ),
    living(
        "threads",
        "scratch memory that calls share, folds of threads",
        "Two threads call one module at once, or one while the other stands still in a call, each "
        "on its own inputs, go backward, too; weights change between.",
        _threaded,
        50,
        lives=5,
    ),
)
