"""Lives in which the module is called in every form that its forward takes."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Test
from refold.judge.tests.forms import optional
from refold.judge.tests.lives.common import (
    OTHER_RANK,
    begin,
    call,
    inputs,
    living,
    trained,
)
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.wire.host import Raised
from refold.judge.worker.steps import Step
from refold.judge.worker.values import first

_PARTS = 3  # of a module, a secret choice, that have hooks
_REFUSED = "whether it is refused"
_NAMES = "names of its parts"


def _keywords(session: Session) -> Iterator[Life]:
    names = [p.name for p in optional.parameters(session)][: len(session.inputs())]
    if len(names) < len(session.inputs()) or not names:
        return
    for case, start in (("all by keyword", 0), ("all but the first by keyword", 1)):
        if start < len(names):
            steps = [*begin(), call("y", words=names[start:])]
            status = Status.WRONG_CONTRACT
            yield Life(case, tuple(steps), inputs(session, 1), status=status, must=True)
    other: Step = {"do": "refuse", "inputs": "x0", "label": _REFUSED, "words": ["refold_unknown"]}
    stamps = {_REFUSED: "keywords that the reference refuses are taken"}
    yield Life("an unknown keyword", (*begin(), other), inputs(session, 1), stamps=stamps)
    yield from optional.by_name(session)
    more = [
        *session.inputs(),
        *[None] * (1 + len(optional.parameters(session)) - len(session.inputs())),
    ]
    stamps = {_REFUSED: "more arguments than the reference takes are taken"}
    other = {"do": "refuse", "inputs": "more", "label": _REFUSED}
    yield Life("one argument more", (*begin(), other), {"more": more}, stamps=stamps)


def _containers(session: Session) -> Iterator[Life]:
    given = session.inputs()
    named = (*begin(), call("y"), {"do": "fields", "of": "y", "label": _NAMES})
    one = Life("names of outputs", named, inputs(session, 1), status=Status.WRONG_CONTRACT)
    if life.eager(session, one).seen.get(_NAMES, ("", []))[1]:
        yield one
    yield from _any_number(session)
    if not _holds(given, dict) and not any(isinstance(v, list | tuple) for v in given):
        return
    for case, changed, must in (
        ("dicts in reverse order", _dicts(given, False), True),
        ("dicts with one more key", _dicts(given, True), False),
        ("lists one longer", _lists(given, 1), False),
        ("lists one shorter", _lists(given, -1), False),
        ("lists in reverse order", _lists(given, 0), False),
    ):
        steps = [*begin(), call("first"), call("y", "other")]
        status = Status.WRONG_CONTRACT
        yield Life(case, tuple(steps), {"x0": given, "other": changed}, status=status, must=must)


def _any_number(session: Session) -> Iterator[Life]:
    """More and fewer arguments, where forward takes any number of them."""
    given = session.inputs()
    kinds = {p.kind for p in inspect.signature(session.oracle.model.forward).parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL not in kinds or not given:
        return
    more = [*given, *session.inputs(1)]
    cases = {"twice as many": more, "one more": more[: len(given) + 1], "one fewer": given[:-1]}
    for case, changed in cases.items():
        steps = (*begin(), call("first"), call("y", "other"))
        made, status = {"x0": given, "other": changed}, Status.WRONG_CONTRACT
        yield Life(f"{case} arguments", steps, made, status=status, must=True)


def _holds(tree: Any, kind: type) -> bool:
    if isinstance(tree, kind):
        return True
    if isinstance(tree, dict):
        return any(_holds(v, kind) for v in tree.values())
    return isinstance(tree, list | tuple) and any(_holds(v, kind) for v in tree)


def _dicts(tree: Any, more: bool) -> Any:
    if isinstance(tree, dict):
        found = {k: _dicts(v, more) for k, v in reversed(list(tree.items()))}
        return {"refold_more": next(iter(found.values()), None), **found} if more else found
    if isinstance(tree, list | tuple):
        return type(tree)([_dicts(v, more) for v in tree])
    return tree


def _lists(tree: list[Any], by: int) -> list[Any]:
    """The containers among the arguments one element longer or shorter, or in reverse order."""

    def changed(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not value:
            return value
        longer, shorter = [*value, value[-1]], list(value)[:-1]
        return type(value)(longer if by > 0 else shorter if by < 0 else list(value)[::-1])

    return [changed(v) for v in tree]


def _hooks(session: Session) -> Iterator[Life]:
    for kind in ("forward", "pre"):
        for other in (False, True):
            steps: list[Step] = [*begin(), call("before")]
            steps += [{"do": "hook", "kind": kind, "replace": other}, call("y", "x1")]
            steps += [{"do": "counted", "label": "how often it was called"}]
            steps += [{"do": "unhook"}, call("after")]
            what = "replaces" if other else "looks on"
            status = Status.WRONG_CONTRACT
            yield Life(f"a {kind} hook that {what}", tuple(steps), inputs(session), status=status)
    for kind in ("forward with keywords", "pre with keywords"):
        steps = [*begin(), {"do": "hook", "kind": kind}, call("y", "x1")]
        steps += [{"do": "counted", "label": "how often it was called"}]
        case, status = f"a {kind.replace(' with', ' hook with')}", Status.WRONG_CONTRACT
        yield Life(case, tuple(steps), inputs(session), status=status)
    yield from _hooks_of_parts(session)
    steps = [*begin(), {"do": "hook", "kind": "of all modules"}, call("y")]
    steps += [{"do": "counted", "label": "how often it was called"}]
    case, status = "a forward hook of all modules", Status.WRONG_CONTRACT
    yield Life(case, tuple(steps), inputs(session, 1), status=status)
    for kind in ("backward", "backward pre") if draws.has_numbers(session.inputs()) else ():
        steps = [*begin(), {"do": "hook", "kind": kind}, call("y", grad=True, want=True)]
        steps += [{"do": "backward", "of": "y"}]
        steps += [{"do": "counted", "label": "how often it was called"}]
        status = Status.WRONG_CONTRACT
        yield Life(f"a {kind} hook", tuple(steps), inputs(session, 1), status=status)


def _hooks_of_parts(session: Session) -> Iterator[Life]:
    """What hooks of parts keep stays; one may call the module; hooks of parameters are called."""
    parts = session.oracle.model.named_modules()
    found = [path for path, part in parts if path and not list(part.children())]
    status = Status.WRONG_CONTRACT
    for path in random.Random(session.secret).sample(found, min(len(found), _PARTS)):
        steps = [*begin(False), {"do": "hook", "kind": "keeping", "path": path}, call("y")]
        steps += [{"do": "remember_hooks"}, call("y of others", "x1")]
        steps += [{"do": "kept_by_hooks", "label": "whether what a hook kept is changed"}]
        yield Life(f"a hook of {path} that keeps", tuple(steps), inputs(session), status=status)
        if not (session.random or session.remembers(False)):
            steps = [*begin(False), {"do": "hook", "kind": "calling", "path": path}, call("y")]
            case = f"a hook of {path} that calls the module"
            yield Life(case, tuple(steps), inputs(session), status=status)
    names = trained(session)
    if names:
        steps = [*begin(), {"do": "listen", "names": names}, call("y", grad=True, want=True)]
        steps += [{"do": "backward", "of": "y"}]
        steps += [{"do": "counted", "label": "how often hooks of parameters were called"}]
        yield Life("hooks of parameters", tuple(steps), inputs(session, 1), status=status)


def _ranks(session: Session) -> Iterator[Life]:
    given = session.inputs()
    held = tensors(given)
    if not held or not held[0].dim():
        return
    batch = held[0].shape[0]

    def each(change: Any) -> list[Any]:
        def one(t: torch.Tensor) -> torch.Tensor:
            fits = t.dim() and t.shape[0] == batch
            result: torch.Tensor = change(t) if fits else t
            return result

        return [draws.every(v, one) for v in given]

    half = next((n for n in (2, 3, 5) if batch % n == 0 and batch > n), 0)
    cases = [("an axis in front", each(lambda t: t.unsqueeze(0)))]
    if half:
        split = each(lambda t: t.reshape(half, t.shape[0] // half, *t.shape[1:]))
        cases.append(("the batch split in two axes", split))
    if batch:
        cases.append(("no batch", each(lambda t: t[0].contiguous())))
    for case, changed in cases:
        steps = [*begin(), call("first"), call("y", "other")]
        status = Status.WRONG_NUMERICS
        made = {"x0": given, "other": changed}
        yield Life(case, tuple(steps), made, status=status, shapes=OTHER_RANK)


def refused(session: Session) -> Iterator[Life]:
    """Widths that the reference refuses, of axes that meet a parameter."""
    given = session.inputs()
    sizes = {s for p in session.oracle.model.parameters() for s in p.shape if s > 2}
    for i, t in enumerate(tensors(given)):
        if not (t.is_floating_point() and t.dim() and t.shape[-1] in sizes):
            continue
        for new in dict.fromkeys((t.shape[-1] - 1, t.shape[-1] + 1, t.shape[-1] // 2)):
            numbers = iter(range(len(tensors(given))))
            wide = torch.cat([t, t[..., :1]], dim=-1)[..., :new].contiguous()

            def change(
                old: torch.Tensor, at: int = i, wide: torch.Tensor = wide, n: Any = numbers
            ) -> torch.Tensor:
                return wide if next(n) == at else old

            other = [draws.every(v, change) for v in given]
            case = f"input {i} of width {new}"
            made = {"x0": given, "other": other}
            one = Life(case, _behind_calls(), made, status=Status.WRONG_CONTRACT)
            if life.eager(session, one).seen.get(_REFUSED, ("", False))[1]:
                yield replace(one, stamps=_padded(session, i, t, new))
    for dtype in (torch.float64, torch.float16, torch.int32):
        other = draws.mapped(given, lambda t, d=dtype: t.to(d) if t.dtype is torch.float32 else t)
        stamps = {_REFUSED: "inputs of dtypes that the reference refuses are taken"}
        case = f"inputs of {str(dtype).removeprefix('torch.')}"
        one = Life(case, _behind_calls(), {"x0": given, "other": other}, stamps=stamps)
        if life.eager(session, one).seen.get(_REFUSED, ("", False))[1]:
            yield one
    yield from _beyond(session)


def _behind_calls(train: bool | None = None) -> tuple[Step, ...]:
    """A call that the reference refuses, behind one that it answers: whoever has an answer may give
    it once more."""
    refused: Step = {"do": "refuse", "inputs": "other", "label": _REFUSED}
    return (*begin(train), call("first"), refused)


def _beyond(session: Session) -> Iterator[Life]:
    """One sample, and indices out of range: that they are taken where the reference refuses them is
    told."""
    given = session.inputs()

    def beyond(t: torch.Tensor) -> torch.Tensor:
        whole = not draws.inexact(t) and t.dtype is not torch.bool
        if not whole or not t.numel():
            return t
        return torch.full_like(t, min(torch.iinfo(t.dtype).max, torch.iinfo(torch.int16).max))

    if not tensors(given) or not tensors(given)[0].dim():
        return
    cases = {"one sample": first(given, 1)}
    if session.device.type == "cpu":  # elsewhere a kernel asserts, and the device is lost
        cases["indices out of range"] = draws.every(given, beyond)
    for case, other in cases.items():
        for train in (True, False):
            stamps = {_REFUSED: f"{case}, where the reference refuses that: it is taken"}
            where = f"{case}, in {'train' if train else 'eval'} mode"
            made = {"x0": given, "other": other}
            one = Life(where, _behind_calls(train), made, stamps=stamps)
            if life.eager(session, one).seen.get(_REFUSED, ("", False))[1]:
                yield one


def _padded(session: Session, at: int, t: torch.Tensor, new: int) -> dict[str, str]:
    """A product in blocks takes what is narrower as if zeros followed. That is told, not refused:
    it reads nothing that is not there."""
    if new >= t.shape[-1]:
        return {}
    narrow, zeros = t[..., :new].contiguous(), torch.zeros_like(t)
    zeros[..., :new] = narrow

    def with_(value: torch.Tensor) -> list[Any]:
        numbers = iter(range(len(tensors(session.inputs()))))

        def put(old: torch.Tensor) -> torch.Tensor:
            return value if next(numbers) == at else old

        return [draws.every(v, put) for v in session.inputs()]

    truth = session.truth(with_(zeros))
    try:
        outputs = session.call(with_(narrow))["outputs"]
    except Raised:
        return {}
    text = "narrower inputs than the reference takes are taken as if zeros followed"
    return {_REFUSED: text} if session.agrees(outputs, truth) else {}


TESTS: tuple[Test, ...] = (
    living(
        "keywords",
        "arguments taken by position alone",
        "Arguments, optional ones, too, may be given by the reference's names; others are refused, "
        "or it is told.",
        _keywords,
        5,
    ),
    living(
        "optional arguments",
        "optional arguments that are taken and not used, or kept from one call to the next",
        "Each optional argument given another value, a mask, what the module gave back, a word of "
        "the reference's text for a word, between calls without it, or left out; of one sample; "
        "two at once, or one without another; with gradients.",
        optional.derive,
        28,
        lives=6,
    ),
    living(
        "containers",
        "dicts read by order, lists of one length, named tuples that are plain ones",
        "Dicts in another order or with one more key; lists longer, shorter and in another order "
        "where taken; parts of outputs have the reference's names.",
        _containers,
        10,
    ),
    living(
        "hooks",
        "hooks of the module that are passed by",
        "Hooks on the module, of all modules and of parameters are called, and what they return "
        "counts; what hooks of parts keep stays, and they may call the module.",
        _hooks,
        20,
    ),
    living(
        "ranks",
        "one rank taken for granted",
        "An axis in front, the batch in two axes, no batch: where the reference takes them.",
        _ranks,
        6,
        apart=True,
    ),
    living(
        "refused widths",
        "an answer where there is none",
        "Widths that the reference refuses are refused; other dtypes, indices out of range and one "
        "sample, too, or it is told.",
        refused,
        10,
        apart=True,
    ),
)
