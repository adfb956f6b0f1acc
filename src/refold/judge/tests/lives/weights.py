"""Lives in which weights are changed, each tensor alone and in every way that programs have."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, floating, inputs, living, modes, trained
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED, SECOND
from refold.judge.verdict.verdict import Status
from refold.judge.worker import writes

_LATE = "weights written past PyTorch's count are followed one call late"
_PARTS = "weights are not written in part past PyTorch's count"
_FACTOR = 1.25
_LITTLE = (-17, -14, -11)  # a step of an optimizer; less than the usual tolerances of comparisons


def _one(session: Session) -> Iterator[Life]:
    names = floating(session)
    for train in modes(session) if names else ():
        steps = [*begin(train), call("first"), call("again")]
        for name in names:
            steps += [
                {"do": "write", "names": [name], "how": "in place", "factor": _FACTOR},
                call(f"after {name} changed alone"),
            ]
        where = "train" if train else "eval"
        yield Life(where, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)
    if names:
        steps = [*begin(False), call("first")]
        for power in _LITTLE:
            steps += [
                {"do": "write", "names": names, "how": "in place", "factor": 1 + 2.0**power},
                call(f"after all grew by 2^{power}"),
            ]
        given = inputs(session, 1)
        yield Life("a little", tuple(steps), given, status=Status.STALE_WEIGHTS)


def _ways(session: Session) -> Iterator[Life]:
    names = floating(session)
    for how in writes.COUNTED if names else ():
        steps = [*begin(False), call("first"), call("again")]
        for name in names[:4]:
            steps += [
                {"do": "write", "names": [name], "how": how, "factor": _FACTOR},
                call(f"after {name}"),
            ]
        yield Life(how, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)
    parameters = trained(session)
    if parameters:
        vector = {
            "do": "write",
            "names": parameters,
            "how": "vector_to_parameters",
            "factor": _FACTOR,
        }
        steps = [*begin(False), call("first"), vector, call("after it"), call("once more")]
        stamps = {"after it": _LATE}
        yield Life(
            "vector_to_parameters",
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
            stamps=stamps,
        )
    if parameters:
        one = {"do": "parametrize", "name": parameters[0]}
        steps = [*begin(False), call("first"), {**one, "on": True}, call("with it")]
        steps += [call("once more", "x1"), {**one, "on": False}, call("without it")]
        status = Status.STALE_WEIGHTS
        yield Life("a parametrization", tuple(steps), inputs(session), status=status)
    steps = [*begin(False), call("first"), {"do": "save", "name": "s"}]
    steps += [{"do": "load", "state": SECOND}, call("another state")]
    steps += [{"do": "restore", "name": "s"}, call("the first state again")]
    steps += [{"do": "load", "state": SECOND, "assign": True}, call("assigned")]
    states = (PERTURBED, SECOND)
    yield Life("states", tuple(steps), inputs(session, 1), states, Status.STALE_WEIGHTS)


def _uncounted(session: Session) -> Iterator[Life]:
    names = floating(session)
    for how in writes.UNCOUNTED if names else ():
        steps = [*begin(False), call("first"), call("again")]
        stamps = {}
        given = ["x0", "x1"]
        for name in names[:4]:
            soon, late = f"the call after {name}", f"the second call after {name}"
            steps += [
                {"do": "write", "names": [name], "how": how, "factor": _FACTOR},
                call(soon, given[0]),
                call(late, given[1]),
            ]
            given.reverse()  # what is stale is, bit by bit, what these inputs gave before
            stamps[soon] = _LATE
        yield Life(how, tuple(steps), inputs(session), status=Status.STALE_WEIGHTS, stamps=stamps)
    parameters = trained(session)
    if parameters:
        steps = [*begin(False), call("first"), {"do": "take", "names": parameters, "key": "own"}]
        other = {"do": "write", "names": parameters, "how": ".data = other", "factor": 0.75}
        steps += [other, call("the average"), call("the average, second call", "x1")]
        steps += [{"do": "put_back", "key": "own"}, call("its own", "x1"), call("its own, second")]
        stamps = {"the average": _LATE, "its own": _LATE}
        yield Life(
            "weights exchanged for an average and back",
            tuple(steps),
            inputs(session),
            status=Status.STALE_WEIGHTS,
            stamps=stamps,
        )
        part = {"do": "write_part", "name": parameters[0], "at": 0, "count": 1, "how": "data"}
        steps = [*begin(False), call("first"), part, call("the call after"), call("the second")]
        yield Life(
            "one element",
            tuple(steps),
            inputs(session, 1),
            status=Status.STALE_WEIGHTS,
            stamps={"the call after": _LATE, "the second": _PARTS},
        )


TESTS: tuple[Test, ...] = (
    living(
        "one tensor at a time",
        "a fold that looks at some of its sources only",
        "After each parameter and buffer was changed alone, in either mode, it counts; all, by "
        "little.",
        _one,
        24,
        lives=3,
    ),
    living(
        "ways to write",
        "a fold keyed by object, by address or by version alone",
        "Weights assigned, copied, set, restored or made views of one vector count at once.",
        _ways,
        28,
    ),
    living(
        "uncounted writes",
        "a fold that trusts PyTorch's count of versions",
        "Weights written through .data, or by foreign code, count at the second call at latest.",
        _uncounted,
        48,
    ),
)
