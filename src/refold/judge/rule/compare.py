"""One rule for every comparison: the candidate's error against float64, beside eager's own.

Accepted where, per output and per row, ``rmse <= k * rmse_eager + floor`` and
``max <= k_max * max_eager + floor``. The floor is two units in the last place at the row's scale.
A row's own eager error can be small by luck, so its bar is never below ``k`` times the relative
error that eager shows over all rows; where that is above a sixteenth (a softmax behind statistics
of 16-bit values far from zero: few rows hold nearly all of the error), never below ``k`` times that
of eager's worst row, which is an extreme of as many draws. The largest of all the candidate's
errors is an extreme of as many draws as eager's largest, so it is measured by that one; and as
other orders of summation spread their error less evenly over the columns than eager's, ``k_max``
is twice ``k`` in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from refold.judge.draws.trees import all_finite
from refold.judge.rule import fills, threads
from refold.judge.rule.rows import FEW, Comparison, at, measured
from refold.judge.verdict.verdict import Worst

_NORMAL = 256.0  # times the least normal number: what a value is that no rounding makes zero
_AGREED = 2.0**-10  # of a value, within which eager and float64 agree on it
_STANDS_OUT = 64.0  # times the median of all samples' scales


def leaves(tree: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """Named leaves of an output tree; a Python float as the tensor that it was read from."""
    if isinstance(tree, list | tuple):
        for i, part in enumerate(tree):
            yield from leaves(part, f"{name}[{i}]")
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from leaves(part, f"{name}[{key!r}]")
    elif isinstance(tree, float):
        yield name, torch.tensor(tree, dtype=torch.float32)
    else:
        yield name, tree


def compare(
    case: str,
    got: Any,
    eager: Any,
    exact: Any,
    spread: dict[str, tuple[float, float]] | None = None,
    finite_only: bool = False,
    also: dict[str, list[torch.Tensor]] | None = None,
) -> list[Comparison]:
    """Compare output trees, each tensor where eager's lies.

    Args:
        case: name for the report.
        got: the candidate's outputs.
        eager: the reference's, same flags and dtype.
        exact: the reference's in float64.
        spread: per output, eager's (rmse, max) over several draws, for outputs of few elements.
        finite_only: do not compare where eager is not finite.
        also: per output, see `tensors`.
    """
    mine, theirs, truth = list(leaves(got)), list(leaves(eager)), list(leaves(exact))
    if _skeleton(got) != _skeleton(eager):
        return [Comparison(f"expected {_skeleton(eager)}, came {_skeleton(got)}", structural=True)]
    results = []
    for (name, a), (_, b), (_, c) in zip(mine, theirs, truth, strict=True):
        if isinstance(b, torch.Tensor):
            pooled = (spread or {}).get(name)
            with threads.few(b.numel()):
                more = (also or {}).get(name, ())
                found = tensors(case, name, a, b, c, pooled, finite_only, more)
            results.append(replace(found, name=name))
        elif a != b and not (a != a and b != b):
            results.append(Comparison(f"{name}: expected {b!r}, came {a!r}", structural=True))
    return results


def acquitted(got: Any, eager: Any) -> bool:
    """Whether outputs are so near eager's that they pass whatever float64 says: by the triangle
    inequality, where no element is further from eager's than the floor of its row. Kinds of values
    must be eager's. False says nothing."""
    if _skeleton(got) != _skeleton(eager):
        return False
    for (_, a), (_, b) in zip(leaves(got), leaves(eager), strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and not (a != a and b != b):
                return False
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        a = a.to(b.device)
        if a.is_complex():
            a, b = (torch.view_as_real(t.resolve_conj()) for t in (a, b))
        with threads.few(b.numel()):
            if not (torch.equal(a, b) or (b.is_floating_point() and _near(a, b))):
                return False
    return True


def _near(got: torch.Tensor, eager: torch.Tensor) -> bool:
    """Within two units in the last place of the row's largest value; of rows that may hold a
    mask's constants, of the element."""
    if not (all_finite(got) and all_finite(eager)) or not eager.dim():
        return False
    width = eager.shape[-1]
    rows, apart = eager.reshape(-1, width), (got - eager).abs_().reshape(-1, width)
    low, high = (float(end) for end in torch.aminmax(eager))
    scale = rows.abs() if max(-low, high) >= fills.LEAST else rows.abs().amax(dim=1, keepdim=True)
    normal = _normal(eager.dtype)
    if bool(((got == 0) & (eager.abs() > normal)).any()):
        return False  # a value that is lost altogether: the whole rule says whether it may be
    # a little less: what is computed here is rounded, too
    return bool((apart <= 1.9 * torch.finfo(eager.dtype).eps * scale).all())


def tensors(
    case: str,
    name: str,
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    spread: tuple[float, float] | None = None,
    finite_only: bool = False,
    also: Sequence[torch.Tensor] = (),
) -> Comparison:
    """Compare one tensor; see `compare`.

    also: outputs for inputs moved by `MOVED` units in the last place. What one unit does to a row
    counts as eager's error there, if it is more.
    """
    if got.shape != eager.shape or got.dtype != eager.dtype:
        reason = (
            f"{name}: expected {eager.dtype} {list(eager.shape)}, "
            f"came {got.dtype} {list(got.shape)}"
        )
        return Comparison(reason, structural=True)
    if got.is_complex():
        a, b, c, *more = (torch.view_as_real(t.resolve_conj()) for t in (got, eager, exact, *also))
        return tensors(case, name, a, b, c, spread, finite_only, more)
    got, exact = got.to(eager.device), exact.to(eager.device)
    if not got.is_floating_point():
        return _exactly(case, name, got, eager, exact)
    if got.numel() == 0:
        return Comparison()
    bad = _masks(got, eager, exact, finite_only)
    if bad is not None:
        reason = "NaN or infinity where eager has none, or the reverse"
        return at(name, reason, bad, got, eager, exact)
    lost = _lost(got, eager, exact)
    if lost is not None:
        reason = "zero where eager and float64 agree on a normal number"
        return at(name, reason, lost, got, eager, exact)
    got, eager, exact, also = fills.removed(got, eager, exact, also)
    unit = units(exact)
    if unit is None:
        return measured(case, name, got, eager, exact, spread, also)
    # Each sample by a scale of its own, relative errors pooled.
    usual = float(unit.median())
    spread = None if spread is None else (spread[0] / usual, spread[1] / usual)
    a, b, c, *more = [t.double() / unit for t in (got, eager, exact, *also)]
    result = measured(case, name, a, b, c, spread, more, got.dtype)
    if result.worst is None:
        return result
    flat = 0
    for size, index in zip(got.shape, result.worst.index, strict=True):
        flat = flat * size + index
    own = float(unit.expand(got.shape).reshape(-1)[flat])
    x, y, z = (float(t.reshape(-1)[flat]) for t in (got, eager, exact))
    worst = Worst(name, result.worst.index, x, y, z, result.worst.bar * own)
    return replace(result, worst=worst)


def _lost(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> torch.Tensor | None:
    """Where a value is zero that eager and float64 agree on, a normal number: a tail cut off, a
    product that ran out of range. A row's largest value says nothing of those."""
    if int(torch.count_nonzero(got)) == got.numel():
        return None
    normal = _normal(got.dtype)
    truth = exact.double()
    sure = (eager.double() - truth).abs() <= _AGREED * truth.abs()
    wrong = (got == 0) & sure & (truth.abs() > normal)
    return wrong if bool(wrong.any()) else None


def _normal(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).tiny) * (4.0 if dtype == torch.float16 else _NORMAL)


def units(exact: torch.Tensor) -> torch.Tensor | None:
    """Of outputs with short rows, each sample's own scale, never below the usual one; None where
    rows are long, or where no sample stands out. Beside one of 1e8 the others would have no bar."""
    if not exact.dim() or exact.shape[-1] >= FEW or exact.shape[0] < 2:
        return None
    flat = exact.double().reshape(exact.shape[0], -1)
    scale = torch.where(torch.isfinite(flat), flat, 0.0).abs().amax(dim=1)
    some = scale[scale > 0]
    if not some.numel():
        return None
    usual = some.median()
    if float(some.max()) <= _STANDS_OUT * float(usual):
        return None
    return torch.maximum(scale, usual).reshape(-1, *[1] * (exact.dim() - 1))


def _exactly(
    case: str, name: str, got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
) -> Comparison:
    """Integers and booleans: eager's value, or the float64 run's where the two differ (a tie)."""
    wrong = (got != eager) & (got != exact.to(got.dtype))
    if not bool(wrong.any()):
        return Comparison()
    count = int(wrong.sum())
    return at(name, f"{count} of {got.numel()} exact values differ", wrong, got, eager, exact)


def _masks(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, finite_only: bool
) -> torch.Tensor | None:
    """Where the kind of value (finite, NaN, +inf, -inf) is wrong; None: nowhere."""
    if all_finite(got) and all_finite(eager):
        return None
    # Eager may overflow, or make NaN, on the way to a value that float64 has: both are right.
    theirs, truth = _kind(eager), _kind(exact.to(got.dtype))
    wrong = (_kind(got) != theirs) & (_kind(got) != truth)
    # 0/0 that rounding has made 1e-8/0 or 1e-8/1e-8 of: it may make anything of it.
    lucky = (theirs != truth) & ((truth == _NAN) | ((theirs != 0) & (truth != 0)))
    wrong = wrong & ~lucky
    if finite_only:
        wrong = wrong & torch.isfinite(eager)
    return wrong if bool(wrong.any()) else None


_NAN = 3


def _kind(t: torch.Tensor) -> torch.Tensor:
    inf = torch.isinf(t).to(torch.int8) * torch.sign(torch.nan_to_num(t)).to(torch.int8)
    return inf + _NAN * torch.isnan(t).to(torch.int8)


def settle(
    got: torch.Tensor, exact: torch.Tensor, wrong: torch.Tensor, shaken: list[torch.Tensor]
) -> torch.Tensor:
    """``got`` with the exact value put in at those ``wrong`` elements that are proven ties.

    ``shaken``: float64 outputs for inputs and weights moved by a few units in the last place. An
    element is a tie if it jumps among them, and the candidate's value is one of those it takes.
    """
    values = torch.stack([t.to(exact) for t in (exact, *shaken)])
    got, wrong = got.to(exact.device), wrong.to(exact.device)
    if not got.is_floating_point():
        tie = (values == got.to(exact.dtype)).any(dim=0)
    else:
        same_kind = _kind(values) == _kind(got)
        near = torch.nan_to_num(values)
        spread = near.amax(dim=0) - near.amin(dim=0)
        close = (near - torch.nan_to_num(got.double())).abs() <= 0.01 * spread
        tie = (same_kind & (close | ~torch.isfinite(values))).any(dim=0)
    return torch.where(wrong & tie, exact.to(got.dtype), got)


def _skeleton(tree: Any) -> str:
    if isinstance(tree, torch.Tensor):
        return "tensor"
    if isinstance(tree, list | tuple):
        inner = ", ".join(_skeleton(t) for t in tree)
        return f"[{inner}]" if isinstance(tree, list) else f"({inner})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k}: {_skeleton(v)}" for k, v in tree.items()) + "}"
    return type(tree).__name__
