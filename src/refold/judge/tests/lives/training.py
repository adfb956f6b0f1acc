"""Lives of training: statistics that move, optimizers, many steps."""

from __future__ import annotations

import random
from collections.abc import Iterator

from refold.judge import draws
from refold.judge.draws.trees import differ, tensors
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, buffers, call, inputs, living, trained
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.worker.steps import Step

_SIZES = 12  # of calls between; of more the smallest, and a secret choice
_SMALL = 4
_STEPS = 3
_LONG = 40


def _moving(session: Session) -> list[str]:
    """Buffers that a call in train mode moves."""
    names = buffers(session)
    if not names:
        return []
    steps = [*begin(True), {"do": "state", "names": names, "label": "before"}, call("y")]
    steps += [{"do": "state", "names": names, "label": "after"}]
    seen = life.eager(session, Life("", tuple(steps), inputs(session, 1))).seen
    if "after" not in seen:
        return []
    before, after = seen["before"][1], seen["after"][1]
    return names if differ(before, after) else []


def _statistics(session: Session) -> Iterator[Life]:
    names = _moving(session)
    for grad in (False, True) if names else ():
        steps = [*begin(False), call("eval first"), call("eval again")]
        for turn in (1, 2):
            steps += [{"do": "mode", "train": True}]
            want = grad and turn == 2  # as of a layer behind others
            steps += [call(f"train {turn}.{i}", f"x{i}", grad=grad, want=want) for i in (1, 2, 0)]
            steps += [{"do": "state", "names": names, "label": f"buffers after train {turn}"}]
            hang = f"whether buffers hang on a graph after train {turn}"
            steps += [{"do": "attached", "names": names, "label": hang}]
            steps += [{"do": "mode", "train": False}, call(f"eval after train {turn}")]
        objects = "the buffers as objects"
        steps += [{"do": "identity", "names": names, "label": objects}]
        where = "with gradients" if grad else "without gradients"
        stamps = {objects: "a call puts other tensors in the place of buffers"}
        yield Life(where, tuple(steps), inputs(session, 3), stamps=stamps)
    if names:
        yield from _of_sizes(session, names)


def _of_sizes(session: Session, names: list[str]) -> Iterator[Life]:
    """What a call of another size leaves in buffers, and what the usual one makes of it."""
    given, secret = session.inputs(), random.Random(session.secret)
    shaped = [one for one in draws.shapes(given, True, (), secret) if one[0] != "batch 0"]
    if len(shaped) > _SIZES:  # the smallest are what state is longer than
        sizes = [sum(t.numel() for t in tensors(given_so)) for _, given_so in shaped]
        order = sorted(range(len(shaped)), key=sizes.__getitem__)
        some = secret.sample(order[_SMALL:], _SIZES - _SMALL)
        shaped = [shaped[i] for i in sorted(order[:_SMALL] + some)]
    for case, other in shaped:
        steps = [*begin(True), call("before"), call("of another size", "other")]
        steps += [{"do": "state", "names": names, "label": "buffers behind it"}, call("again")]
        steps += [{"do": "mode", "train": False}, call("in eval mode")]
        yield Life(case, tuple(steps), {"x0": given, "other": other})


def _optimizers(session: Session) -> Iterator[Life]:
    own = dict(session.oracle.model.named_parameters())
    names = [n for n in trained(session) if own[n].is_floating_point()]
    moving = buffers(session)
    for kind, rate in (("adamw", 2.0**-7), ("momentum", 2.0**-7), ("fused", 2.0**-7)):
        if not names:
            return
        steps: list[Step] = [*begin(False), {"do": "optimizer", "names": names}]
        if kind != "momentum":
            steps += [call("eval first")]
        for i in range(_STEPS):
            steps += [
                {"do": "mode", "train": True},
                {"do": "zero"},
                call(f"step {i + 1}", f"x{i % 2}", grad=True),
                {"do": "backward", "of": f"step {i + 1}", "scale": 2.0**-6},
                {"do": "update", "kind": kind, "rate": rate},
                {"do": "state", "names": names, "label": f"parameters after step {i + 1}"},
                {"do": "mode", "train": False},
                call(f"eval after step {i + 1}"),
            ]
        steps += [
            {"do": "state", "names": moving, "label": "buffers"},
            {"do": "identity", "names": names, "label": "the parameters as objects"},
        ]
        yield Life(kind, tuple(steps), inputs(session))


def _long(session: Session) -> Iterator[Life]:
    names = _moving(session)
    if not names:
        return
    steps = begin(True)
    for i in range(8, _LONG + 1, 8):
        steps += [
            {"do": "calls", "inputs": ["x0", "x1", "x2"], "count": 8},
            {"do": "state", "names": names, "label": f"buffers after {i} calls"},
        ]
    steps += [{"do": "mode", "train": False}, call("eval after all")]
    yield Life("", tuple(steps), inputs(session, 3))


TESTS: tuple[Test, ...] = (
    living(
        "statistics move",
        "statistics folded once and not followed, state that short inputs spoil",
        "Training between evaluations counts, with gradients, of the inputs, too, and without, and "
        "calls of other sizes, never reloaded.",
        _statistics,
        70,
        lives=14,
    ),
    living(
        "optimizer loop",
        "parameters exchanged behind an optimizer, folds that training leaves stale",
        "Three steps of AdamW, of SGD with momentum and of a fused kernel, evaluated after each.",
        _optimizers,
        30,
        lives=6,
    ),
    living(
        "long life",
        "statistics that go wrong after some number of calls",
        "Buffers stay right over forty training calls.",
        _long,
        41,
        lives=1,
    ),
)
