"""Ties: where the function itself jumps (argmax, round, comparisons), rounding may fall either way.

A tie is proven, not assumed: the float64 reference is run on inputs and weights moved by a few
units in the last place, and an element is a tie if its value jumps among those runs. A candidate
may have any of the values it takes there; and eager's own jump does not count as eager's error.

Where a row's terms all but cancel, eager's error in it may be small by luck, and no other row is
like it. What one unit in the last place of inputs and weights does to the row counts as eager's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from refold.judge.clock.stopwatch import effort
from refold.judge.rule import beside, compare, rows
from refold.judge.truth.truth import Run, Truth

if TYPE_CHECKING:
    from refold.judge.verdict.session import Session
    from refold.judge.verdict.truths import Truths

_FRUITLESS = 3  # searches of each kind that may find nothing: they cost float64 runs
_SEARCHES = 30
_NAMES = {"candidate": "ties", "row": "cancelled rows"}
_SHAKES = 16
_MOVES, _LONG = 4, 5.0  # moved runs for a row; no more after one that takes so many seconds
_KEPT = 1 << 22  # elements of a run, up to which all moved runs are held at once
_DEAR = 0.3  # seconds of one moved run above which ties are not searched: give smaller sizes
_JUMP = 64.0  # units in the last place of a row's largest value; rounding alone stays far below


def without(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """Compare again with proven ties put right, if no more than a few elements are wrong; then
    with what a unit in the last place does to their rows.

    More than one element in a hundred (and more than one at all) is no matter of either.
    """
    failed = [r for r in results if not r.agrees]
    if not all(_few(r.wrong) for r in failed):
        return results
    results = _resolved(session, case, outputs, truth, results)
    if all(r.agrees for r in results):
        return results
    return _conditioned(session, case, outputs, truth, results)


def _conditioned(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """Compare again, what one unit in the last place does to a row counting as eager's error."""
    assert truth.eager is not None and truth.exact is not None
    done, found = session.tie_searches.get("row", (0, 0))
    if truth.cotangents or done - found >= _FRUITLESS:
        return results
    session.tie_searches["row"] = (done + 1, found)
    eager, exact = (dict(compare.leaves(r.outputs)) for r in (truth.eager, truth.exact))
    came = dict(compare.leaves(outputs))
    moved = _Moved(session, truth, _shapes(exact))
    few = sum(math.prod(size) for size in _shapes(exact).values() if size is not None) <= _KEPT
    kept = [dict(run) for run in moved] if few else None

    def again(name: str, wrong: torch.Tensor) -> rows.Comparison:
        # large ones are made again, one at a time
        also = _Named(moved if kept is None else kept, name)
        given = (came[name], eager[name], exact[name], session.spread(truth).get(name))
        return compare.tensors(case, name, *given, session.finite_only, also)

    words = "where a unit in the last place of the inputs does as much"
    return _repeated(session, case, results, again, "row", words)


def _resolved(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """Compare again with proven ties put right."""
    assert truth.eager is not None and truth.exact is not None
    eager, exact = (dict(compare.leaves(r.outputs)) for r in (truth.eager, truth.exact))
    came = dict(compare.leaves(outputs))
    where = {r.name: _positions(r.wrong) for r in results if not r.agrees and r.wrong is not None}
    perturbed = _perturbed(session, truth, "candidate", where, _shapes(exact))
    if not perturbed:
        return results

    def again(name: str, wrong: torch.Tensor) -> rows.Comparison:
        jumps = [run[name] for run in perturbed]
        mended = compare.resolve_at(came[name], exact[name], where[name], jumps)
        given = (mended, eager[name], exact[name], session.spread(truth).get(name))
        return compare.tensors(case, name, *given, session.finite_only)

    words = "where the function itself jumps"
    return _repeated(session, case, results, again, "candidate", words)


def _repeated(
    session: Session,
    case: str,
    results: list[rows.Comparison],
    again: Callable[[str, torch.Tensor], rows.Comparison],
    kind: str,
    words: str,
) -> list[rows.Comparison]:
    """The results, those that failed compared again; what agrees now is noted, and why."""
    fixed = []
    for result in results:
        name, wrong = result.name, result.wrong
        if not result.agrees and wrong is not None:
            second = again(name, wrong)
            if second.agrees:
                _fruit(session, kind)
                count = f"{int(wrong.sum())} of {wrong.numel()} elements of {name}"
                session.notes.append(f"{_NAMES[kind]}: {count} differ {words} ({case})")
                result = replace(second, name=name)
        fixed.append(result)
    return fixed


def eager_resolved(session: Truths, truth: Truth, eager: Run, run: Run) -> Run:
    """Eager's run with its own jumps taken out: they would raise every bar. ``run``: float64."""
    exact = dict(compare.leaves(run.outputs))
    jumps = {}
    for name, value in compare.leaves(eager.outputs):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            jumped = rows.apart(value, exact[name], _JUMP)
            if _few(jumped):
                jumps[name] = jumped
    if not jumps:
        return eager
    where = {name: _positions(jumped) for name, jumped in jumps.items()}
    perturbed = _perturbed(session, truth, "eager", where, _shapes(exact))
    if not perturbed:
        return eager
    resolved = dict(compare.leaves(eager.outputs))
    for name, at in where.items():
        value = resolved[name]
        values = [run[name] for run in perturbed]
        resolved[name] = compare.resolve_at(value, exact[name], at, values).to(value.device)
        if not torch.equal(resolved[name], value):
            _fruit(session, "eager")
    outputs = _filled(eager.outputs, iter(resolved.values()))
    return replace(eager, outputs=outputs)


def _shapes(leaves: dict[str, Any]) -> dict[str, Any]:
    return {k: beside.shape(v) for k, v in leaves.items()}


def _positions(wrong: torch.Tensor) -> torch.Tensor:
    """Flat positions of the elements that are wrong."""
    return wrong.reshape(-1).nonzero().reshape(-1)


def same_shapes(a: Any, b: Any) -> bool:
    """Whether two output trees have the same tensors: of a selection by value they may not."""
    return _shapes(dict(compare.leaves(a))) == _shapes(dict(compare.leaves(b)))


def _few(wrong: torch.Tensor | None) -> bool:
    return wrong is not None and 0 < int(wrong.sum()) <= max(1, wrong.numel() // 100)


def _fruit(session: Truths, kind: str) -> None:
    done, found = session.tie_searches[kind]
    session.tie_searches[kind] = (done, min(found + 1, done))


def _perturbed(
    session: Truths,
    truth: Truth,
    kind: str,
    where: dict[str, torch.Tensor],
    shapes: dict[str, Any],
) -> list[dict[str, torch.Tensor]]:
    """Of each moved run the values at these flat positions; nothing where that tells nothing."""
    done, found = session.tie_searches.get(kind, (0, 0))
    if session.frugal or truth.cotangents or done >= _SEARCHES or done - found >= _FRUITLESS:
        return []
    session.tie_searches[kind] = (done + 1, found)
    session.oracle_enter(truth.state)
    perturbed: list[dict[str, torch.Tensor]] = []
    for noise in range(session.seed, session.seed + _SHAKES):
        spent = effort()
        moved = _run(session, truth, noise)
        if spent() > _DEAR:
            session.tie_searches[kind] = (_SEARCHES, found)  # large weights: no search at all
            return []
        if _shapes(moved) != shapes:
            return []
        perturbed.append({name: beside.gathered(moved[name], at) for name, at in where.items()})
    return perturbed


class _Moved:
    """Float64 outputs by name for inputs and weights that were moved, run after run, each anew:
    one is held at a time."""

    def __init__(self, session: Session, truth: Truth, shapes: dict[str, Any]) -> None:
        self.session, self.truth, self.shapes = session, truth, shapes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        session, truth = self.session, self.truth
        for noise in range(session.seed, session.seed + _MOVES):
            session.oracle_enter(truth.state)
            spent = effort()
            run = _run(session, truth, noise)
            if _shapes(run) != self.shapes:
                return
            yield run
            if spent() > _LONG:
                return


class _Named:
    """One output of several runs; it may be read more than once."""

    def __init__(self, runs: Iterable[dict[str, Any]], name: str) -> None:
        self.runs, self.name = runs, name

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (run[self.name] for run in self.runs)


def _run(session: Truths, truth: Truth, noise: int) -> dict[str, Any]:
    seed = session.seed + 7
    moved = session.oracle.perturbed(truth.inputs, truth.training, seed, noise)
    return dict(compare.leaves(moved.outputs))


def _filled(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, list | tuple):
        return type(tree)(_filled(v, leaves) for v in tree)
    if isinstance(tree, dict):
        return {k: _filled(v, leaves) for k, v in tree.items()}
    return compare.unread(tree, next(leaves))
