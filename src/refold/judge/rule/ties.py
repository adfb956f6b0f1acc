"""Ties: where the function itself jumps (argmax, round, comparisons), rounding may fall either way.

A tie is proven, not assumed: the float64 reference is run on inputs and weights moved by a few
units in the last place, and an element is a tie if its value jumps among those runs. A candidate
may have any of the values it takes there; and eager's own jump does not count as eager's error.

Where a row's terms all but cancel, eager's error in it may be small by luck, and no other row is
like it. What one unit in the last place of inputs and weights does to the row counts as eager's.
Where the function jumps and something spreads that over others, see `luck`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from refold.judge.clock.stopwatch import effort
from refold.judge.rule import beside, compare, luck, rows
from refold.judge.truth.truth import Run, Truth

if TYPE_CHECKING:
    from refold.judge.verdict.session import Session
    from refold.judge.verdict.truths import Truths

_FRUITLESS = 3  # searches of each kind that may find nothing: they cost float64 runs
_SEARCHES = 30
_NAMES = {"candidate": "ties", "row": "cancelled rows", "luck": "ties"}
_SHAKES = 16
_MOVES, _LONG = 4, 5.0  # moved runs for a row; no more after one that takes so many seconds
_SMALL = 1 << 20  # elements of a run, up to which sixteen are held
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
    if all(_few(r.wrong) for r in results if not r.agrees):
        results = _resolved(session, case, outputs, truth, results)
        if all(r.agrees for r in results):
            return results
        results = _conditioned(session, case, outputs, truth, results)
    if all(r.agrees or r.wrong is None for r in results):
        return results
    return _lucky(session, case, outputs, truth, results)


def _lucky(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """Compare again, each element held to what moved inputs do to it, where eager is right by luck
    alone: see `luck`."""
    assert truth.eager is not None and truth.exact is not None
    moved = _shaken(session, truth, "luck", _shapes(dict(compare.leaves(truth.exact.outputs))))
    if not moved:
        return results
    eager, exact = (dict(compare.leaves(r.outputs)) for r in (truth.eager, truth.exact))
    came = dict(compare.leaves(outputs))

    def again(name: str, wrong: torch.Tensor) -> rows.Comparison:
        spread = session.spread(truth).get(name)

        def rule(mended: torch.Tensor) -> rows.Comparison:
            given = (mended, eager[name], exact[name], spread, session.finite_only)
            return compare.tensors(case, name, *given)

        failed = next(r for r in results if r.name == name)
        runs = [run[name] for run in moved]
        three = (came[name], eager[name], exact[name])
        return luck.again(failed, *three, runs, session.usual(), rule)

    words = "where the function jumps, by no more than rounding does there"
    return _repeated(session, case, results, again, "luck", words)


def _conditioned(
    session: Session, case: str, outputs: Any, truth: Truth, results: list[rows.Comparison]
) -> list[rows.Comparison]:
    """Compare again, what one unit in the last place does to a row counting as eager's error."""
    assert truth.eager is not None and truth.exact is not None
    if not _worth(session, truth, "row"):
        return results
    eager, exact = (dict(compare.leaves(r.outputs)) for r in (truth.eager, truth.exact))
    came = dict(compare.leaves(outputs))
    moved = _Moved(session, truth, _shapes(exact), _MOVES)
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
        if not mended.is_floating_point() and not mended.is_complex():
            mended = _known(session, truth, name, mended, eager[name], exact[name], where[name])
        given = (mended, eager[name], exact[name], session.spread(truth).get(name))
        return compare.tensors(case, name, *given, session.finite_only)

    words = "where the function itself jumps"
    return _repeated(session, case, results, again, "candidate", words)


def _known(
    session: Session,
    truth: Truth,
    name: str,
    mended: torch.Tensor,
    eager: torch.Tensor,
    exact: Any,
    where: torch.Tensor,
) -> torch.Tensor:
    """Whole numbers with those put right that nobody knows: eager has another one than float64, and
    no value comes out in most runs whose results are moved as rounding moves them (which of the
    codes is nearest to a point that is a hundred million times as far away)."""
    truths = beside.gathered(exact, where).to(eager.dtype)
    lost = beside.gathered(eager, where).to(truths) != truths
    if not bool(lost.any()):
        return mended
    runs, spent = list[torch.Tensor](), effort()
    for noise in range(session.seed, session.seed + _SHAKES):
        run = _run(session, truth, noise, results=True)
        if spent() > _DEAR * (len(runs) + 1) or beside.shape(run.get(name)) != mended.shape:
            return mended
        runs.append(beside.gathered(run[name], where))
    values = torch.stack(runs).long()
    most = (values == values.mode(dim=0).values).sum(dim=0)
    free = where[lost & (2 * most <= len(runs))].to(mended.device)
    mended.view(-1)[free] = beside.gathered(exact, free).to(mended)
    return mended


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
    exact, found = dict(compare.leaves(run.outputs)), dict(compare.leaves(eager.outputs))
    jumps, spread = {}, []
    for name, value in found.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            jumped = rows.apart(value, exact[name], _JUMP)
            if bool(jumped.any()) and (units := session.usual().units) > 1.0:
                jumped = rows.apart(value, exact[name], _JUMP * units)
            if _few(jumped):
                jumps[name] = jumped
            elif bool(jumped.any()):
                spread.append(name)
    resolved = dict(found)
    if jumps:
        where = {name: _positions(jumped) for name, jumped in jumps.items()}
        perturbed = _perturbed(session, truth, "eager", where, _shapes(exact))
        for name, at in where.items() if perturbed else ():
            values = [run[name] for run in perturbed]
            mended = compare.resolve_at(found[name], exact[name], at, values)
            resolved[name] = mended.to(found[name].device)
            if not torch.equal(resolved[name], found[name]):
                _fruit(session, "eager")
    if spread and (moved := _shaken(session, truth, "spread", _shapes(exact))):
        for name in spread:
            runs = [run[name] for run in moved]
            resolved[name] = luck.settled(found[name], exact[name], runs, session.usual())
            if resolved[name] is not found[name]:
                _fruit(session, "spread")
    if all(resolved[name] is value for name, value in found.items()):
        return eager
    return replace(eager, outputs=_filled(eager.outputs, iter(resolved.values())))


def _shaken(
    session: Truths, truth: Truth, kind: str, shapes: dict[str, Any]
) -> list[dict[str, Any]]:
    """Sixteen runs on moved inputs; nothing where one costs too much, or such a search has found
    nothing several times."""
    large = sum(math.prod(size) for size in shapes.values() if size is not None) > _SMALL
    if large or session.frugal or not _worth(session, truth, kind):
        return []
    session.usual()  # which is no part of what a run costs
    moved, spent = [], effort()
    for run in _Moved(session, truth, shapes, _SHAKES):
        moved.append(run)
        if spent() > _DEAR * len(moved):
            _, found = session.tie_searches[kind]
            session.tie_searches[kind] = (found + _FRUITLESS, found)  # no other search of the kind
            return []
    return moved if len(moved) == _SHAKES else []


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


def _worth(session: Truths, truth: Truth, kind: str) -> bool:
    """Whether another search of a kind may find something; it counts as begun."""
    done, found = session.tie_searches.get(kind, (0, 0))
    if truth.cotangents or done - found >= _FRUITLESS:
        return False
    session.tie_searches[kind] = (done + 1, found)
    return True


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
    session.usual()  # which is no part of what a run costs
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

    def __init__(self, session: Truths, truth: Truth, shapes: dict[str, Any], count: int) -> None:
        self.session, self.truth, self.shapes, self.count = session, truth, shapes, count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        session, truth = self.session, self.truth
        for noise in range(session.seed, session.seed + self.count):
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


def _run(session: Truths, truth: Truth, noise: int, results: bool = False) -> dict[str, Any]:
    seed, units = session.seed + 7, rows.MOVED * session.usual().units
    session.oracle_enter(truth.state)  # what is usual was measured under another one
    given = (truth.inputs, truth.training, seed, noise, units)
    moved = session.oracle.perturbed(*given, results=results)
    return dict(compare.leaves(moved.outputs))


def _filled(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, list | tuple):
        return type(tree)(_filled(v, leaves) for v in tree)
    if isinstance(tree, dict):
        return {k: _filled(v, leaves) for k, v in tree.items()}
    return compare.unread(tree, next(leaves))
