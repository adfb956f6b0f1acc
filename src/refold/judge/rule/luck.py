"""Where eager is right by luck: a function that jumps makes any error of a large one or of none.

Behind a tanh of large values nearly all results are exact, and the few beside the step are right or
altogether wrong. Eager may have none of these, and an honest candidate two: the rounding of either
decides it. What follows (a norm) spreads a jump over others, so that many are wrong a little.

So errors there are held to what rounding does to the function. The float64 reference is run on
inputs and weights that are moved by some units in the last place, and no element may lie further
from the truth than twice the furthest of these runs. A unit is one of the class in which eager
computes: of products in TF32 it is some thousand of float32's. Smooth functions are not held to
that: there eager's error is what its class says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch

from refold.judge.rule import rows
from refold.judge.rule.beside import Exact, piece, slices

_COARSE = 32.0  # units of a type, above which eager computes in a coarser class
_LEAST = 1 / 16  # units that an error is taken to have at least: copies have none
_REACH = 2.0  # times the furthest of the moved runs, which are some only
_LUCKY = 2.0  # times less than what its class says
_MANY = 1 / 4  # of the elements: where more jump, nothing else is left to be compared
_JUMP = 16.0  # times what moves inputs: smooth functions of ordinary condition do not that


@dataclass(frozen=True)
class Usual:
    """Eager's error on ordinary inputs by output: in what one unit in the last place of inputs and
    weights does there."""

    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def units(self) -> float:
        """Units in the last place that are one of eager's class."""
        most = max(self.errors.values(), default=0.0)
        return most if most > _COARSE else 1.0

    def of(self, name: str) -> float:
        """Eager's error of an output."""
        known = self.errors.get(name, max(self.errors.values(), default=1.0))
        return max(known, _LEAST)


def usual(errors: Mapping[str, float], moved: Mapping[str, float]) -> Usual:
    """From eager's errors by output, and from what one unit does."""
    both = {k: e / moved[k] for k, e in errors.items() if moved.get(k)}
    return Usual({k: v for k, v in both.items() if v == v and v < float("inf")})


def again(
    result: rows.Comparison,
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: Exact,
    runs: Iterable[Exact],
    known: Usual,
    rule: Callable[[torch.Tensor], rows.Comparison],
) -> rows.Comparison:
    """A result that failed, compared once more by ``rule`` where eager is right by luck: elements
    no further from the truth than twice the furthest of ``runs`` are put right before. ``runs``:
    float64, moved by `rows.MOVED` units of eager's class."""
    if got.shape != eager.shape or not got.is_floating_point() or not got.numel():
        return result
    reach, usual_move = _reach(eager, exact, runs)
    jump, error = _jump(eager, exact, known), _error(eager, exact)
    lucky = usual_move > _LUCKY * rows.MOVED * known.units / known.of(result.name) * error
    if not lucky or not bool((reach > jump).any()):
        return result
    second = rule(_put_right(got.to(eager.device), exact, reach))
    return replace(second, name=result.name) if second.agrees else result


def settled(eager: torch.Tensor, exact: Exact, runs: Iterable[Exact], known: Usual) -> torch.Tensor:
    """Eager's output without what it errs by where the function jumps: it would raise every bar.
    Itself where the function does not jump, or does nearly everywhere."""
    reach, _ = _reach(eager, exact, runs)
    jumps = int((reach > _jump(eager, exact, known)).sum())
    if not 0 < jumps <= _MANY * eager.numel():
        return eager
    return _put_right(eager, exact, reach)


def _put_right(got: torch.Tensor, exact: Exact, reach: torch.Tensor) -> torch.Tensor:
    """With the truth for what is within reach of it."""
    mended = got.detach().clone(memory_format=torch.contiguous_format)
    flat = mended.view(-1)
    for at in slices(got.numel(), got.device):
        truth = piece(exact, at).to(got.device).double()
        own = flat[at].double()
        near = torch.isfinite(own) & ((own - truth).abs() <= _REACH * reach[at])
        flat[at] = torch.where(near, truth, own).to(got.dtype)
    return mended


def _reach(eager: torch.Tensor, exact: Exact, runs: Iterable[Exact]) -> tuple[torch.Tensor, float]:
    """By element the furthest of the moved runs, and the root of the mean square of all."""
    most = torch.zeros(eager.numel(), dtype=torch.float64, device=eager.device)
    squares, count = 0.0, 0
    for run in runs:
        count += 1
        for at in slices(eager.numel(), eager.device):
            apart = (piece(run, at) - piece(exact, at)).to(eager.device).double().abs()
            apart = torch.where(torch.isfinite(apart), apart, 0.0)
            most[at] = torch.maximum(most[at], apart)
            squares += float(apart.square().sum())
    return most, (squares / max(1, count * eager.numel())) ** 0.5


def _error(eager: torch.Tensor, exact: Exact) -> float:
    """Eager's, as the root of its mean square."""
    squares = 0.0
    for at in slices(eager.numel(), eager.device):
        apart = piece(eager, at).double() - piece(exact, at).to(eager.device).double()
        squares += float(torch.where(torch.isfinite(apart), apart, 0.0).square().sum())
    return float((squares / eager.numel()) ** 0.5)


def _jump(eager: torch.Tensor, exact: Exact, known: Usual) -> float:
    """How far moved inputs move no smooth function."""
    scale = 0.0
    for at in slices(eager.numel(), eager.device):
        truth = piece(exact, at)
        scale = max(scale, float(torch.where(torch.isfinite(truth), truth, 0.0).abs().max()))
    return _JUMP * rows.MOVED * known.units * torch.finfo(eager.dtype).eps * scale
