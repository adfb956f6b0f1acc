"""One rule for every comparison: the candidate's error against float64, beside eager's own.

Accepted where, per output and per row, ``rmse <= k * rmse_eager + floor`` and
``max <= k_max * max_eager + floor``. The floor is two units in the last place at the row's scale.
A row's own eager error can be small by luck, so its bar is never below ``k`` times the relative
error that eager shows over all rows; where that is above a sixteenth (a softmax behind statistics
of 16-bit values far from zero: few rows hold nearly all of the error), never below ``k`` times that
of eager's worst row, which is an extreme of as many draws. A row of zeros has no scale: of such
rows, and of those with little beside zeros, the bars are never below ``k`` times eager's worst such
row, and ``k_max`` times the largest error that eager shows between zero and not, at the border of a
relu.
The largest of all the candidate's errors is an extreme of as many draws as eager's largest, so it
is measured by that one; and as other orders of summation spread their error less evenly over the
columns than eager's, ``k_max`` is twice ``k`` in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from refold.judge.draws.trees import all_finite
from refold.judge.rule import beside, cutoff, fills, threads
from refold.judge.rule.beside import Exact, chunk, piece, slices
from refold.judge.rule.rows import FEW, Comparison, Sheet, at, measured, pieces
from refold.judge.wire.meter import size_of, spanned

_NORMAL = 256.0  # times the least normal number: what a value is that no rounding makes zero
_AGREED = 2.0**-10  # of a value, within which eager and float64 agree on it
_SIZES = 4096  # powers of two, from 2^-2048 on
_STANDS_OUT = 64.0  # times the median of all samples' scales


def leaves(tree: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """Named leaves of an output tree; a Python float as the tensor that it was read from, a complex
    number too."""
    if isinstance(tree, list | tuple):
        for i, part in enumerate(tree):
            yield from leaves(part, f"{name}[{i}]")
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from leaves(part, f"{name}[{key!r}]")
    elif isinstance(tree, float):
        yield name, torch.tensor(tree, dtype=torch.float32)
    elif isinstance(tree, complex):
        yield name, torch.tensor(tree, dtype=torch.complex64)
    else:
        yield name, tree


def unread(like: Any, leaf: Any) -> Any:
    """A leaf of `leaves` as it stood in the tree, where ``like`` stands."""
    return type(like)(leaf.item()) if isinstance(like, float | complex) else leaf


@spanned("comparison", lambda _, got, *__, **___: size_of(got))
def compare(
    case: str,
    got: Any,
    eager: Any,
    exact: Any,
    spread: dict[str, tuple[float, float]] | None = None,
    finite_only: bool = False,
    also: dict[str, list[torch.Tensor]] | None = None,
    slopes: str | None = None,
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
        slopes: what the names of gradients of inputs have in them, where there are such; see
            `rows.measured`.
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
                by = slopes is not None and slopes in name
                found = tensors(case, name, a, b, c, pooled, finite_only, more, by)
            results.append(replace(found, name=name))
        elif a != b and not (a != a and b != b):
            results.append(Comparison(f"{name}: expected {b!r}, came {a!r}", structural=True))
    return results


@spanned("acquittal", lambda got, _: size_of(got))
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
    mask's constants, of the element. NaN and infinity have to stand where eager's stand."""
    if cutoff.may_be(got, eager):
        return False
    if not (all_finite(got) and all_finite(eager)):
        if not torch.equal(_kind(got), _kind(eager)):
            return False
        got, eager = (torch.nan_to_num(t, 0.0, 0.0, 0.0) for t in (got, eager))
        if torch.equal(got, eager):
            return True
    if not eager.dim():
        return False
    width = eager.shape[-1]
    low, high = (float(end) for end in torch.aminmax(eager))
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    masked = max(-low, high) >= fills.LEAST
    normal, eps = _normal(eager.dtype), torch.finfo(eager.dtype).eps
    step = max(1, chunk(eager.device) // width) * width
    for i in range(0, eager.numel(), step):
        a, b = (piece(t, slice(i, min(i + step, t.numel()))) for t in (got, eager))
        if bool((_gone(a, b) & (b.abs() > normal)).any()):
            return False  # a value that is lost altogether: the whole rule says whether it may be
        rows, apart = b.reshape(-1, width), (a - b).abs_().reshape(-1, width)
        scale = rows.abs() if masked else rows.abs().amax(dim=1, keepdim=True)
        # a little less: what is computed here is rounded, too
        if not bool((apart <= 1.9 * eps * scale).all()):
            return False
    return True


def tensors(
    case: str,
    name: str,
    got: torch.Tensor,
    eager: torch.Tensor,
    exact: Exact,
    spread: tuple[float, float] | None = None,
    finite_only: bool = False,
    also: Iterable[torch.Tensor] = (),
    slopes: bool = False,
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
        real = [torch.view_as_real(t.resolve_conj()) for t in also]
        three = (got, eager, beside.whole(exact))
        a, b, c = (torch.view_as_real(t.resolve_conj()) for t in three)
        return tensors(case, name, a, b, c, spread, finite_only, real, slopes)
    got = got.to(eager.device)
    if isinstance(exact, torch.Tensor):
        exact = exact.to(eager.device)
    if not got.is_floating_point():
        return _exactly(case, name, got, eager, beside.whole(exact))
    if got.numel() == 0:
        return Comparison()
    bad = _masks(got, eager, exact, finite_only)
    if bad is not None:
        reason = "NaN or infinity where eager has none, or the reverse"
        return at(name, reason, bad, got, eager, exact)
    lost = _lost(got, eager, exact, also)
    if lost is not None:
        return at(name, _NEXT_TO_ZERO, lost, got, eager, exact)
    if cutoff.found(got, eager, exact):
        return at(name, cutoff.REASON, cutoff.first(got, eager), got, eager, exact)
    taken = fills.found(eager, exact)
    unit = units(exact, eager, taken)
    if unit is not None and spread is not None:
        # Each sample by a scale of its own, relative errors pooled.
        usual = float(unit.median())
        spread = (spread[0] / usual, spread[1] / usual)
    return measured(case, name, Sheet(got, eager, exact, taken, unit), spread, also, slopes)


def _lost(
    got: torch.Tensor, eager: torch.Tensor, exact: Exact, also: Iterable[torch.Tensor]
) -> torch.Tensor | None:
    """Where a value is zero, or next to it, that eager and float64 agree on, a normal number: a
    tail cut off, a product that ran out of range. A row's largest value says nothing of those. A
    result of float64 always agrees with itself: it counts where moved inputs leave it as it is."""
    if not any(bool(_gone(a, b).any()) for a, b in pieces(got, eager)):
        return None
    normal, found = _normal(got.dtype), []
    for a, b, c in pieces(got, eager, exact):
        truth = c.double()
        found.append(_gone(a, b) & _agree(b, truth) & (truth.abs() > normal))
    wrong = torch.cat(found)
    if got.dtype == torch.float64:
        runs = 0
        for moved in also:
            runs += 1
            for at_, (other, truth) in zip(
                slices(wrong.numel(), got.device), pieces(moved.to(got.device), exact), strict=True
            ):
                wrong[at_] &= _agree(other, truth)
        if not runs:
            return None
    if bool(wrong.any()):
        wrong &= _known(eager, exact)[_exponents(exact)]
    wrong = wrong.reshape(got.shape)
    return wrong if bool(wrong.any()) else None


def _known(eager: torch.Tensor, exact: Exact) -> torch.Tensor:
    """By exponent of the truth: whether eager agrees on at least half of the values of that size.
    Where sums cancel it knows the smallest by chance alone, and zero is as good an answer."""
    agree = torch.cat([_agree(a, b.double()) for a, b in pieces(eager, exact)])
    of = _exponents(exact)
    return 2 * torch.bincount(of[agree], minlength=_SIZES) >= torch.bincount(of, minlength=_SIZES)


def _exponents(exact: Exact) -> torch.Tensor:
    """Powers of two of all values, from 0 on."""
    each = [torch.frexp(c.double()).exponent for (c,) in pieces(exact)]
    return (torch.cat(each).long() + _SIZES // 2).clamp(0, _SIZES - 1)


def _agree(value: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return (value.double() - truth).abs() <= _AGREED * truth.abs()


def _gone(got: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """Where a value is zero, or next to it, that eager's is not."""
    return (got.abs() <= _AGREED * eager.abs()) & (eager != 0)


def _normal(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).tiny) * (4.0 if dtype == torch.float16 else _NORMAL)


def units(
    exact: Exact, eager: torch.Tensor | None = None, taken: fills.Fills | None = None
) -> torch.Tensor | None:
    """Of outputs with short rows, each sample's own scale, never below the usual one; None where
    rows are long, or where no sample stands out. Beside one of 1e8 the others would have no bar.
    ``taken``: constants that set no scale, beside eager's values."""
    if not exact.dim() or exact.shape[-1] >= FEW or exact.shape[0] < 2 or not exact.numel():
        return None
    each = exact.numel() // exact.shape[0]
    scale = torch.zeros(exact.shape[0], dtype=torch.float64, device=exact.device)
    step = max(1, chunk(exact.device) // each)
    for i in range(0, exact.shape[0], step):
        last = min(i + step, exact.shape[0])
        for columns in slices(each, exact.device) if step == 1 else (slice(0, each * (last - i)),):
            part = slice(i * each + columns.start, i * each + columns.stop)
            truth = piece(exact, part).double()
            if eager is not None and taken is not None:
                own = piece(eager, part)
                truth = taken.removed(own, own, truth)[2]
            truth = torch.where(torch.isfinite(truth), truth, 0.0).abs()
            most = truth.reshape(last - i, -1).amax(dim=1)
            scale[i:last] = torch.maximum(scale[i:last], most)
    some = scale[scale > 0]
    if not some.numel():
        return None
    usual = some.median()
    if float(some.max()) <= _STANDS_OUT * float(usual):
        return None
    return torch.maximum(scale, usual)


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
    got: torch.Tensor, eager: torch.Tensor, exact: Exact, finite_only: bool
) -> torch.Tensor | None:
    """Where the kind of value (finite, NaN, +inf, -inf) is wrong; None: nowhere."""
    if all_finite(got) and all_finite(eager):
        return None
    found = []
    for a, b, c in pieces(got, eager, exact):
        # Eager may overflow, or make NaN, on the way to a value that float64 has: both are right.
        mine, theirs, truth = _kind(a), _kind(b), _kind(c.to(got.dtype))
        wrong = (mine != theirs) & (mine != truth)
        # 0/0 that rounding has made 1e-8/0 or 1e-8/1e-8 of: it may make anything of it.
        lucky = (theirs != truth) & ((truth == _NAN) | ((theirs != 0) & (truth != 0)))
        wrong = wrong & ~lucky
        found.append(wrong & torch.isfinite(b) if finite_only else wrong)
    whole = torch.cat(found).reshape(got.shape)
    return whole if bool(whole.any()) else None


_NAN, _NEXT_TO_ZERO = 3, "zero, or next to it, where eager and float64 agree on a normal number"


def _kind(t: torch.Tensor) -> torch.Tensor:
    inf = torch.isinf(t).to(torch.int8) * torch.sign(torch.nan_to_num(t)).to(torch.int8)
    return inf + _NAN * torch.isnan(t).to(torch.int8)


def resolve(
    got: torch.Tensor, exact: Exact, wrong: torch.Tensor, perturbed: Sequence[torch.Tensor]
) -> torch.Tensor:
    """``got`` with the exact value put in at those ``wrong`` elements that are proven ties.

    ``perturbed``: float64 outputs for inputs and weights moved by a few units in the last place. An
    element is a tie if it jumps among them, and the candidate's value is one of those it takes.
    """
    where = wrong.reshape(-1).nonzero().reshape(-1)
    return resolve_at(got, exact, where, [beside.gathered(t, where) for t in perturbed])


def resolve_at(
    got: torch.Tensor, exact: Exact, where: torch.Tensor, perturbed: Sequence[torch.Tensor]
) -> torch.Tensor:
    """As `resolve`, of the ``perturbed`` outputs the values at these flat positions alone."""
    if got.is_complex():  # positions are of real and imaginary parts, which are compared
        parts = torch.view_as_real(got.detach().resolve_conj())
        mended = resolve_at(parts, beside.parts(exact), where, perturbed)
        return torch.view_as_complex(mended)
    truth = beside.gathered(exact, where)
    values = torch.stack([t.to(truth) for t in (truth, *perturbed)])
    own = beside.gathered(got, where).to(truth.device)
    if not got.is_floating_point():
        tie = (values == own.to(truth.dtype)).any(dim=0)
    else:
        same_kind = _kind(values) == _kind(own)
        near = torch.nan_to_num(values)
        spread = near.amax(dim=0) - near.amin(dim=0)
        close = (near - torch.nan_to_num(own.double())).abs() <= 0.01 * spread
        tie = (same_kind & (close | ~torch.isfinite(values))).any(dim=0)
    mended = got.detach().clone(memory_format=torch.contiguous_format)
    put = torch.where(tie, truth.to(got.dtype), own).to(got.device)
    mended.view(-1)[where.to(got.device)] = put
    return mended


def _skeleton(tree: Any) -> str:
    if isinstance(tree, torch.Tensor):
        return "tensor"
    if isinstance(tree, list | tuple):
        inner = ", ".join(_skeleton(t) for t in tree)
        return f"[{inner}]" if isinstance(tree, list) else f"({inner})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{k}: {_skeleton(v)}" for k, v in tree.items()) + "}"
    return type(tree).__name__


def filled(grads: Any, other: Any) -> dict[str, Any]:
    """Gradients by name; one that is missing is zero where the other side has one."""
    if not isinstance(grads, dict) or not isinstance(other, dict):
        return {"all": grads}
    found = {}
    for name in sorted({*grads, *other}):
        mine, theirs = grads.get(name), other.get(name)
        if mine is None and isinstance(theirs, torch.Tensor):
            mine = torch.zeros_like(theirs)
        found[name] = mine
    return found


def rebuilt(tree: Any, leaves: dict[str, Any], name: str = "output") -> Any:
    """A tree with other leaves, by their names."""
    if isinstance(tree, list | tuple):
        return type(tree)([rebuilt(v, leaves, f"{name}[{i}]") for i, v in enumerate(tree)])
    if isinstance(tree, dict):
        return {k: rebuilt(v, leaves, f"{name}[{k!r}]") for k, v in tree.items()}
    return unread(tree, leaves[name])
