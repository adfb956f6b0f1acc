"""A life and its judgement: what the candidate showed at each step beside eager and float64.

Where the reference gives an answer and the candidate silently another, it is rejected. Where the
candidate raises, that is a limitation which the verdict tells, unless the life must never raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from refold.judge.draws.trees import differ, inexact
from refold.judge.rule import beside, compare, luck, rows
from refold.judge.truth import choices, largest
from refold.judge.truth.live import Lived, Living
from refold.judge.truth.runs import distance, moved
from refold.judge.verdict import naming, narrow, otherwise
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status, Worst
from refold.judge.worker.looks import LEAST, MOST
from refold.judge.worker.steps import FACT, GRADS, Step

_FIRST = "first"  # the label of a call before a type is changed
_LOST = 2.0**-10  # of a value's scale: where eager errs by more, nothing can be said
_ALONE = 12  # calls that float64 makes alone; of more, all
_MOVES, _SHAKES = 4, 16  # moved lives, and where eager may be right by luck
_ROUNDS = 3  # of ties put right: what was hidden behind them shows then
_ROUGH = 4.0  # times a rounding of bfloat16, where nobody knows the truth of 16-bit values
_NEAR, _ROUNDINGS = 16.0, 4.0  # times eager's error; of a type's last place, of values' usual size
_FINE, _COARSE = 100, 4  # one element in so many may be a tie; of 16-bit values more are
# what is wrong, the worst element, whether it is in names, shapes or types
Wrong = tuple[str, Worst | None, bool]


@dataclass(frozen=True)
class Life:
    """Steps, and what they need.

    inputs: by the names that the steps use. states: names of the session's states. must: whether
    a raise is a failure. firm: the label of a call at which it is one, as those before were
    answered. stamps: by label, what a disagreement there says instead of failing.
    instead: by such a label, another one whose answer of eager's it then has to be: what is neither
    is silently wrong.
    """

    case: str
    steps: tuple[Step, ...]
    inputs: Mapping[str, list[Any]]
    states: tuple[str, ...] = ("perturbed",)
    status: Status = Status.WRONG_MODE
    must: bool = False
    firm: str = ""
    stamps: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, dict[str, torch.Tensor]] = field(default_factory=dict)  # states of its own
    coarse: bool = False  # eager itself computes in a narrower type at times
    # what another shape of an output says instead of failing: it is not silent, and ends the life
    shapes: str = ""
    dtypes: str = ""  # what another dtype in an output says instead of failing
    eps: float = 0.0  # a unit in the last place; 0: of each tensor's own type
    near: tuple[str, ...] = ()  # labels of large numbers in 16 bits: what is near is right
    long: tuple[str, ...] = ()  # labels where sums of 16 bits are long: see `narrow.by_order`
    quiet: bool = (
        False  # a raise is noted, not stamped: of what nearly every fused module raises at
    )
    # whether the reference's gradients are others beside this point: else no stamp excuses them
    turns: Callable[[], bool] | None = None
    still: bool = False  # inputs stand where the function turns: nothing moves them
    few: bool = False  # they and the state have few bits: what is exact then does not move, either
    built: bool = False  # each of the candidate's modules by its constructor: none is a copy
    apart: bool = False  # no call depends on those before: float64 makes those alone that are asked


def eager(session: Session, life: Life) -> Lived:
    """What the reference shows."""
    return _living(session).eager(steps_of(session, life), states_of(session, life), life.inputs)


def compared(session: Session, life: Life, mine: Lived, theirs: Lived) -> Iterator[Failure]:
    """What the candidate showed beside what the reference did."""
    shown = _Truth(session, life, theirs)
    for label, (kind, value) in theirs.seen.items():
        if label not in mine.seen:
            continue  # the life ended before; that is told elsewhere
        if label in life.stamps and _stale(label, mine, theirs, life.instead.get(label)):
            session.assumptions.add(life.stamps[label])
            continue
        wrong = shown.wrong(label, kind, mine.seen[label][1], value)
        if shown.reshaped:
            return  # gradients of other outputs are others
        if wrong is None:
            continue
        firm = kind == GRADS and life.turns is not None and not life.turns()
        if label in life.stamps and not firm and shown.excused(label, mine.seen[label][1]):
            session.assumptions.add(life.stamps[label])
            continue
        reason, worst, structural = wrong
        case = f"{life.case}: {label}" if life.case else label
        named = naming.status(session, life, label, kind, structural)
        yield session.fail(named, case, reason, worst)
        return  # what follows, follows from it


def _stale(label: str, mine: Lived, theirs: Lived, instead: str | None) -> bool:
    """Whether an observation is, bit by bit, an earlier one of the candidate's (or the one that it
    may be instead) where eager's moved on. Then its error needs no float64 to be told."""
    there = [at for at in theirs.seen if at in mine.seen]
    before = there[: there.index(label)] if instead is None else [a for a in there if a == instead]
    got, value = mine.seen[label][1], theirs.seen[label][1]
    return any(
        not differ(got, mine.seen[at][1]) and moved(value, theirs.seen[at][1])
        for at in reversed(before)
    )


class _Truth:
    """One life in float64, made when it is needed: most observations agree with eager at once."""

    def __init__(self, session: Session, life: Life, theirs: Lived) -> None:
        self.session, self.life, self.theirs = session, life, theirs
        self.reshaped = False  # an output came in another shape, where the life allows that
        self.unknown = False  # float64 does not live it
        backs = any(s.get("back") or "grad" in s.get("how", "") for s in life.steps)
        self.slopes = "" if backs else None  # what gradients have in their names
        self._exact: Lived | None = None
        self._alone: dict[str, Lived] = {}  # lives of one call, by its label
        self._moved: list[Lived] | None = None
        self._further: list[Lived] | None = None

    def exact(self, label: str) -> Lived:
        """In float64, or eager where that does not run; it has the label, perhaps no others."""
        if self.life.apart and self._exact is None:
            if found := largest.read(label, self.life.steps, self.theirs.seen, self._one):
                return found
            if label in self._alone or len(self._alone) < _ALONE:
                return self._one(label)
        if self._exact is None:
            self._exact = self._wide(self.life.steps)
        return self._exact

    def _one(self, label: str) -> Lived:
        if label not in self._alone:
            steps = [s for s in self.life.steps if s["do"] != "call" or s["label"] == label]
            self._alone[label] = self._wide(steps)
        return self._alone[label]

    def _wide(self, steps: Sequence[Step]) -> Lived:
        life = replace(self.life, steps=tuple(steps))
        given = steps_of(self.session, life), states_of(self.session, life), life.inputs
        found = _living(self.session).exact(*given)
        self.unknown = found.raised is not None
        return self.theirs if self.unknown else found

    @property
    def moved(self) -> list[Lived]:
        """In float64, from states and inputs that were moved a little."""
        if self._moved is None:
            self._moved = self._lives(0, _MOVES * (4 if self.life.dtypes else 1))
        return self._moved

    @property
    def further(self) -> list[Lived]:
        """More of these, which luck alone is asked of."""
        if self._further is None:
            self._further = self._lives(_MOVES, _SHAKES)
        return self._further

    def _lives(self, first: int, last: int) -> list[Lived]:
        life, living, seed = self.life, _living(self.session), self.session.seed
        states, units = states_of(self.session, life), self.session.usual().units
        given = (steps_of(self.session, life), states, life.inputs)
        how = {"eps": life.eps, "units": units, "still": life.still, "few": life.few}
        runs = (living.moved(*given, seed + i, **how) for i in range(first, last))  # type: ignore[arg-type]
        return [run for run in runs if run.raised is None]

    def wrong(self, label: str, kind: str, got: Any, value: Any) -> Wrong | None:
        """What is wrong with an observation; None if nothing is."""
        if kind == FACT:
            return None if got == value else (f"expected {value}, came {got}", None, False)
        if kind == LEAST:
            missing = [v for v in value if v not in got]
            return (f"expected at least {value}, came {got}", None, False) if missing else None
        if kind == MOST:
            more = [v for v in got if v not in value]
            return (f"expected at most {value}, came {got}", None, False) if more else None
        if kind == GRADS:
            got, value = compare.filled(got, value), compare.filled(value, got)
        if compare.acquitted(got, value):
            return None
        exact = self._of(self.exact(label), label, got)
        failed = [r for r in self._rule(label, got, value, exact) if not r.agrees]
        if not failed:
            return None
        alike = not any(r.structural for r in failed)
        if alike and label in self.life.near and self._near(label, got):
            return None
        if alike and label in self.life.long and narrow.by_order(got, value, exact):
            return None
        if self.life.dtypes and narrow.narrower(got, value) and self._near(label, got):
            self.session.assumptions.add(self.life.dtypes)
            return None
        if all(r.structural for r in failed):
            if self.life.shapes:
                self.session.assumptions.add(self.life.shapes)
                self.reshaped = True
                return None
            if self.life.dtypes and narrow.rounded(got, value):  # another type alone is stamped
                return f"{failed[0].reason}, of other values", None, False
            return failed[0].reason, None, True
        rough = self.unknown and self.session.usual().units > 1  # eager rounds, and has no bar
        if rough and self._near(label, got, _ROUGH * torch.finfo(torch.bfloat16).eps):
            self.session.notes.append(f"no power: {self.session.test}, {self.life.case}, {label}")
            return None
        if self.session.plain.never_right:  # nothing can acquit it any more
            return failed[0].reason, failed[0].worst, failed[0].structural
        if self._is_right_by_another_run(label, got, exact):
            return None
        resolved = self._resolved(label, got, value, exact)
        bad = [r for r in resolved if not r.agrees]
        bad = [r for r in bad if r.structural or not self._lost(r.name, value, exact)]
        if self.life.dtypes or self.life.coarse:
            bad = [r for r in bad if r.structural or not narrow.as_often(r.name, got, value, exact)]
        bad = [r for r in self._chosen(label, got, value, bad) if not r.agrees]
        return (bad[0].reason, bad[0].worst, bad[0].structural) if bad else None

    def excused(self, label: str, got: Any) -> bool:
        """Whether what a stamp says is so: the answer is eager's of another label, or in another
        type it is eager's of this one."""
        at = self.life.instead.get(label)
        if at is None or at not in self.theirs.seen:
            return True
        kind, value = self.theirs.seen[label]
        if self.wrong(at, kind, got, self.theirs.seen[at][1]) is None:
            return True
        if kind == GRADS and self.life.coarse:
            # autocast may narrow the candidate's operations where it does not narrow eager's
            mine = compare.filled(got, value)
            return self._near(label, mine, torch.finfo(torch.bfloat16).eps)
        return narrow.narrower(got, value) and self._near(label, got)

    def _near(self, label: str, got: Any, least: float = 0.0) -> bool:
        """Whether values, of whatever type, are as near to the truth as eager's are, there or at
        the first call, or as the roundings of their types (of ``least`` at least) allow."""
        pairs = [
            (self._of(lived[0], at, got), self._of(lived[1], at, got))
            for lived in [(self.theirs, self.exact(label))]
            for at in dict.fromkeys((_FIRST, label))
            if at in lived[0].seen and at in lived[1].seen
        ]
        mine, truths = dict(compare.leaves(got)), dict(compare.leaves(pairs[-1][1]))
        if mine.keys() != truths.keys():
            return False
        for name, truth in truths.items():
            if not isinstance(truth, torch.Tensor) or not isinstance(mine[name], torch.Tensor):
                continue
            eager = dict(compare.leaves(pairs[-1][0]))[name]
            if mine[name].shape != truth.shape or not (inexact(truth) and inexact(mine[name])):
                return False
            if narrow.lost(mine[name], eager, truth):
                return False
            usual = max(
                distance(dict(compare.leaves(value))[name], dict(compare.leaves(exact))[name])[0]
                for value, exact in pairs
            )
            finite = truth[torch.isfinite(truth)]
            size = float(finite.abs().square().mean().sqrt()) if finite.numel() else 0.0
            eps = max(least, *(torch.finfo(t.dtype).eps for t in (eager, mine[name])))
            if distance(mine[name], truth)[0] > _NEAR * usual + _ROUNDINGS * eps * size:
                return False
        return True

    def _of(self, lived: Lived, label: str, got: Any) -> Any:
        kind, tree = lived.seen.get(label, self.theirs.seen[label])
        return compare.filled(tree, got) if kind == GRADS else tree

    def _rule(
        self, label: str, got: Any, value: Any, exact: Any, also: Any = None
    ) -> list[rows.Comparison]:
        given = (label, got, value, exact, None, self.session.finite_only, also)
        kind = self.theirs.seen[label][0]
        return compare.compare(*given, "'input " if kind == GRADS else self.slopes)

    def _resolved(self, label: str, got: Any, value: Any, exact: Any) -> list[rows.Comparison]:
        """Once more: what a unit in the last place at the start does to this observation counts as
        eager's error, and what jumps among the moved runs is a tie."""
        runs = [dict(compare.leaves(self._of(run, label, got))) for run in self.moved]
        also: dict[str, list[torch.Tensor]] = {}
        for name, truth in compare.leaves(exact):
            if isinstance(truth, torch.Tensor):
                there = [r[name] for r in runs if isinstance(r.get(name), torch.Tensor)]
                also[name] = [t for t in there if t.shape == truth.shape]
        mended, truths = dict(compare.leaves(got)), dict(compare.leaves(exact))
        results = self._rule(label, got, value, exact, also)
        for _ in range(_ROUNDS):
            changed = False
            for result in (r for r in results if r.wrong is not None and also.get(r.name)):
                name, wrong = result.name, result.wrong
                assert wrong is not None
                few = max(
                    1, wrong.numel() // (_COARSE if self.life.dtypes or self.life.coarse else _FINE)
                )
                if 0 < int(wrong.sum()) <= few:
                    better = compare.resolve(mended[name], truths[name], wrong, also[name])
                    changed = changed or not torch.equal(better, mended[name].to(better.device))
                    mended[name] = better
            if not changed:
                break
            results = self._rule(label, compare.rebuilt(got, mended), value, exact, also)
        return self._lucky(label, got, value, exact, results)

    def _lucky(
        self, label: str, got: Any, value: Any, exact: Any, results: list[rows.Comparison]
    ) -> list[rows.Comparison]:
        """Once more where eager is right by luck alone: see `luck`."""
        life, failed = self.life, [r for r in results if not r.agrees]
        if not failed or any(r.wrong is None for r in failed):
            return results
        if life.dtypes or life.coarse or life.eps:
            return results
        lives = [*self.moved, *self.further]
        runs = [dict(compare.leaves(self._of(run, label, got))) for run in lives]
        mine, theirs, truths = (dict(compare.leaves(t)) for t in (got, value, exact))
        found = []
        for result in results:
            name = result.name
            there = [r[name] for r in runs if beside.shape(r.get(name)) == truths[name].shape]
            if not result.agrees and len(there) == _SHAKES:

                def rule(mended: torch.Tensor, name: str = name) -> rows.Comparison:
                    given = (mended, theirs[name], truths[name], None, self.session.finite_only)
                    return compare.tensors(label, name, *given)

                three = (mine[name], theirs[name], truths[name])
                result = luck.again(result, *three, there, self.session.usual(), rule)
            found.append(result)
        return found

    def _is_right_by_another_run(self, label: str, got: Any, exact: Any) -> bool:
        """Whether it is right beside eager's life by all of PyTorch's threads, as the candidate may
        have lived (a library's sum is another one for each number of them: of a bias's gradients
        two threads had 200 times the error of one), or of images in channels last."""
        session, life = self.session, self.life
        steps, states = steps_of(session, life), states_of(session, life)
        slopes = self.slopes is not None or self.theirs.seen[label][0] == GRADS
        for given, alone, mode in otherwise.ways(life.inputs, slopes):
            theirs = _living(session).eager(steps, states, given, alone, mode)
            if theirs.raised is None and label in theirs.seen:
                other = self._of(theirs, label, got)
                found = self._rule(label, got, other, exact)
                if all(r.agrees for r in found) and otherwise.is_bar(got, other, exact):
                    return True
        return False

    def _chosen(
        self, label: str, got: Any, value: Any, failed: list[rows.Comparison]
    ) -> list[rows.Comparison]:
        """Once more, where the order of equal values is open."""
        if all(r.structural for r in failed):
            return failed

        def run() -> Any:
            theirs = eager(self.session, self.life)
            known = theirs.raised is None and label in theirs.seen
            return self._of(theirs, label, got) if known else None

        return choices.settled(failed, value, run)

    def _lost(self, name: str, value: Any, exact: Any) -> bool:
        """Whether eager itself has lost the value: then there is no power."""
        mine, truth = dict(compare.leaves(value))[name], dict(compare.leaves(exact))[name]
        if not isinstance(mine, torch.Tensor) or not mine.is_floating_point():
            return False
        usual, most = distance(mine, truth)
        # of a moved type: where eager jumps anywhere, ties are too many to be proven
        error = most / 4 if self.life.dtypes else usual
        finite = truth[torch.isfinite(truth)].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        lost = error > max(_LOST, 8 * torch.finfo(mine.dtype).eps) * scale
        if lost:
            self.session.notes.append(f"no power: {self.session.test}, {self.life.case}, {name}")
        return lost


def _living(session: Session) -> Living:
    return Living(session.oracle, session.seed, session.random)


def steps_of(session: Session, life: Life) -> list[Step]:
    """A life's steps. Cotangents have as many bits as float32 holds, where all types have them."""
    other = life.dtypes or life.coarse or life.eps or any(s.get("cast") for s in life.steps)
    fine = not other and session.fine
    return [{**s, "fine": True} if fine and s["do"] == "backward" else s for s in life.steps]


def states_of(session: Session, life: Life) -> dict[str, dict[str, torch.Tensor]]:
    """The states that a life needs, by name."""
    return {name: session.state(name) for name in life.states} | dict(life.own)
