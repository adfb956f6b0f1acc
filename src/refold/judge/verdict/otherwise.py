"""Eager once more, otherwise: images in channels last, equal values in another order, gradients
through the maximum of a softmax.

PyTorch's own kernels sum in another order there: a batch norm of many pixels sums one after the
other, and errs many times as much. Nobody is held to more than these kernels do, whoever lays
images so inside. The bar is then eager's error on the same images with channels last. Where that
has lost the values (a group norm squares numbers far from zero there) it is no bar: who runs these
very kernels gives what they give. Of a softmax that is written out it is what `shifts` adds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from refold.judge.draws import every, otherwise_laid
from refold.judge.draws.trees import differ, inexact, tensors
from refold.judge.rule import beside, compare, rows, ties
from refold.judge.truth import choices, runs
from refold.judge.truth.shifts import shifted, step_by_step
from refold.judge.truth.truth import Truth
from refold.judge.verdict.room import starving

if TYPE_CHECKING:
    from refold.judge.verdict.session import Session

_LOST = 2.0**-10  # of an output's scale


def laid(given: list[Any]) -> list[Any] | None:
    """The inputs with images in channels last; None where that changes nothing."""
    if not any(_changes(t) for t in tensors(given)):
        return None
    return [every(v, lambda t: otherwise_laid(t) if _changes(t) else t) for v in given]


def _changes(t: torch.Tensor) -> bool:
    return t.dim() in (4, 5) and inexact(t) and otherwise_laid(t).stride() != t.stride()


def ways(
    inputs: Mapping[str, list[Any]], slopes: bool
) -> Iterator[tuple[Mapping[str, list[Any]], bool, contextlib.AbstractContextManager[None]]]:
    """Other ways for eager to live a life: its inputs, whether one thread does it, and what it runs
    under. ``slopes``: whether gradients are asked for."""
    if torch.get_num_threads() > 1:
        yield inputs, False, contextlib.nullcontext()
    other = {name: laid(given) or given for name, given in inputs.items()}
    if any(other[name] is not given for name, given in inputs.items()):
        yield other, True, contextlib.nullcontext()
    if slopes:
        yield inputs, True, shifted()


def slope(session: Session, truth: Truth, name: str) -> torch.Tensor | None:
    """A gradient of eager's that passes through the maximum of a softmax; None where it is the
    same."""
    assert truth.eager is not None
    session.oracle_enter(truth.state)
    try:
        given = truth.inputs, truth.training, session.seed + 7, truth.cotangents
        with shifted():
            found = session.oracle.eager(*given).grads.get(name)
    except Exception as error:
        if starving(error):
            raise
        return None
    usual = truth.eager.grads[name]
    return None if found is None or not differ(found, usual) else found


def refused(session: Session, case: str, truth: Truth) -> bool:
    """Whether the reference refuses a call, though not the usual one, where attention is computed
    step by step. PyTorch's kernels take keys and values of two lengths, and read past the shorter
    ones or leave others out: whatever comes then is nobody's answer, and who refuses is right."""
    session.oracle_enter(truth.state)
    for inputs in (session.inputs(), truth.inputs):
        try:
            with step_by_step():
                session.oracle.eager(inputs, truth.training, session.seed + 7)
        except Exception as error:
            if starving(error):
                raise
            if inputs is not truth.inputs:
                return False
            session.notes.append(f"{session.test}, {case}: PyTorch's attention refuses it, too")
            return True
    return False


def settled(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """What failed, compared again: in the other layout, without ties, without what is open."""
    results = _laid_again(session, case, outputs, truth, results)
    if not all(r.agrees for r in results):
        results = ties.without(session, case, outputs, truth, results)
    return _chosen(session, truth, results)


def _chosen(
    session: Session, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """What failed, where the order of equal values is open: see `choices`."""
    if all(r.agrees or r.structural for r in results) or truth.eager is None:
        return results

    def run() -> Any:
        session.oracle_enter(truth.state)
        try:
            found = session.oracle.eager(truth.inputs, truth.training, session.seed + 7)
        except Exception as error:
            if starving(error):
                raise
            return None
        return found.outputs

    return choices.settled(results, truth.eager.outputs, run)


def _laid_again(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """What failed, compared with eager on images in channels last."""
    given = laid(truth.inputs)
    if given is None or all(r.agrees or r.structural for r in results):
        return results
    session.oracle_enter(truth.state)
    try:
        run = session.oracle.eager(given, truth.training, session.seed + 7)
    except Exception as error:
        if starving(error):
            raise
        return results
    assert truth.exact is not None
    came, exact = dict(compare.leaves(outputs)), dict(compare.leaves(truth.exact.outputs))
    found = []
    for result in results:
        other = dict(compare.leaves(run.outputs)).get(result.name)
        if not (result.agrees or result.structural) and isinstance(other, torch.Tensor):
            name, spread = result.name, session.spread(truth).get(result.name)
            truths = beside.whole(exact[name])
            given_to = (came[name], other, truths, spread, session.finite_only)
            if is_bar(came[name], other, truths):
                result = _told(session, case, compare.tensors(case, name, *given_to), result)
        found.append(result)
    return found


def is_bar(got: Any, other: Any, exact: Any) -> bool:
    """Whether another run's outputs are a bar: where it has lost the values, only for what is as
    good as equal to them."""
    pairs = zip(compare.leaves(other), compare.leaves(beside.whole(exact)), strict=True)
    kept = not any(isinstance(a, torch.Tensor) and _lost(a, b) for (_, a), (_, b) in pairs)
    return kept or compare.acquitted(got, other)


def _lost(value: torch.Tensor, exact: torch.Tensor) -> bool:
    if not inexact(value):
        return False
    finite = exact[torch.isfinite(exact)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return runs.distance(value, exact)[0] > max(_LOST, 8 * torch.finfo(value.dtype).eps) * scale


def _told(
    session: Session, case: str, result: rows.Comparison, failed: rows.Comparison
) -> rows.Comparison:
    if not result.agrees:
        return failed
    session.notes.append(f"{session.test}, {case}: as near as eager is with channels last")
    return replace(result, name=failed.name)
