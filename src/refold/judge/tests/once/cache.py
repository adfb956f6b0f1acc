"""cache: outputs keyed by pointer, by fingerprint or by the number of calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from refold.judge import draws
from refold.judge.draws.trees import inexact, tensors
from refold.judge.tests.base import Skip, Test, others
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status

_CALLS = "call "


def run(session: Session) -> Iterator[Failure]:
    """What is wrong here is kept from another call only where a new worker, which has not had
    that call, is right."""
    wrong: list[tuple[Failure, list[Any]]] = []
    for case, inputs, options in _cases(session):
        found = list(session.check(case, inputs, Status.CHEATS, **options))
        wrong += [(failure, inputs) for failure in found]
        if found and case.startswith(_CALLS):
            break
    if any(failure.status is Status.CHEATS for failure, _ in wrong):
        session.dismiss()
    for failure, inputs in wrong:
        if failure.status is Status.CHEATS and any(session.check("", inputs, slot="new")):
            failure = replace(failure, status=Status.WRONG_NUMERICS)
        yield failure


def _cases(session: Session) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Same storage with new values, same values in new storage, small edits, many calls."""
    first, second = session.inputs(), others(session)
    if not tensors(first) or session.truth(first).eager is None:
        raise Skip("no tensors among the inputs")
    session.call(first, slot="x")
    session.worker().request("write", slot="x", inputs=second)
    yield "same storage, new values", second, {"slot": "x", "put": False}
    session.worker().request("write", slot="x", inputs=first, counted=False)
    case = "same storage, new values, written past PyTorch's count"
    yield case, first, {"slot": "x", "put": False}
    yield "same values, new storage", second, {"slot": "z"}
    session.call(first, slot="x", put=True)
    for case, edited in edits(first, session.seed, session.quick):
        session.worker().request("write", slot="x", inputs=edited)
        yield case, edited, {"slot": "x", "put": False}
    for case, edited in edits(first, session.secret, session.quick):
        session.worker().request("write", slot="x", inputs=first)
        session.call(first, slot="x", put=False)
        session.worker().request("write", slot="x", inputs=edited, counted=False)
        case = f"{case}, past PyTorch's count"
        yield case, edited, {"slot": "x", "put": False}
    for case, mixed in draws.alone(first, second):
        session.worker().request("write", slot="x", inputs=first)
        session.call(first, slot="x", put=False)
        session.worker().request("write", slot="x", inputs=mixed)
        yield case, mixed, {"slot": "x", "put": False}
    count = 12 if session.quick else 40
    for i in range(count):
        yield f"{_CALLS}{i + 1} of {count}", session.inputs(i % 5), {"slot": "x"}


def edits(inputs: list[Any], seed: int, quick: bool) -> Iterator[tuple[str, list[Any]]]:
    """Changes that a fingerprint may miss: one element, rows or columns in another order.

    Of two single elements the second is next to the first: a sample of every n-th element leaves
    one of them out.
    """
    generator = torch.Generator().manual_seed(seed + 5)
    before: list[int] = []  # of each tensor, where an element was changed

    def place(t: torch.Tensor, beside: bool) -> int:
        if beside:
            return (before.pop(0) + 1) % t.numel()
        before.append(int(torch.randint(t.numel(), (1,), generator=generator)))
        return before[-1]

    def element(t: torch.Tensor, beside: bool) -> torch.Tensor:
        t = t.clone(memory_format=torch.contiguous_format)
        if t.numel():
            flat = t.view(-1)
            flat[place(t, beside)] += 4 * (flat.abs().max() + 1)
        return t

    def exchanged(t: torch.Tensor) -> torch.Tensor:
        t = t.clone(memory_format=torch.contiguous_format)
        if t.dim() and t.shape[0] > 1:
            t = t.flip(0)  # every sum over all elements stays what it was
        return t

    def permuted(t: torch.Tensor) -> torch.Tensor:
        if t.dim() < 2:
            return t
        inner = t.shape[-1]
        order = torch.cat([torch.tensor([0]), 1 + torch.randperm(inner - 1, generator=generator)])
        return t[..., order].contiguous()

    floats = draws.has_numbers(inputs)
    for i in range((2 if quick else 6) if floats else 0):
        beside = partial(element, beside=i % 2 == 1)
        yield f"one element changed ({i + 1})", draws.valued(inputs, beside)
    moved = draws.valued if floats else draws.every
    yield "rows in reverse order", moved(inputs, exchanged)
    yield "columns permuted, the first kept", moved(inputs, permuted)
    if floats and any(not inexact(t) for t in draws.tensors(inputs)):
        # masks and indices, which files often give the same in each draw
        for case, change in (("in reverse order", exchanged), ("rolled", _rolled)):
            other = draws.every(inputs, lambda t, c=change: t if inexact(t) else c(t))
            yield f"integers and masks {case}", other


def _rolled(t: torch.Tensor) -> torch.Tensor:
    return t.roll(1, -1) if t.dim() else t


TEST = Test(
    "cache",
    "outputs kept by pointer, by fingerprint or by call count",
    "New values in the same storage, small edits and many calls are computed afresh.",
    run,
)
