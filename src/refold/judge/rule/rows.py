"""The error rule itself, row by row: see `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from refold.judge.draws.trees import all_finite
from refold.judge.verdict.verdict import ErrorStats, Worst

K_FLOAT32 = 16.0
K_HALF = 3.0
K_MAX_FLOAT32 = 32.0
K_MAX_HALF = 3.0
FEW = 32  # below so many elements a row says nothing about eager's error: rows are pooled
LOST_BY_EAGER = (
    1 / 16
)  # of a row's scale: where eager errs by more, rows' errors are no longer alike
_CHUNK = 1 << 22
_COUNTED = 1 << 20  # elements of which a histogram is made
_NO_BINS = torch.zeros(2, 24, dtype=torch.int64)
MOVED = 8.0  # units in the last place: what sums in another order lose, at their usual lengths


@dataclass(frozen=True)
class Comparison:
    """The outcome for one output tensor; ``reason`` is empty where it agrees."""

    reason: str = ""
    worst: Worst | None = None
    errors: ErrorStats | None = None
    structural: bool = False
    name: str = ""
    # the elements that are wrong by themselves, in the output's shape; None: not by elements
    wrong: torch.Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def agrees(self) -> bool:
        """No disagreement."""
        return not self.reason


def factor(dtype: torch.dtype) -> float:
    """k for outputs of a dtype."""
    return K_HALF if dtype in (torch.float16, torch.bfloat16) else K_FLOAT32


def factor_max(dtype: torch.dtype) -> float:
    """k of the largest error, for outputs of a dtype."""
    return K_MAX_HALF if dtype in (torch.float16, torch.bfloat16) else K_MAX_FLOAT32


def measured(
    case: str,
    name: str,
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    spread: tuple[float, float] | None,
    also: Sequence[torch.Tensor],
    dtype: torch.dtype | None = None,
) -> Comparison:
    dtype = dtype or got.dtype  # of the output, where these are its relative values
    k = factor(dtype)
    info = torch.finfo(dtype)
    width = got.shape[-1] if got.dim() and got.shape[-1] >= FEW else got.numel()
    rows = [t.reshape(-1, width) for t in (got, eager, exact)]
    stats = [_row_stats(*(r[part] for r in rows)) for part in _parts(rows[0])]
    mine2, mine_max, its2, its_max, scale, count, worst = (
        torch.cat([s[i] for s in stats]) for i in range(7)
    )
    bins = torch.stack([s[7].to(rows[0].device) for s in stats]).sum(dim=0)
    live = count > 0
    if not bool(live.any()):
        return Comparison()
    mine, its = (mine2 / count.clamp(min=1)).sqrt(), (its2 / count.clamp(min=1)).sqrt()
    floor = 2 * info.eps * scale + info.tiny
    safe = scale.clamp(min=1e-300)
    real = live & (scale > info.tiny)  # beside a row of zeros every error is infinite
    if not bool(real.any()):
        real = live
    rows_errors = (its / safe)[real]
    typical_row = rows_errors.square().mean().sqrt()
    pooled = (rows_errors.max() if float(typical_row) > LOST_BY_EAGER else typical_row) * scale
    pooled_max = (its_max / safe)[real].max() * scale
    for t in also:
        moved = _errors(t.to(exact.device).reshape(-1, width), rows[2])
        its = torch.maximum(its, moved[0] / MOVED)
        its_max = torch.maximum(its_max, moved[1] / MOVED)
    bar = k * torch.maximum(its, pooled) + floor
    k_max = factor_max(dtype)
    bar_max = k_max * torch.maximum(its_max, pooled_max) + floor
    if spread is not None:
        bar = torch.maximum(bar, k * spread[0] + floor)
        bar_max = torch.maximum(bar_max, k_max * spread[1] + floor)
    total = count.sum()
    rmse, rmse_eager = float((mine2.sum() / total).sqrt()), float((its2.sum() / total).sqrt())
    typical = float(floor[live].square().mean().sqrt()) / 4  # half an ulp: what rounding costs
    against = max(rmse_eager, spread[0] if spread else 0.0)
    errors = ErrorStats(
        case=case,
        output=name,
        rmse=rmse,
        rmse_eager=rmse_eager,
        max=float(mine_max.max()),
        max_eager=float(its_max.max()),
        ratio=(rmse + typical) / max(against + typical, 1e-300),
        histogram=tuple(int(v) for v in bins[0]),
        histogram_eager=tuple(int(v) for v in bins[1]),
    )
    over = torch.maximum(mine / bar, mine_max / bar_max)
    row = int(over.argmax())
    if float(over[row]) <= 1.0:
        return Comparison(errors=errors)
    result = at(
        name,
        f"error {errors.ratio:.3g} times eager's (k = {k:g}); worst row misses its bar "
        f"{float(over[row]):.3g} times",
        row * width + int(worst[row]),
        got,
        eager,
        exact,
        float(bar_max[row]),
    )
    limit = torch.minimum(bar, bar_max).unsqueeze(1)
    beyond = [
        (rows[0][part].double() - rows[2][part].double()).abs() > limit[part]
        for part in _parts(rows[0])
    ]
    return replace(result, errors=errors, wrong=torch.cat(beyond).reshape(got.shape))


def _parts(rows: torch.Tensor) -> list[slice]:
    """So many rows at a time as make some millions of elements: temporaries stay small."""
    step = max(1, _CHUNK // rows.shape[1])
    return [slice(i, i + step) for i in range(0, len(rows), step)]


def _row_stats(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Per row: sums of squares, maxima, scale, compared elements, worst index; and histograms."""
    truth = exact.double()
    if all(all_finite(t) for t in (got, eager, truth)):
        mine, its = ((t.double() - truth).abs_() for t in (got, eager))
        count = torch.full_like(truth[:, 0], truth.shape[1])
    else:
        use = torch.isfinite(truth) & torch.isfinite(got)
        truth = torch.where(use, truth, 0.0)
        mine = torch.where(use, got.double() - truth, 0.0).abs_()
        # Where only eager is not finite, the candidate's error counts and eager's does not.
        its = torch.where(use & torch.isfinite(eager), eager.double() - truth, 0.0).abs_()
        count = use.sum(dim=1).double()
    scale = truth.abs().amax(dim=1)
    top, at = mine.max(dim=1)
    small = mine.numel() <= _COUNTED  # else a third of the whole comparison
    bins = torch.stack([_bins(e, scale) for e in (mine, its)]) if small else _NO_BINS
    return (
        mine.square().sum(dim=1),
        top,
        its.square().sum(dim=1),
        its.amax(dim=1),
        scale,
        count,
        at,
        bins,
    )


def _errors(got: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per row: root of the mean square and maximum of the error, where both are finite."""
    found = []
    for part in _parts(exact):
        error = (got[part].double() - exact[part].double()).abs()
        error = torch.where(torch.isfinite(error), error, 0.0)
        found.append((error.square().mean(dim=1).sqrt(), error.amax(dim=1)))
    return torch.cat([f[0] for f in found]), torch.cat([f[1] for f in found])


def _bins(error: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    relative = error / scale.clamp(min=1e-300).unsqueeze(1)
    # floor((log2 + 40) / 2), by a float32's exponent: a logarithm wakes every thread.
    exponent = relative.float().view(torch.int32) >> 23
    level = (exponent - (127 - 40)).clamp_(0, 47) >> 1
    return torch.bincount(level.reshape(-1), minlength=24)


def at(
    name: str,
    reason: str,
    where: int | torch.Tensor,
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    bar: float = 0.0,
) -> Comparison:
    wrong = where if isinstance(where, torch.Tensor) else None
    flat = where if isinstance(where, int) else int(where.reshape(-1).to(torch.uint8).argmax())
    index, rest = [], flat
    for size in reversed(got.shape):
        index.append(rest % size)
        rest //= size
    values = [float(t.reshape(-1)[flat]) for t in (got, eager, exact)]
    worst = Worst(name, tuple(reversed(index)), values[0], values[1], values[2], bar)
    return Comparison(f"{name}: {reason}", worst, wrong=wrong)


def apart(eager: torch.Tensor, exact: torch.Tensor, units: float) -> torch.Tensor:
    """Where eager is further from the float64 run than so many units in the last place of its
    row's largest value."""
    width = eager.shape[-1] if eager.dim() else 1
    rows = [t.reshape(-1, width) for t in (eager, exact.to(eager.device))]
    info, found = torch.finfo(eager.dtype), []
    for part in _parts(rows[0]):
        mine, truth = (r[part].double() for r in rows)
        scale = torch.where(torch.isfinite(truth), truth, 0.0).abs().amax(dim=1, keepdim=True)
        found.append((mine - truth).abs() > units * info.eps * scale + info.tiny)
    return torch.cat(found).reshape(eager.shape)
