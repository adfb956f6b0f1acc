"""The error rule itself, row by row: see `compare`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from refold.judge.draws.trees import all_finite
from refold.judge.rule import fills
from refold.judge.rule.beside import Exact, chunk, piece, slices
from refold.judge.verdict.verdict import ErrorStats, Worst

K_FLOAT32 = 16.0
K_HALF = 3.0
K_MAX_FLOAT32 = 32.0
K_MAX_HALF = 3.0
FEW = 32  # below so many elements a row says nothing about eager's error: rows are pooled
LOST_BY_EAGER = (
    1 / 16
)  # of a row's scale: where eager errs by more, rows' errors are no longer alike
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


class Sheet:
    """An output three times, as rows, read block by block: temporaries stay small.

    Constants of a mask are taken out of each block. ``unit``: of each sample, what its values are
    divided by. Rows of few elements are one row.
    """

    def __init__(
        self,
        got: torch.Tensor,
        eager: torch.Tensor,
        exact: Exact,
        taken: fills.Fills | None = None,
        unit: torch.Tensor | None = None,
    ) -> None:
        self.got, self.eager, self.exact = got, eager, exact
        self.taken, self.unit = taken or fills.Fills(), unit
        self.width = got.shape[-1] if got.dim() and got.shape[-1] >= FEW else got.numel()
        self.rows = got.numel() // self.width

    def blocks(self) -> Iterator[tuple[slice, int, slice]]:
        """Rows, the first column, and the part of the flat form, in order. A long row comes in
        several blocks."""
        most = chunk(self.eager.device)
        if self.width > most:
            for row in range(self.rows):
                for at in slices(self.width, self.eager.device):
                    start = row * self.width
                    yield slice(row, row + 1), at.start, slice(start + at.start, start + at.stop)
            return
        step = max(1, most // self.width)
        for i in range(0, self.rows, step):
            rows = slice(i, min(i + step, self.rows))
            yield rows, 0, slice(rows.start * self.width, rows.stop * self.width)

    def part(self, rows: slice, at: slice) -> list[torch.Tensor]:
        """The three in a block."""
        found = self.taken.removed(*(piece(t, at) for t in (self.got, self.eager, self.exact)))
        return [t.reshape(rows.stop - rows.start, -1) for t in self._divided(at, found)]

    def moved(self, rows: slice, at: slice, other: torch.Tensor) -> list[torch.Tensor]:
        """Another float64 output in a block, and the one that counts."""
        own, truth, wide = (piece(t, at) for t in (self.eager, self.exact, other))
        if self.taken.narrowed or self.taken.values:
            _, _, kept = self.taken.removed(own, own, truth)
            narrow = fills.Fills((), self.taken.narrowed)
            wide = narrow.removed(own, own, wide)[2]
            wide, truth = torch.where((kept == 0.0) & (truth != 0.0), 0.0, wide), kept
        return [t.reshape(rows.stop - rows.start, -1) for t in self._divided(at, (wide, truth))]

    def own_unit(self, flat: int) -> float:
        """What the value at a flat position is divided by."""
        return 1.0 if self.unit is None else float(self.unit[self._sample(flat)])

    def _sample(self, flat: int) -> int:
        assert self.unit is not None
        return flat // (self.got.numel() // self.unit.numel())

    def _divided(self, at: slice, found: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        if self.unit is None:
            return found
        each = self.got.numel() // self.unit.numel()
        index = torch.arange(at.start, at.stop, device=self.unit.device) // each
        return [t.double() / self.unit[index] for t in found]


def measured(
    case: str,
    name: str,
    sheet: Sheet,
    spread: tuple[float, float] | None,
    also: Iterable[torch.Tensor],
    slopes: bool = False,
) -> Comparison:
    """The rule on one output of finite kinds. ``also``: see `compare.tensors`. ``slopes``: it is
    the gradient of an input. Of a softmax over one key it is a difference of equal terms, zero in
    eager's order and a rounding in others (of blocks, with the product of output and gradient in
    the place of a sum): rows of zeros have the usual row's scale there."""
    dtype, width = sheet.got.dtype, sheet.width
    k = factor(dtype)
    info = torch.finfo(dtype)
    counted = sheet.got.numel() <= _COUNTED
    stats: list[list[torch.Tensor]] = []
    for rows, column, at_ in sheet.blocks():
        own, theirs, truth = sheet.part(rows, at_)
        found = _row_stats(own, theirs, truth, counted)
        if column:
            stats[-1] = _joined(stats[-1], found, column)
        else:
            stats.append(list(found))
    mine2, mine_max, its2, its_max, scale, count, worst = (
        torch.cat([s[i] for s in stats]) for i in range(7)
    )
    bins = torch.stack([s[7].to(mine2.device) for s in stats]).sum(dim=0)
    live = count > 0
    if not bool(live.any()):
        return Comparison()
    mine, its = (mine2 / count.clamp(min=1)).sqrt(), (its2 / count.clamp(min=1)).sqrt()
    real = live & (scale > info.tiny)  # beside a row of zeros every error is infinite
    if slopes and bool(real.any()):
        scale = torch.where(live & (scale == 0) & (its_max == 0), scale[real].median(), scale)
    floor = 2 * info.eps * scale + info.tiny
    safe = scale.clamp(min=1e-300)
    if not bool(real.any()):
        real = live
    rows_errors = (its / safe)[real]
    typical_row = rows_errors.square().mean().sqrt()
    pooled = (rows_errors.max() if float(typical_row) > LOST_BY_EAGER else typical_row) * scale
    pooled_max = (its_max / safe)[real].max() * scale
    for t in also:
        moved = _errors(sheet, t.to(sheet.eager.device))
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
    if float(over.max()) > 1.0:
        border, zeros = _at_zero(sheet)
        clamped = live & (2 * zeros >= width) & (scale <= border)
        if bool(clamped.any()):
            bar = torch.where(clamped, torch.maximum(bar, k * its[clamped].max()), bar)
            bar_max = torch.where(clamped, torch.maximum(bar_max, k_max * border), bar_max)
        over = torch.maximum(mine / bar, mine_max / bar_max)
    row = int(over.argmax())
    if float(over[row]) <= 1.0:
        return Comparison(errors=errors)
    flat = row * width + int(worst[row])
    result = at(
        name,
        f"error {errors.ratio:.3g} times eager's (k = {k:g}); worst row misses its bar "
        f"{float(over[row]):.3g} times",
        flat,
        sheet.got,
        sheet.eager,
        sheet.exact,
        float(bar_max[row]) * sheet.own_unit(flat),
    )
    limit = torch.minimum(bar, bar_max).unsqueeze(1)
    beyond = torch.empty(sheet.got.numel(), dtype=torch.bool, device=mine2.device)
    for rows, _, at_ in sheet.blocks():
        own, _, truth = sheet.part(rows, at_)
        beyond[at_] = ((own.double() - truth.double()).abs() > limit[rows]).reshape(-1)
    return replace(result, errors=errors, wrong=beyond.reshape(sheet.got.shape))


def _joined(
    first: list[torch.Tensor], more: tuple[torch.Tensor, ...], column: int
) -> list[torch.Tensor]:
    """Statistics of one row from those of two parts of it; the second begins at ``column``."""
    later = more[1] > first[1]
    return [
        first[0] + more[0],
        torch.maximum(first[1], more[1]),
        first[2] + more[2],
        torch.maximum(first[3], more[3]),
        torch.maximum(first[4], more[4]),
        first[5] + more[5],
        torch.where(later, more[6] + column, first[6]),
        first[7] + more[7],
    ]


def pieces(*tensors: Exact) -> Iterator[list[torch.Tensor]]:
    """Flat pieces of tensors of one shape, some millions of elements each: temporaries stay
    small."""
    for at in slices(tensors[0].numel(), tensors[0].device):
        yield [piece(t, at) for t in tensors]


def _row_stats(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, counted: bool = True
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
    # of large outputs it would be a third of the whole comparison
    bins = torch.stack([_bins(e, scale) for e in (mine, its)]) if counted else _NO_BINS
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


def _at_zero(sheet: Sheet) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest error of eager's where it has zero and float64 has not, or the reverse: how far
    a value beside the border of a relu or a clamp may come out on its other side. A row of zeros,
    or of little beside them, has no scale that says so. And how many zeros each row has."""
    most = torch.zeros((), dtype=torch.float64, device=sheet.eager.device)
    zeros = torch.zeros(sheet.rows, dtype=torch.float64, device=sheet.eager.device)
    for rows, _, at_ in sheet.blocks():
        _, theirs, truth = (t.double() for t in sheet.part(rows, at_))
        error = torch.where((theirs == 0.0) != (truth == 0.0), (theirs - truth).abs(), 0.0)
        most = torch.maximum(most, torch.where(torch.isfinite(error), error, 0.0).max())
        zeros[rows] += (truth == 0.0).sum(dim=1)
    return most, zeros


def _errors(sheet: Sheet, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per row: root of the mean square and maximum of another output's distance to the one that
    counts, where both are finite."""
    squares = torch.zeros(sheet.rows, dtype=torch.float64, device=sheet.eager.device)
    most = torch.zeros_like(squares)
    for rows, _, at_ in sheet.blocks():
        moved, truth = sheet.moved(rows, at_, other)
        error = (moved.double() - truth.double()).abs()
        error = torch.where(torch.isfinite(error), error, 0.0)
        squares[rows] += error.square().sum(dim=1)
        most[rows] = torch.maximum(most[rows], error.amax(dim=1))
    return (squares / sheet.width).sqrt(), most


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
    exact: Exact,
    bar: float = 0.0,
) -> Comparison:
    wrong = where if isinstance(where, torch.Tensor) else None
    flat = where if isinstance(where, int) else int(where.reshape(-1).to(torch.uint8).argmax())
    index, rest = [], flat
    for size in reversed(got.shape):
        index.append(rest % size)
        rest //= size
    values = [float(piece(t, slice(flat, flat + 1))) for t in (got, eager, exact)]
    worst = Worst(name, tuple(reversed(index)), values[0], values[1], values[2], bar)
    return Comparison(f"{name}: {reason}", worst, wrong=wrong)


def apart(eager: torch.Tensor, exact: Exact, units: float) -> torch.Tensor:
    """Where eager is further from the float64 run than so many units in the last place of its
    row's largest value."""
    width = eager.shape[-1] if eager.dim() else 1
    info = torch.finfo(eager.dtype)
    found = torch.empty(eager.numel(), dtype=torch.bool, device=eager.device)
    step = max(1, chunk(eager.device) // width) * width
    for i in range(0, eager.numel(), step):
        at_ = slice(i, min(i + step, eager.numel()))
        mine, truth = (piece(t, at_).to(eager.device).double() for t in (eager, exact))
        rows = truth.reshape(-1, width)
        scale = torch.where(torch.isfinite(rows), rows, 0.0).abs().amax(dim=1, keepdim=True)
        wrong = (mine.reshape(-1, width) - rows).abs() > units * info.eps * scale + info.tiny
        found[at_] = wrong.reshape(-1)
    return found.reshape(eager.shape)
