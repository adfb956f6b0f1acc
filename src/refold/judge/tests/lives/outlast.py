"""Lives in which something has to outlast what comes between: outputs, a graph, a call's answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refold.judge.draws.trees import differ
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import Seen, begin, call, inputs, living, trained
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED, SECOND
from refold.judge.verdict.verdict import Status
from refold.judge.worker.steps import Step

_LATER = "the output, later"
_AGAIN = "the same tensors, after the output was written to"
_LONG, _SECONDS = 600, 0.1  # calls between, and the work that they may be
_BACKWARDS, _WORK = 600, 0.3  # alike, of backwards
_ALONE = 4  # times as many where nothing else is asked


def many(session: Session, count: int, seconds: float) -> dict[str, Any]:
    """How often a step repeats what it does, and for how long."""
    times = _ALONE if session.alone else 1
    return {"count": times * count, "seconds": times * seconds}


def _stay(session: Session) -> Iterator[Seen]:
    kinds: tuple[tuple[str, bool, dict[str, Any]], ...] = (
        ("with gradients", True, {"grad": True}),
        ("with gradients, in eval mode", False, {"grad": True}),
        ("of inputs that want gradients", True, {"grad": True, "want": True}),
        ("under inference_mode", False, {"how": "inference"}),
        ("by forward's name", False, {"how": "by name"}),
    )
    lives = []
    for case, train, options in kinds:
        steps = [*begin(train), call("y", **options), call("another", "x1", **options)]
        steps += [call("a third", "x2", **options)]
        lives.append((f"outputs {case}", steps))
    steps = [*begin(False), {"do": "build", "state": SECOND, "model": "b"}]
    steps += [{"do": "mode", "train": False, "model": "b"}, call("y"), call("b", "x1", model="b")]
    lives.append(("outputs of two modules", steps))
    between: Step = {"do": "calls", "inputs": ["x1", "x2"], **many(session, _LONG, _SECONDS)}
    lives.append(("hundreds of calls later", [*begin(False), call("y"), between]))
    look: Step = {"do": "look", "of": "y", "label": _LATER}
    whole = [(case, [*steps, look], _LATER) for case, steps in lives]
    for train in (False, True):
        steps = [*begin(train), call("y"), {"do": "spoil", "of": "y"}, call(_AGAIN, given_to="y")]
        case = f"outputs that are written to, in {'train' if train else 'eval'} mode"
        whole.append((case, steps, _AGAIN))
    for case, steps, last in whole:
        states = (PERTURBED, SECOND)
        one = Life(case, tuple(steps), inputs(session, 3), states, Status.MUTATES)
        seen = life.eager(session, one)
        # what the reference gives may be its own memory, which goes on
        if last in seen.seen and not differ(seen.seen["y"][1], seen.seen[last][1]):
            yield one, seen


def _emptied(session: Session) -> Iterator[Seen]:
    if not session.oracle.state():
        return
    again: list[Step] = [{"do": "empty", "state": PERTURBED}, call("loaded behind it")]
    unbuilt: list[Step] = [*begin(False, ""), *again]
    for case, steps in (
        ("emptied before any call", [*begin(False), call("first"), *unbuilt]),
        ("emptied after a call", [*begin(False), call("first"), *again]),
    ):
        one = Life(case, tuple(steps), inputs(session, 1), status=Status.STALE_WEIGHTS)
        seen = life.eager(session, one)
        found = seen.seen
        # the reference may have memory of its own that no state holds
        if "loaded behind it" in found and not differ(
            found["first"][1], found["loaded behind it"][1]
        ):
            yield one, seen


def _backwards(session: Session) -> Iterator[Life]:
    mode = session.oracle.training
    if session.random or session.remembers(mode):
        return
    back = {"inputs": "x0", **many(session, _BACKWARDS, _WORK), "back": trained(session)}
    steps = (*begin(), {"do": "farthest", **back, "label": "the farthest of many"})
    yield Life("", steps, inputs(session, 1), status=Status.NONDETERMINISTIC)


def _before(session: Session) -> Iterator[Life]:
    """Between forward and backward the module is put into another mode, or evaluated."""
    names = trained(session)
    forward = call("y", grad=True, want=True)
    back: list[Step] = [{"do": "backward", "of": "y"}]
    back += [{"do": "grads", "names": names, "label": "gradients", "of": "y"}]
    for train in (True, False):
        other: Step = {"do": "mode", "train": not train}
        where, there = ("train", "eval") if train else ("eval", "train")
        case = f"forward in {where} mode, backward in {there} mode"
        yield Life(case, (*begin(train), forward, other, *back), inputs(session, 1))
    evaluated = [{"do": "mode", "train": False}, call("evaluated", "x1")]
    steps = (*begin(True), forward, *evaluated, {"do": "mode", "train": True}, *back)
    yield Life("an evaluation before the backward", steps, inputs(session))


TESTS: tuple[Test, ...] = (
    living(
        "outputs stay",
        "outputs in memory that later calls of some kind use again, rings of many outputs",
        "An output stays what it was after calls with gradients, in other modes, of another "
        "module, and after hundreds of calls; what is written to it is in no later one of the "
        "same tensors.",
        _stay,
        44,
        lives=10,
    ),
    living(
        "built without memory",
        "what a constructor computes and no state holds",
        "A module whose memory was made anew (to_empty) and loaded, as large models are built.",
        _emptied,
        4,
        lives=2,
    ),
    living(
        "many backwards",
        "backwards that are wrong once in hundreds",
        "Hundreds of backwards of one input: that which is the farthest from the first is right.",
        _backwards,
        200,
        lives=1,
    ),
    living(
        "before the backward",
        "modes and numbers that a backward reads when it runs",
        "The mode is another one between forward and backward, or the module is evaluated.",
        _before,
        9,
        lives=3,
    ),
)
