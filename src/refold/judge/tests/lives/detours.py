"""Lives in which weights are written while something makes a module take another path: a hook, a
part's mode, a patched forward, gradients. What is not looked at there is looked at behind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, floating, inputs, living, trained
from refold.judge.tests.lives.weights import LATE
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.worker.steps import Step

_FACTOR = 1.25
_PARTS = 2  # of those with weights, a secret choice


@dataclass(frozen=True)
class _Detour:
    """What makes a module take another path, and what undoes it; ``options`` of the calls between;
    ``spared``: a tensor that is not written meanwhile, as it has another name; ``moves``: calls
    between change what calls behind them read, such as running statistics."""

    case: str
    on: tuple[Step, ...] = ()
    off: tuple[Step, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    spared: str = ""
    moves: bool = False


def _of_calls() -> Iterator[_Detour]:
    yield _Detour("calls with gradients", options={"grad": True})
    yield _Detour("inputs that want gradients", options={"grad": True, "want": True})
    yield _Detour("calls under autocast", options={"how": "autocast", "see": False})
    yield _Detour("calls of one sample", options={"rows": 1})


def _of_the_module(session: Session) -> Iterator[_Detour]:
    unhook: Step = {"do": "unhook"}
    for kind in ("forward", "pre"):
        yield _Detour(f"a {kind} hook", ({"do": "hook", "kind": kind},), (unhook,))
    modes: list[Step] = [{"do": "mode", "train": train} for train in (True, False)]
    yield _Detour("train mode", (modes[0],), (modes[1],), moves=True)
    patch: list[Step] = [{"do": "patch", "path": "", "on": on} for on in (True, False)]
    yield _Detour("a patched forward", (patch[0],), (patch[1],))
    names = trained(session)
    if len(names) > 1:
        one = {"do": "parametrize", "name": names[0]}
        on, off = {**one, "on": True}, {**one, "on": False}
        yield _Detour("a parametrization", (on,), (off,), spared=names[0])


def _of_parts(session: Session) -> Iterator[_Detour]:
    found = [
        path
        for path, part in session.oracle.model.named_modules()
        if path and any(True for _ in part.parameters(recurse=False))
    ]
    for path in random.Random(session.secret).sample(found, min(len(found), _PARTS)):
        unhook: Step = {"do": "unhook"}
        for kind in ("forward", "pre"):
            hook = {"do": "hook", "kind": kind, "path": path}
            yield _Detour(f"a {kind} hook of {path}", (hook,), (unhook,))
        modes: list[Step] = [{"do": "mode", "train": t, "path": path} for t in (True, False)]
        yield _Detour(f"{path} in train mode", (modes[0],), (modes[1],), moves=True)
        patch: list[Step] = [{"do": "patch", "path": path, "on": on} for on in (True, False)]
        # a fused module passes by what its parts do: only what comes behind it is compared
        case, unseen = f"a patched forward of {path}", {"see": False}
        yield _Detour(case, (patch[0],), (patch[1],), unseen)


def _life(session: Session, names: Sequence[str], one: str, detour: _Detour) -> Life:
    """Both kinds of writes, each with a call behind it on that path and without: four detours.

    Past PyTorch's count one tensor is written: where some are followed later than others, results
    of several are of neither state.
    """
    steps = [*begin(False), call("first"), call("again")]
    stamps, instead, last = dict[str, str](), dict[str, str](), "again"
    for how in (".data.mul_", "in place"):
        for seen in (True, False):
            what = f"{how}, {'called' if seen else 'not called'} meanwhile"
            before, there = f"{what}: on that path", f"{what}: there"
            soon, late = f"{what}: behind it", f"{what}: the next call"
            counted = how == "in place"
            write: Step = {"do": "write", "names": names if counted else [one], "how": how}
            write["factor"] = _FACTOR
            meanwhile = [call(there, **detour.options)] if seen else []
            steps += [*detour.on, call(before, **detour.options), write, *meanwhile]
            steps += [*detour.off, call(soon), call(late)]
            if not counted:
                # whoever looks one call late may have looked at neither on the other path
                stamps |= {there: LATE, soon: LATE}
                if not detour.moves:
                    instead |= {there: before, soon: last}
            last = late
    return Life(
        detour.case,
        tuple(steps),
        inputs(session, 1),
        status=Status.STALE_WEIGHTS,
        stamps=stamps,
        instead=instead,
    )


def _behind(session: Session) -> Iterator[Life]:
    names = floating(session)
    first = random.Random(session.secret ^ 9).randrange(max(len(names), 1))
    detours = (*_of_calls(), *_of_the_module(session), *_of_parts(session))
    if session.remembers(False):
        # what calls that may go another way leave behind is read by those that are compared
        detours = tuple(d for d in detours if d.options.get("see", True))
    for i, detour in enumerate(detours):
        written = [n for n in names if n != detour.spared]
        if written:
            yield _life(session, written, written[(first + i) % len(written)], detour)


TESTS: tuple[Test, ...] = (
    living(
        "writes in between",
        "folds that are not looked at while another path is taken",
        "Weights written while a hook, a patched forward, a parametrization or another mode is "
        "there, or between calls with gradients, of one sample, under autocast, count behind it.",
        _behind,
        120,
        lives=14,
    ),
)
