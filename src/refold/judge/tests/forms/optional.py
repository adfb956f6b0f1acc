"""Lives of a module's optional arguments: each given, left out, by its name."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.lives.common import begin, call, trained, words
from refold.judge.verdict import life
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Status
from refold.judge.worker.steps import Step

_NONES, _MASKS = 4, 12
_PAIRS, _SINGLES, _WITHOUT = 6, 3, 12
_NUMBERS = (0.0, 0.37, 0, 2)
_TRIALS = 16  # pairs of values for two arguments, until the reference takes one
_NAMED = "y by keyword"


def parameters(session: Session) -> list[inspect.Parameter]:
    """Of the reference's forward; none where it takes any number of arguments."""
    found = list(inspect.signature(session.oracle.model.forward).parameters.values())
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [] if any(p.kind in loose for p in found) else found


def by_name(session: Session) -> Iterator[Life]:
    """Who takes an optional argument by its place takes it by its name, too."""
    found, given = parameters(session), session.inputs()
    left = found[len(given) :]
    values = [p.default for p in left]
    if not left or not all(v is None or isinstance(v, bool | int | float | str) for v in values):
        return
    names = [p.name for p in left]
    steps = [*begin(), call("y", "all"), call(_NAMED, "all", words=names)]
    case, status = "optional ones by keyword", Status.WRONG_CONTRACT
    yield Life(case, tuple(steps), {"all": [*given, *values]}, status=status, firm=_NAMED)


def derive(session: Session) -> Iterator[Life]:
    """Each optional argument given another value between calls without it, or left out; two at
    once; with gradients."""
    found, given = parameters(session), session.inputs()
    truth = session.truth(given).eager
    if truth is None:
        return
    shapes = [*tensors(given), *tensors(truth.outputs)]
    unlike = {(t.shape, t.dtype): t for t in shapes}
    named, held = words(session), list(unlike.values())
    others = {p.name: _others(p.default, held, named) for p in found}
    for p in found:
        if p.default is None:
            others[p.name] += [*_states(truth.outputs), *_plain(p, named)]
    for i, parameter in enumerate(found):
        if parameter.default is inspect.Parameter.empty:
            continue
        values, singles = others[parameter.name], 0
        names = [p.name for p in found[: len(given)] if p.name != parameter.name]
        kept = [v for p, v in zip(found, given, strict=False) if p.name != parameter.name]
        for value in values:
            said = _said(value)
            by = [*names, parameter.name]
            steps = [*begin(), call("y", words=by), {"do": "mode", "train": False}]
            # what a call with another value has left meets those without, and the reverse
            steps += [call("without it", "plain"), call("y in eval mode", words=by)]
            steps += [call("without it again", "plain")]
            given_so, case = {"x0": [*kept, value], "plain": given}, f"{parameter.name} = {said}"
            yield Life(case, tuple(steps), given_so, status=Status.WRONG_CONTRACT)
            if singles < _SINGLES and isinstance(value, torch.Tensor) and value.dim():
                one = _of_one_sample(case, by, given_so)
                if life.eager(session, one).raised is None:
                    singles += 1
                    yield one
            if not isinstance(value, torch.Tensor) or value.is_floating_point():
                yield _backward(session, f"gradients, {case}", by, {"x0": given_so["x0"]})
        if i < len(given):
            steps = [*begin(), call("y", words=names)]
            case = f"{parameter.name} left out"
            yield Life(case, tuple(steps), {"x0": kept}, status=Status.WRONG_CONTRACT)
            yield _backward(session, f"gradients, {case}", names, {"x0": kept})
    yield from _two_optional(session, found, others)


def _of_one_sample(case: str, names: list[str], given: dict[str, list[Any]]) -> Life:
    """Calls of one sample with and without an argument: what is made once for all samples is the
    very tensor then, and stays what it was."""
    steps = [*begin(False), call("one sample", rows=1, words=names)]
    steps += [call("one without it", "plain", rows=1), call("all without it", "plain")]
    return Life(f"{case}, one sample", tuple(steps), given, status=Status.WRONG_CONTRACT)


def _others(default: Any, unlike: list[torch.Tensor], said: list[str]) -> list[Any]:
    """Other values than a default."""
    if isinstance(default, str):
        return [w for w in said if w != default]
    if default is None:
        return [*map(_other, unlike[:_NONES]), *draws.masks(unlike)[:_MASKS]]
    if isinstance(default, bool):
        return [not default]
    if not isinstance(default, int | float):
        return []
    if isinstance(default, float):  # of many bits: float32 has no such number
        found = [1.7 * default + 0.9, 0.7 * default, 0.0, -default]
    else:
        found = [2 * default + 1, 0, -default, default + 3]  # of a place one is next to none
    return list(dict.fromkeys(v for v in found if v != default))


def _plain(parameter: inspect.Parameter, said: list[str]) -> list[Any]:
    """Numbers and words for an argument that is None by default, where it is not said to be a
    tensor: zero is a number, too, which is not true."""
    if "Tensor" in str(parameter.annotation):
        return []
    return [*_NUMBERS, *said]


def _states(outputs: Any) -> list[Any]:
    """What a module gave back may be given to it, as a state is: the tuples and lists of tensors
    among its outputs, in values of the same kind."""
    if not isinstance(outputs, list | tuple):
        return []
    whole = outputs and all(isinstance(t, torch.Tensor) for t in outputs)
    inner = [found for part in outputs for found in _states(part)]
    return [*([draws.every(outputs, _other)] if whole else ()), *inner]


def _said(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} tensors"
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def _learns(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _backward(session: Session, case: str, names: list[str], given: dict[str, list[Any]]) -> Life:
    """A call with arguments of these names, and its gradients."""
    forward = call("y", words=names, grad=True, want=True)
    grads = {"do": "grads", "names": trained(session), "label": "gradients", "of": "y"}
    back: list[Step] = [{"do": "backward", "of": "y"}, grads]
    return Life(case, (*begin(), forward, *back), given)


def _two_optional(
    session: Session, found: list[inspect.Parameter], others: dict[str, list[Any]]
) -> Iterator[Life]:
    """Two optional arguments at once: each with the first other value that the reference takes, or
    the first two values of a kind that it takes together, as the keys and values of a past."""
    given = session.inputs()
    held = dict(zip([p.name for p in found], given, strict=False))

    def one(values: dict[str, Any], case: str) -> Life:
        steps = (*begin(), call("y", words=[*(held | values)]))
        every = {"x0": list((held | values).values())}
        return Life(case, steps, every, status=Status.WRONG_CONTRACT)

    def takes(values: dict[str, Any]) -> bool:
        return life.eager(session, one(values, "")).raised is None

    spare = [p.name for p in found if p.default is not inspect.Parameter.empty and others[p.name]]
    alone = {n: [v for v in others[n] if takes({n: v})][:1] for n in spare}
    # one that the file gives is left out, and another one has another value
    for a, b in list(itertools.permutations(spare, 2))[:_WITHOUT]:
        if a in held and alone[b]:
            values = {n: v for n, v in {**held, b: alone[b][0]}.items() if n != a}
            steps, case = (*begin(), call("y", words=[*values])), f"{b} without {a}"
            every = {"x0": list(values.values())}
            yield Life(case, steps, every, status=Status.WRONG_CONTRACT)
    for a, b in list(itertools.combinations(spare, 2))[:_PAIRS]:
        tried = [*zip(alone[a], alone[b], strict=False), *zip(others[a], others[b], strict=False)]
        for first, second in tried[:_TRIALS]:
            both = {a: first, b: second}
            if takes(both):
                yield one(both, f"{a} and {b}")
                if _learns(first) or _learns(second):
                    said, every = [*(held | both)], {"x0": list((held | both).values())}
                    yield _backward(session, f"gradients, {a} and {b}", said, every)
                break


def _other(t: torch.Tensor) -> torch.Tensor:
    """Values of the same kind, not the same."""
    return t.detach().cpu().flip(0) if t.dim() else t.detach().cpu().clone()
