"""The constructor's arguments, each changed, named, or left out: a second build of both sides."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from refold.judge import draws
from refold.judge.clock.stopwatch import effort, least
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import call, inputs, living, words
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.room import starving
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.wire.memory import at_most
from refold.judge.worker.leaves import state_of
from refold.judge.worker.looks import GENERATOR
from refold.judge.worker.steps import Step

_NUMBERS = 16
_NONE = (0, 0)
_DRAWN = f"{GENERATOR} training calls"
_ROOM = 1 << 30  # bytes that a call may take because of the whole numbers that it is given
Init = Sequence[Any] | dict[str, Any]  # by position, or by name
# more than a byte counts, and fewer to see what that takes: seconds of this thread, bytes of states
_ON_THE_WAY, _MANY_SECONDS, _MANY_BYTES = (24, 67, 259), 0.6, 16 << 20
# what a quick judgement builds at most: bytes of states; seconds of the reference's own work
_QUICK_BYTES, _QUICK_SECONDS = 256 << 20, 4.0


def _others(value: Any, said: Sequence[str], drawn: bool = False) -> list[Any]:
    """Other values of a constructor's argument; what may be a probability stays one, and is above
    one, where that is taken; what may be an axis is counted from the end. ``said``: words of the
    reference's text. ``drawn``: the module draws random numbers: zero may be a probability, too."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return list(dict.fromkeys((value + 1, value - 1, 2 * value, -1)))
    if isinstance(value, float) and math.isfinite(value):
        none = [0.0] if drawn and 0 < value < 1 else []
        return [(1 + value) / 2, 1 + value, *none] if 0 <= value < 1 else [1.5 * value]
    if isinstance(value, str):
        return [word for word in said if word != value]
    if isinstance(value, list | tuple):  # one element after the other: sizes of two axes differ
        return [
            type(value)([*value[:i], new, *value[i + 1 :]])
            for i, one in enumerate(value)
            for new in _others(one, said)[:1]
        ]
    return []


def _calls(session: Session) -> list[tuple[str, Init, tuple[int, int]]]:
    """Calls of the constructor: what is said of each, its arguments, and the whole number that
    became another one."""
    init, said = session.oracle.init, words(session)
    found: list[tuple[str, Init, tuple[int, int]]] = []
    for i, value in enumerate(init):
        for new in _others(value, said, session.random):
            case = f"argument {i} = {new!r} instead of {value!r}"
            size = (value, new) if type(value) is int else _NONE
            found.append((case, [*init[:i], new, *init[i + 1 :]], size))
    taken = list(inspect.signature(type(session.oracle.model)).parameters.values())
    named = _with_defaults(init, taken)
    for name, value in list(named.items())[len(init) :]:
        for new in _others(value, said, session.random):
            case = f"{name} = {new!r} instead of {value!r}, its default"
            size = (value, new) if type(value) is int else _NONE
            found.append((case, {**named, name: new}, size))
    if len(found) > _NUMBERS:
        found = random.Random(session.secret).sample(found, _NUMBERS)
    elif session.quick:
        random.Random(session.secret).shuffle(found)
    names = [p.name for p in taken if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if init and len(names) >= len(init):
        found.insert(0, ("all arguments by keyword", dict(zip(names, init, strict=False)), _NONE))
    more = [p.default is not inspect.Parameter.empty for p in taken[: len(init)]]
    if any(more):  # those at the end that have defaults
        kept = max((i + 1 for i, optional in enumerate(more) if not optional), default=0)
        found.insert(0, (f"no argument behind the first {kept}", list(init[:kept]), _NONE))
    return found


def _with_defaults(init: Sequence[Any], taken: Sequence[inspect.Parameter]) -> dict[str, Any]:
    """The constructor's arguments by name, and those that have defaults behind them; empty where
    it takes some by position alone."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [p for p in taken if p.kind in kinds]
    if [p.name for p in known[: len(init)]] != [p.name for p in taken[: len(init)]]:
        return {}
    if len(known) < len(init):
        return {}
    rest = {p.name: p.default for p in known[len(init) :] if p.default is not p.empty}
    return {**{p.name: v for p, v in zip(known, init, strict=False)}, **rest}


def _fitting(given: dict[str, list[Any]], size: tuple[int, int]) -> Iterator[dict[str, list[Any]]]:
    """The inputs as they are; then, where the constructor's number is the size of some of their
    axes, with these as long as the new one: all but batches, and all."""
    yield given
    old, new = size
    held = tensors(given["x0"])
    dims = [(i, d) for i, t in enumerate(held) for d in range(t.dim()) if t.shape[d] == old]
    inner = [(i, d) for i, d in dims if d]
    for chosen in ([inner] if inner == dims else [inner, dims]) if new > 0 and old > 0 else ():
        if chosen:
            yield {k: draws.resized(v, old, new, iter(chosen)) for k, v in given.items()}


def _varied(session: Session) -> Iterator[Life]:
    spent, built = effort(), 0
    hurried = session.quick and not session.alone
    drawn = _drawn(session, session.oracle.init) if session.random else ""
    for case, given, size in _calls(session):
        if hurried and (built > _QUICK_BYTES or spent() > _QUICK_SECONDS):
            session.notes.append(f"{session.test}: a secret choice of numbers; building takes long")
            return
        state = _state(session, given)
        if state is None:  # no such module
            continue
        built += _bytes(state)
        more: list[Step] = []
        if drawn and _drawn(session, given) == drawn:
            # it draws the same, be nothing left out: who does not gives others from then on
            more += [{"do": "mode", "train": True}, call("trains")]
            more += [call(f"trains on {i}", "x1", seeded=False) for i in (1, 2)]
            more += [{"do": "random", "label": _DRAWN}]
        one = _taken(session, case, given, size, state, more)
        if one is not None:
            yield _copied(session, _of_odd(session, _with_far(session, one)))
    for case, value, put in _counts(session):
        if not (hurried and spent() > _QUICK_SECONDS):
            yield from _many(session, case, value, put)


def _state(session: Session, init: Init) -> dict[str, torch.Tensor] | None:
    """A state of the reference, built so; None where it is not built so."""
    try:
        model = session.reference.make(session.seed, init)
    except Exception as error:
        if starving(error):
            raise
        return None
    held = {k: v.detach().cpu().clone() for k, v in state_of(model).items()}
    return draws.perturbed(held, session.seed + 31)


def _bytes(state: dict[str, torch.Tensor]) -> int:
    return sum(v.numel() * v.element_size() for v in state.values())


def _taken(
    session: Session,
    case: str,
    init: Init,
    size: tuple[int, int],
    state: dict[str, torch.Tensor],
    more: Sequence[Step] = (),
) -> Life | None:
    """Calls of a module that is built so, on inputs that fit; None where the reference takes
    none."""
    build: Step = {"do": "build", "state": "other", "init": init}
    steps = (build, call("y"), call("again", "x1"), *more)
    for fit in _fitting(inputs(session), size):
        one = Life(case, steps, fit, (), Status.WRONG_CONTRACT, own={"other": state})
        if life.eager(session, one).raised is None:
            return one
    return None


def _counts(session: Session) -> Iterator[tuple[str, int, Callable[[int], Init]]]:
    """The constructor's whole numbers above zero: what is said of each, and the arguments with
    another one in its place."""
    init = list(session.oracle.init)
    for i, value in enumerate(init):
        if type(value) is int and value > 0:
            yield f"argument {i}", value, lambda new, i=i: [*init[:i], new, *init[i + 1 :]]  # type: ignore[misc]
    taken = list(inspect.signature(type(session.oracle.model)).parameters.values())
    named = _with_defaults(init, taken)
    for name, value in list(named.items())[len(init) :]:
        if type(value) is int and value > 0:
            yield name, value, lambda new, name=name: {**named, name: new}  # type: ignore[misc]


def _many(session: Session, case: str, value: int, put: Callable[[int], Init]) -> Iterator[Life]:
    """A number of more than a byte counts, where what the reference takes for fewer says that this
    is little."""
    for new, following in zip(_ON_THE_WAY, (*_ON_THE_WAY[1:], 0), strict=True):
        if new <= value:
            continue
        times = (following / new) ** 2
        most = _MANY_SECONDS / times if times else math.inf
        build = functools.partial(_with_many, session, case, value, put, new)
        (one, held), took = least(build, most)
        if one is None:
            return
        if not following:
            yield replace(one, case=f"{case} = {new} instead of {value}")
            return
        if times * held > _MANY_BYTES or took > most:
            return


def _with_many(
    session: Session, case: str, value: int, put: Callable[[int], Init], new: int
) -> tuple[Life | None, int]:
    """Calls of a module that is built with another number; None where the reference takes none, or
    answers with nothing but zeros (more keys than there are heads). And the bytes of its state."""
    state = _state(session, put(new))
    one = None if state is None else _taken(session, case, put(new), (value, new), state)
    if state is None or one is None:
        return None, 0
    answer = tensors(life.eager(session, one).seen["y"][1])
    said = not answer or any(bool(t.count_nonzero()) for t in answer)
    return one if said else None, _bytes(state)


def _drawn(session: Session, init: Init) -> str:
    """Where a training call of the reference, built so, leaves PyTorch's generator; the empty word
    where it does not take that."""
    steps: list[Step] = [{"do": "build", "state": "", "init": init}]
    steps += [{"do": "mode", "train": True}]
    steps += [call("trains", see=False), {"do": "random", "label": _DRAWN}]
    seen = life.eager(session, Life("", tuple(steps), inputs(session, 1))).seen
    return str(seen[_DRAWN][1]) if _DRAWN in seen else ""


def _copied(session: Session, one: Life) -> Life:
    """With a call of a copy in the end, which has the same arguments."""
    steps = (*one.steps, {"do": "clone", "to": "copy"}, call("a copy of it", model="copy"))
    more = replace(one, steps=steps)
    return more if life.eager(session, more).raised is None else one


def _of_odd(session: Session, one: Life) -> Life:
    """With a call of an odd number of samples: what ends at whole blocks of all elements has none
    left where the samples are so many, whatever the other axes are."""
    batch = next((len(t) for t in tensors(one.inputs["x0"]) if t.dim()), 0)
    if batch < 2 or batch % 2:
        return one
    more = replace(one, steps=(*one.steps, call("an odd number of samples", rows=batch - 1)))
    return more if life.eager(session, more).raised is None else one


def _with_far(session: Session, one: Life) -> Life:
    """With a call on whole numbers far away, where the reference takes them: what a size of a power
    of two hides (a remainder of a sign, of cut bits) shows in others."""
    far = draws.far_whole(one.inputs["x0"])
    if far is None:
        return one
    given = {**one.inputs, "far": far}
    more = replace(one, steps=(*one.steps, call("whole numbers far away", "far")), inputs=given)
    cpu = session.device.type == "cpu"  # a whole number may say how much memory is taken
    try:
        with at_most(_ROOM) if cpu else contextlib.nullcontext():
            return more if life.eager(session, more).raised is None else one
    except Exception as error:
        if not starving(error):
            raise
        return one


TESTS: tuple[Test, ...] = (
    living(
        "constructor",
        "sizes, numbers and words of the constructor that are built in, other names and defaults",
        "The constructor's whole numbers, one more, one less, doubled, -1 and 259, its switches, "
        "words and other numbers, above one, too, probabilities of zero, alone or in tuples, where "
        "taken; defaults, too; all by keyword; those that have defaults left out; inputs fit a "
        "size of theirs, whole numbers far away and an odd number of samples, too; a copy has the "
        "same arguments.",
        _varied,
        44,
    ),
)
