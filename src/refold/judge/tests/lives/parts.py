"""Lives in which parts of a module are set otherwise: their modes, their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import MANY, begin, buffers, call, inputs, living
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session

_PARTS = 12
_TINY = 1e-3
_ALL_DROPPED = "a probability of one (all is dropped) gives something else than the reference"


def _acting(session: Session) -> list[str]:
    """Paths of parts whose own mode may matter: those with buffers or a probability."""
    found = []
    for path, part in session.oracle.model.named_modules():
        own = dict(part.named_buffers(recurse=False))
        if path and (own or hasattr(part, "p") or hasattr(part, "dropout")):
            found.append(path)
    return found[:_PARTS]


def _modes(session: Session) -> Iterator[Life]:
    names = buffers(session)
    for path in _acting(session):
        for train in (True, False):
            steps = begin(train)
            steps += [call("the whole")]
            steps += [{"do": "mode", "train": not train, "path": path}]
            steps += [call("one part otherwise"), call("again", "x1")]
            steps += [{"do": "state", "names": names, "label": "buffers"}]
            steps += [{"do": "mode", "train": train}, call("the whole again")]
            where = "train" if train else "eval"
            yield Life(f"{path} alone not in {where} mode", tuple(steps), inputs(session))
        switch = {"do": "attribute", "path": path, "name": "training", "value": False}
        steps = [*begin(True), call("train"), switch, call("one in eval")]
        yield Life(f"{path}.training = False", tuple(steps), inputs(session, 1))


def _numbers(session: Session) -> Iterator[Life]:
    names = buffers(session)
    found: list[tuple[str, str, Any]] = []
    for path, part in session.oracle.model.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_") or isinstance(value, bool):
                continue
            if isinstance(value, float) and value:
                # what is there to keep a root from zero is made large enough to show; what may be
                # a probability stays one
                most = (1 + value) / 2 if value < 1 else 1.5 * value
                other = 1000 * value if abs(value) < _TINY else min(1.5 * value, most)
                found.append((path, name, other))
                if name == "p":  # a probability has two ends
                    found += [(path, name, 1.0), (path, name, 0.0)]
        if path and getattr(part, "momentum", None) is not None:
            found.append((path, "momentum", None))
    for path, name, value in found[:MANY]:
        steps = [*begin(False), call("eval first"), {"do": "mode", "train": True}, call("train")]
        steps += [{"do": "attribute", "path": path, "name": name, "value": value}]
        steps += [call("train after", "x1"), {"do": "state", "names": names, "label": "buffers"}]
        steps += [{"do": "mode", "train": False}, call("eval after")]
        # what scales by 1 / (1 - p) divides by zero where all is dropped, which nobody does
        stamps = {"train after": _ALL_DROPPED} if (name, value) == ("p", 1.0) else {}
        name = f"{path}.{name}" if path else name
        yield Life(f"{name} = {value}", tuple(steps), inputs(session), stamps=stamps)


TESTS: tuple[Test, ...] = (
    living(
        "parts' modes",
        "one mode taken for that of all parts",
        "A part may be in eval mode while the rest trains, and the reverse; also by its attribute.",
        _modes,
        24,
    ),
    living(
        "parts' numbers",
        "numbers of modules (eps, momentum, probabilities) taken as they were built",
        "A part's number that the caller changes counts.",
        _numbers,
        24,
    ),
)
