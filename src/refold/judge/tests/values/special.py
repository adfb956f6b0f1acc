"""A life of calls on inputs of a special form, for which somebody may have a path of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from refold.judge import draws
from refold.judge.tests.backward.far import KINKS, turning
from refold.judge.tests.base import Test
from refold.judge.tests.lives.common import begin, call, constants, living, trained
from refold.judge.verdict.life import Life
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import PERTURBED
from refold.judge.verdict.verdict import Status
from refold.judge.worker.steps import Step

_MOST_NUMBERS, _MOST_OWN = 12, 64  # of the reference's text, and of each of its tensors
_FEW_BITS = ("four values", "whole numbers")
Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _sparse(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return t * (torch.rand(t.shape, generator=g) < 1 / 16).to(t.dtype)


def _single(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """One element a row, which is not one."""
    if not t.dim() or not t.numel():
        return t
    at = torch.randint(t.shape[-1], (*t.shape[:-1], 1), generator=g)
    values = 2 + torch.rand(at.shape, generator=g)
    return torch.zeros_like(t).scatter_(-1, at, values.to(t.dtype))


def _whole(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    return torch.randint(-999, 1000, t.shape, generator=g).to(t.dtype)


def _permuted(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Each row the first one in another order."""
    if t.dim() < 2 or not t.numel():
        return t
    order = torch.rand(t.shape, generator=g).argsort(-1)
    return t[:1].expand(t.shape).gather(-1, order)


def _halves(t: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """The second half of each row like its first."""
    if not t.dim():
        return t
    half = t.shape[-1] // 2
    return torch.cat([t[..., :half], t[..., :half], t[..., 2 * half :]], dim=-1)


def _levels(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Four values in all."""
    return torch.tensor([-1.5, -0.25, 0.5, 2.0]).to(t.dtype)[torch.randint(4, t.shape, generator=g)]


def _numbers(session: Session) -> torch.Tensor:
    """Numbers at which the reference may turn: one, a half, those of its text and of its parts,
    half of each and one and a half, of either sign. Those of few bits alone: with them what an
    honest order computes is exact, and nobody falls on the other side by rounding."""
    few = _said(session)
    half = torch.tensor([few, [v / 2 for v in few], [1.5 * v for v in few]]).reshape(-1)
    return torch.cat([half, -half])


def _said(session: Session) -> list[float]:
    """Numbers of few bits of the reference's text and of its parts."""
    parts = session.oracle.model.modules()
    held = [*constants(session), *(v for part in parts for v in vars(part).values())]
    found = [1.0, 0.5, *(float(v) for v in held if type(v) in (int, float) and v)]
    few = [v for v in found if 2.0**-10 <= abs(v) <= 2.0**10 and math.frexp(v)[0] * 64 % 1 == 0]
    return list(dict.fromkeys(abs(v) for v in few))[:_MOST_NUMBERS]


def _between_steps(session: Session) -> torch.Tensor:
    """Halfway between two steps, where each power of two that the reference's text says is a step,
    or how many there are in one: a rounding has to say which way it goes there."""
    powers = [v for v in _said(session) if math.frexp(v)[0] == 0.5]
    steps = torch.tensor(list(dict.fromkeys(s for v in powers for s in (v, 1 / v))))
    return steps.outer(torch.arange(-4, 4) + 0.5).reshape(-1)


def _own(session: Session) -> torch.Tensor:
    """Values of the module's own floating buffers, or parameters: edges, codes, thresholds."""
    state, model = session.state(session.base_state), session.oracle.model
    for named in (model.named_buffers(), model.named_parameters()):
        held = [state[n].detach().reshape(-1) for n, t in named if n in state and _real(t)]
        if held:
            return torch.cat([t[:: max(1, t.numel() // _MOST_OWN)].float().cpu() for t in held])
    return torch.zeros(0)


def _own_rows(session: Session) -> Change | None:
    """Every second row one of the module's own tensors, as wide, has: a code, a class, a centre."""
    state, model = session.state(session.base_state), session.oracle.model
    named = (*model.named_buffers(), *model.named_parameters())
    rows = {
        t.shape[-1]: state[n].detach().reshape(-1, t.shape[-1]).float().cpu()
        for n, t in reversed(named)
        if n in state and _real(t) and t.dim() > 1
    }
    if not any(t.dim() > 1 and t.shape[-1] in rows for t in draws.tensors(session.inputs())):
        return None

    def change(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        if t.dim() < 2 or t.shape[-1] not in rows:
            return t
        held = rows[t.shape[-1]]
        flat = t.clone(memory_format=torch.contiguous_format).view(-1, t.shape[-1])
        some = flat[::2]
        flat[::2] = held[torch.randint(len(held), (len(some),), generator=g)].to(t.dtype)
        return flat.view(t.shape)

    return change


def _real(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.numel() > 0


def _some_of(values: torch.Tensor, share: int) -> Change:
    """One element in so many is one of these values, each about as often as the others."""

    def change(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        chosen = torch.randint(share, t.shape, generator=g) == 0
        order = values[torch.randperm(len(values), generator=g)]
        turn = chosen.reshape(-1).cumsum(0).reshape(t.shape) % len(order)
        return torch.where(chosen, order[turn], t)

    return change


# few bits where values repeat: sums of them are exact in any order
FORMS: tuple[tuple[str, Change], ...] = (
    ("one value everywhere", lambda t, _: torch.full_like(t, 1.5)),
    ("one value a row", lambda t, g: _levels(t[..., :1] if t.dim() else t, g).expand_as(t).clone()),
    ("mostly zeros", _sparse),
    ("one element a row", _single),
    ("whole numbers", _whole),
    ("four values", _levels),
    ("no value below zero", lambda t, _: t.abs()),
    ("no value above zero", lambda t, _: -t.abs()),
    ("rows that ascend", lambda t, _: t.sort(-1).values if t.dim() else t),
    ("rows that descend", lambda t, _: t.sort(-1, descending=True).values if t.dim() else t),
    ("rows of the same values in another order", _permuted),
    ("two halves alike", _halves),
    ("all within a few units of one", lambda t, _: 1 + t / 2**12),
)


def _consecutive(t: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Of the values between the least and the largest, one after the other."""
    low, high = int(t.min()), int(t.max())
    return (low + torch.arange(t.numel()) % (high - low + 1)).reshape(t.shape).to(t.dtype)


def _from_zero(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Zero is special to many: padding, a first class."""
    high = int(t.max())
    return t if high < 1 else (torch.arange(t.numel()) % (high + 1)).reshape(t.shape).to(t.dtype)


def _few(t: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Three of its own, each many times, beside one another: pairs of indices repeat, too."""
    own = t.reshape(-1)[:: max(1, t.numel() // 3)][:3]
    return own[torch.randint(len(own), t.shape, generator=g)]


# whole numbers that stay between the least and the largest: indices stay ones
INTEGERS: tuple[tuple[str, Change], ...] = (
    ("integers all alike", lambda t, _: t.reshape(-1)[:1].expand(t.shape).clone()),
    ("integers that ascend", lambda t, _: t.sort(-1).values if t.dim() else t),
    ("integers that descend", lambda t, _: t.sort(-1, descending=True).values if t.dim() else t),
    ("consecutive integers", _consecutive),
    ("consecutive integers from zero", _from_zero),
    ("three integers, again and again", _few),
)


def _whole_numbers(session: Session) -> Iterator[Life]:
    given = session.cut(session.file_inputs())
    generator = torch.Generator()

    def kind(t: torch.Tensor) -> bool:
        return not draws.inexact(t) and t.dtype is not torch.bool and t.numel() > 1

    if not any(kind(t) for t in draws.tensors(given)):
        return
    for case, change in INTEGERS:
        changed = {"x0": draws.every(given, lambda t, c=change: c(t, generator) if kind(t) else t)}
        # what others of that shape have left behind counts, too
        yield from _either(session, case, {**changed, "before": given}, before=True)
        if trained(session):
            yield _with_gradients(session, case, changed)


def _with_gradients(
    session: Session, case: str, given: dict[str, list[Any]], kinks: bool = False
) -> Life:
    """Gradients there; ``kinks``: the inputs stand where the function may turn."""
    steps: list[Step] = [*begin(), call("y", grad=True, want=kinks, see=False)]
    steps += [{"do": "backward", "of": "y"}]
    if kinks:
        number: Step = {
            "do": "finite",
            "names": trained(session),
            "of": "y",
            "label": "finite ones",
        }
        steps.append(number)
    label = "gradients"
    steps += [{"do": "grads", "names": trained(session), "label": label, "of": "y"}]
    one = Life(f"{case}, with gradients", tuple(steps), given)
    return turning(session, replace(one, stamps={label: KINKS}), label) if kinks else one


def _either(
    session: Session,
    case: str,
    given: dict[str, list[Any]],
    before: bool = False,
    state: str = PERTURBED,
) -> Iterator[Life]:
    """In the mode in which the module is built, and in eval mode, where paths of their own are."""
    for train in dict.fromkeys((session.oracle.training, False)):
        steps = (*begin(train, state), *([call("first", "before")] if before else []), call("y"))
        where = case if train == session.oracle.training else f"{case}, in eval mode"
        yield Life(where, steps, given, status=Status.WRONG_NUMERICS)


def _equal(given: list[Any]) -> list[Any]:
    """Each floating input a copy of the first of its shape; nothing where there are no two."""
    held = draws.tensors(given)
    first: dict[Any, torch.Tensor] = {}
    for t in held:
        if t.is_floating_point():
            first.setdefault((t.shape, t.dtype), t)
    if len(first) == sum(t.is_floating_point() for t in held):
        return []
    copied: list[Any] = draws.mapped(given, lambda t: first[t.shape, t.dtype].clone())
    return copied


def _special(session: Session) -> Iterator[Life]:
    given = session.inputs()
    if not draws.has_numbers(given):
        return
    generator = torch.Generator().manual_seed(session.seed + 91)
    forms = [*FORMS, ("numbers of its text", _some_of(_numbers(session), 2))]
    if len(own := _own(session)):
        forms.append(("values of its own", _some_of(own, 8)))
    if rows := _own_rows(session):
        forms.append(("rows of its own", rows))
    for i, (case, change) in enumerate(forms):
        changed = {"x0": draws.valued(given, lambda t, c=change: c(t, generator).to(t.dtype))}
        for one in _either(session, case, changed):
            yield replace(one, still=i >= len(FORMS))
        if i in (0, *range(len(FORMS), len(forms))):
            yield _with_gradients(session, case, changed, kinks=True)
    # under a state of few bits, too: sums and products are exact, and a half is one behind them
    state = {"few bits": draws.brief(session.state(PERTURBED))}
    exact = [f for f in FORMS if f[0] in _FEW_BITS]
    exact.append(("numbers of its text", _some_of(_numbers(session), 2)))
    exact.append(("halves of steps of its text", _some_of(_between_steps(session), 1)))
    if len(own := _own(session)):
        units = draws.brief({"": own})[""]
        halves = torch.arange(-9, 10) / 2  # of a step, as of a scale that it learns
        exact.append(("halves of its own values", _some_of(units.outer(halves).reshape(-1), 1)))
    for case, change in exact:
        changed = {"x0": draws.valued(given, lambda t, c=change: c(t, generator).to(t.dtype))}
        for one in _either(session, f"{case}, state of powers of two", changed, state="few bits"):
            yield replace(one, states=(), own=state, still=True, few=True)
    if equal := _equal(given):
        yield from _either(session, "several inputs of the same values", {"x0": equal})


TESTS: tuple[Test, ...] = (
    living(
        "special values",
        "paths for inputs of a special form",
        "Constant, sparse, whole, sorted, repeated inputs, of few values, of numbers of the "
        "reference's text, halfway between steps that it says, of its own tensors' values and "
        "rows, several that are equal; in eval mode and, some, with gradients, too, and under a "
        "state of powers of two.",
        _special,
        56,
        lives=48,
    ),
    living(
        "special integers",
        "paths for indices of a special form",
        "Integers all alike, of three values, ascending, descending, consecutive; in eval mode and "
        "with gradients, too.",
        _whole_numbers,
        36,
        lives=18,
    ),
)
