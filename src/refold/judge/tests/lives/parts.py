"""Lives in which parts of a module are set otherwise, their modes and numbers, or exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import MANY, begin, buffers, call, inputs, living, trained
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.worker.looks import GENERATOR

_PARTS = 12
_TINY = 1e-3
_SHARE = 0.375  # of a momentum, where moments of all calls weigh alike
_ALL_DROPPED = "a probability of one (all is dropped) gives something else than the reference"
_DRAWN = f"{GENERATOR} a call that drops nothing"
_NOTHING_DROPPED = "a probability of zero (nothing is dropped) draws numbers where eager draws none"


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


def numbers(session: Session) -> list[tuple[str, str, Any]]:
    """Parts, their numbers by name, and other values for these; at most `MANY`."""
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
        if path and hasattr(part, "momentum"):
            found.append((path, "momentum", _SHARE if part.momentum is None else None))
    return found[:MANY]


def _numbers(session: Session) -> Iterator[Life]:
    names = buffers(session)
    for path, name, value in numbers(session):
        steps = [*begin(False), call("eval first"), {"do": "mode", "train": True}, call("train")]
        steps += [{"do": "attribute", "path": path, "name": name, "value": value}]
        steps += [call("train after", "x1"), {"do": "state", "names": names, "label": "buffers"}]
        # what scales by 1 / (1 - p) divides by zero where all is dropped, which nobody does
        stamps = {"train after": _ALL_DROPPED} if (name, value) == ("p", 1.0) else {}
        if (name, value) == ("p", 0.0):
            steps += [{"do": "random", "label": _DRAWN}]
            stamps = {_DRAWN: _NOTHING_DROPPED}
        steps += [{"do": "mode", "train": False}, call("eval after")]
        name = f"{path}.{name}" if path else name
        yield Life(f"{name} = {value}", tuple(steps), inputs(session), stamps=stamps)


def _tied(session: Session, parts: list[str]) -> Iterator[Life]:
    """Two parts get one weight, as the first and the last layer of a language model do."""
    model, names = session.oracle.model, trained(session)
    first: dict[Any, str] = {}
    for path in parts:
        weight = model.get_submodule(path)._parameters.get("weight")
        if weight is None:
            continue
        other = first.setdefault(weight.shape, path)
        if other == path or model.get_submodule(other)._parameters["weight"] is weight:
            continue
        tie = {"do": "restructure", "path": path, "how": "weights tied", "other": other}
        steps = [*begin(False), call("first"), tie, call("after it", "x1")]
        steps += [call("y", grad=True, want=True), {"do": "backward", "of": "y"}]
        kept = [n for n in names if n != f"{path}.weight"]
        steps += [{"do": "grads", "names": kept, "label": "gradients", "of": "y"}]
        case, stale = f"one weight for {other} and {path}", Status.STALE_WEIGHTS
        yield Life(case, tuple(steps), inputs(session), status=stale)
        return


def exchanged(session: Session) -> Iterator[Life]:
    """Parts with weights of their own in the place of those that were built."""
    found = [
        path
        for path, part in session.oracle.model.named_modules()
        if path and any(True for _ in part.parameters(recurse=False))
    ]
    for path in found[:4]:
        other = {"do": "restructure", "path": path, "how": "part replaced"}
        steps = [*begin(False), call("first"), other, call("after it", "x1")]
        yield Life(path, tuple(steps), inputs(session), status=Status.STALE_WEIGHTS)
    yield from _tied(session, found)
    for path in found[-2:]:  # of others the layer behind refuses what comes out
        wider = {"do": "restructure", "path": path, "how": "part widened"}
        steps = [*begin(False), call("first"), wider, call("after it", "x1")]
        case, stale = f"{path} with three numbers more", Status.STALE_WEIGHTS
        yield Life(case, tuple(steps), inputs(session), status=stale)
    for path in found[:4]:
        part = session.oracle.model.get_submodule(path)
        for names in (["bias"], ["running_mean", "running_var"]):
            if any(getattr(part, n, None) is None for n in names):
                continue
            gone = {"do": "take_away", "path": path, "names": names}
            steps = [*begin(False), call("first"), gone, call("after it", "x1")]
            case, stale = f"{path} without {' and '.join(names)}", Status.STALE_WEIGHTS
            yield Life(case, tuple(steps), inputs(session), status=stale, quiet=True)
    yield from _functions(session)


def _functions(session: Session) -> Iterator[Life]:
    """A part that holds nothing, as an activation, gets another function behind it."""
    held = session.oracle.model.named_modules()
    found = [path for path, part in held if path and not any((*part.children(), *_own(part)))]
    for path in found[:4]:
        wrapped = {"do": "restructure", "path": path, "how": "part wrapped"}
        steps = (*begin(False), call("first"), wrapped, call("after it", "x1"))
        stale = Status.STALE_WEIGHTS
        yield Life(f"{path} wrapped", steps, inputs(session), status=stale, quiet=True)


def _own(part: nn.Module) -> list[bool]:
    """One for each tensor of the part's own."""
    return [True for _ in (*part.parameters(recurse=False), *part.buffers(recurse=False))]


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
