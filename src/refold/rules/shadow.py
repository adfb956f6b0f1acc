"""The shadow proof: what a rule does to rounding, range and NaN in float32.

The proof in float64 (prove.py) shows that a rule's sides are equal. It does not show that a
computer with 24 bits may swap them: `sum(x + b)` and `sum(x) + sum(b)` are equal, and where b is
about -x the second one keeps no digit of the result. The shadow proof runs both sides in float32 on
data chosen to be difficult:

- offset: values of deviation one about plus or minus 1e4, so that terms nearly cancel;
- scaled: each variable times 2**80, 2**-80 or one;
- zeros: elements that are zero, or whole variables;
- masked: inputs with elements, rows or columns of -inf, but for factors. Not of rules with a
  product: what a product makes of -inf depends on the order of its sums.

The left side is computed as PyTorch computes it. Of the right side, what follows from parameters
alone is computed in float64 and rounded once, as folded parameters are. The bar: the error of the
right side is at most FACTOR times that of the left side plus ULPS units in the last place of the
largest value; it is finite wherever the left side is; it is NaN wherever the left side is NaN in
float32 and in float64 alike.

A rule that fails carries a mark (rule.py). Its condition is proved as well: wherever the condition
holds and folded parameters fit float32, the rule must meet the bar.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from refold.ir import Node, leaf, make
from refold.ir.evaluate import concrete, run
from refold.ir.graph import topological
from refold.ir.op import Kind
from refold.ir.ops import OPS
from refold.ir.shapes import RANK
from refold.rules.match import allowed, arguments, is_safe
from refold.rules.prove import Instance, ProofError, as_terms, draw_instance
from refold.rules.rule import Rule
from refold.rules.term import App, Term, Var

F32, F64 = torch.float32, torch.float64
FACTOR = 8.0  # how many times the left side's error the right side may have
# ... of terms that carry the errors of products: taken together first they would average out
FACTOR_OF_PRODUCTS = 64.0
ULPS = 4.0  # and how many units in the last place of the largest value beside
ULP = 2.0**-23  # of float32, relative
OFFSET = 1e4  # deviations
SCALE = 2.0**80
SIZES = (1, 2, 5, 12)
DRAWS, AGAIN = 3, 12  # sets of data for each instance and case, and where the bar is not met
SMALLEST = 2.0**-126  # the smallest normal number: below it float32 loses digits
NEGLIGIBLE = 2.0**-100  # an element that is smaller than the largest by more may lose its digits
CASES = ("plain", "offset", "scaled", "zeros", "masked")
ORDINARY = 2.0**45  # parameters themselves are taken to be between its reciprocal and this
DEEP = 3  # of the products that stand for values that are products
Data = Mapping[Node, torch.Tensor]


def fits_float32(exact: torch.Tensor) -> bool:
    """Can a folded parameter, computed in float64, be rounded to float32 without leaving its range?

    Emitted files ask the same of the folded parameters of a rule that is marked `range`.
    """
    known = exact[exact.isfinite()].abs()
    if not known.numel():
        return True
    largest = known.max().item()
    lost = (known > 0) & (known < SMALLEST) & (known > NEGLIGIBLE * largest)
    return largest <= torch.finfo(F32).max and not bool(lost.any())


@dataclass(frozen=True)
class Loss:
    """An instance on which the right side is worse in float32.

    what: "error", "infinity" or "nan". ratio: of the errors, where `what` is "error".
    """

    rule: str
    case: str
    what: str
    ratio: float
    shapes: Mapping[str, object]

    def __str__(self) -> str:
        size = f" ({self.ratio:.3g} times)" if self.what == "error" else ""
        return f"{self.rule}: {self.what}{size} in the case {self.case!r} at {self.shapes}"


def losses(
    rule: Rule, *, marked: bool, seed: int = 0, instances: int = 6, tries: int = 15000
) -> Iterator[Loss]:
    """What the right side of `rule` loses in float32, over `instances` random instances.

    marked: only of instances where the rule's mark lets the engine use it. Raises ProofError where
    fewer can be drawn in `tries` attempts.
    """
    draw = random.Random(f"{rule.name} {seed}")
    cases = CASES[:-1] if any(map(_has_product, rule.patterns)) else CASES
    compared = 0
    for _ in range(tries):
        if compared >= instances:
            return
        # what becomes safe may satisfy the guard only then
        instance = draw_instance(rule, draw, SIZES, guarded=not marked)
        if instance is not None and marked:
            instance = _made_safe(rule, instance, draw)
        if instance is None or (marked and not allowed(rule, instance.found)):
            continue
        if marked and not is_safe(rule, instance.found):
            continue
        compared += 1
        sides = _sides(rule, instance)
        for case in cases:
            yield from _losses(rule, instance, sides, case, draw, marked)
    raise ProofError(
        f"{rule.name}: expected {instances} instances, {compared} of {tries} draws satisfy its left"
        " side, guard and conditions"
    )


def _has_product(term: Term) -> bool:
    if not isinstance(term, App):
        return False
    return OPS[term.op].is_contraction or any(map(_has_product, term.args))


def _factors(term: Term, inside: bool = False) -> set[str]:
    """The variables that are multiplied or divided."""
    if isinstance(term, Var):
        return {term.name} if inside else set()
    if not isinstance(term, App):
        return set()
    row = OPS[term.op]
    inside = row.is_arithmetic and row.multiplies and len(set(term.args)) > 1
    return {name for a in term.args for name in _factors(a, inside)}


def _made_safe(rule: Rule, instance: Instance, draw: random.Random) -> Instance:
    """Some of the values that are inputs become products of that shape, or parameters."""
    found, data = dict(instance.found), dict(instance.data)
    for name, node in instance.found.items():
        if not isinstance(node, Node) or node.op != "input" or not node.is_float:
            continue
        if rule.mark == "range" and draw.random() < 0.4:
            found[name] = leaf("param", node.shape, F64, name=f"parameter {name}")
            data[found[name]] = data.pop(node)
        elif rule.mark != "unsafe" and draw.random() < 0.7:
            *rows, width = node.shape
            x = leaf("input", (*rows, DEEP), F64, name=f"map {name}", index=0)
            w = leaf("param", (width, DEEP), F64, name=f"weight {name}")
            found[name] = make("linear", x, w)
            del data[node]
            for made in (x, w):
                data[made] = torch.empty([concrete(d, {}) for d in made.shape], dtype=F64)
    return Instance(found, data)


@dataclass(frozen=True)
class _Side:
    """One side of a rule. order: what its roots need, in turn. fixed: whether it follows from
    parameters alone. folds: what does so, and is read by others or is a root."""

    roots: list[Node]
    order: list[Node]
    fixed: Mapping[Node, bool]
    folds: list[Node]

    @staticmethod
    def of(roots: list[Node]) -> _Side:
        order = topological(roots)
        fixed: dict[Node, bool] = {}
        for n in order:
            fixed[n] = _is_fixed(n, fixed)
        read = {i for n in order if not fixed[n] for i in n.inputs} | set(roots)
        folds = [n for n in order if n in read and fixed[n] and n.op != "scalar" and n.is_float]
        return _Side(roots, order, fixed, folds)


def _sides(rule: Rule, instance: Instance) -> tuple[_Side, _Side]:
    bound = arguments(rule, instance.found)
    left, right = (as_terms(side(**bound)) for side in (rule.lhs, rule.rhs))
    return _Side.of([t.node for t in left]), _Side.of([t.node for t in right])


def _losses(
    rule: Rule,
    instance: Instance,
    sides: tuple[_Side, _Side],
    case: str,
    draw: random.Random,
    marked: bool,
) -> Iterator[Loss]:
    left, right = sides
    pairs = [(a, b) for a, b in zip(left.roots, right.roots, strict=True) if a.is_float]
    worst = [[0.0, 0.0] for _ in pairs]  # relative errors of the two sides
    shapes = {k: v.shape if isinstance(v, Node) else v for k, v in instance.found.items()}
    factor = FACTOR_OF_PRODUCTS if marked and rule.mark == "cancels" else FACTOR
    factors = {name for p in rule.patterns for name in _factors(p)}
    whole = {name for n in factors for name in _inputs(instance.found[n])}
    for drawn in range(AGAIN):
        if drawn >= DRAWS and not any(_fails(e, factor) for e in worst):
            return  # the left side may have been lucky in the first draws
        data = _data(instance, case, whole, draw)
        truth, other = (run(s.roots, data, {}, F64, s.order) for s in sides)
        if marked and not all(_is_ordinary(n, other[n]) for n in right.folds):
            continue  # an emitted file takes the original forward
        eager, made = _run(left, data, False), _run(right, data, True)
        for errors, (a, b) in zip(worst, pairs, strict=True):
            what, found = _compared(truth[a], other[b], eager[a].double(), made[b].double())
            for lost in what:
                yield Loss(rule.name, case, lost, 0.0, shapes)
            errors[:] = map(max, errors, found)
    for errors in (e for e in worst if _fails(e, factor)):
        yield Loss(rule.name, case, "error", errors[1] / max(errors[0], ULP / 2), shapes)


def _compared(*values: torch.Tensor) -> tuple[list[str], tuple[float, float]]:
    """What the right side lost beside digits, and the relative errors of the left and the right.

    values: those of both sides in float64, and of both in float32. The arrays have a few elements
    each: numpy takes a third of PyTorch's time for them.
    """
    t, u, x, y = (v.numpy() for v in values)
    known, whole = np.isfinite(x) & np.isfinite(t), np.isfinite(y)
    lost = []
    if not known.all() and (np.isnan(x) & np.isnan(t) & ~np.isnan(y)).any():
        lost.append("nan")
    if not whole.all():
        if (known & ~whole).any():
            lost.append("infinity")
        known &= whole
    if not known.all():
        t, u, x, y = t[known], u[known], x[known], y[known]
    ends = u if np.isfinite(u).all() else u[np.isfinite(u)]
    scale = max((float(np.abs(v).max()) for v in (t, ends) if v.size), default=0.0)
    if scale < SMALLEST:
        return lost, (0.0, 0.0)
    # either side's float64 may be the better one
    errors = (float(np.fmin(np.abs(v - t), np.abs(v - u)).max()) for v in (x, y))
    one, other = (max(0.0, e - SMALLEST) / scale for e in errors)
    return lost, (one, other)


def _fails(errors: list[float], factor: float) -> bool:
    return errors[1] > factor * errors[0] + ULPS * ULP


def _is_ordinary(node: Node, value: torch.Tensor) -> bool:
    """Does a folded parameter fit float32? One that is a parameter as it is has to be ordinary: it
    may meet any input."""
    if any(n.kind is not Kind.MOVE and n.inputs for n in topological([node])):
        return fits_float32(value)
    largest = _largest(value)
    return largest == 0 or 1 / ORDINARY <= largest <= ORDINARY


def _largest(*values: torch.Tensor) -> float:
    known = [v[v.isfinite()].abs() for v in values]
    return max((v.max().item() for v in known if v.numel()), default=0.0)


def _is_fixed(node: Node, known: Mapping[Node, bool]) -> bool:
    if not node.inputs:
        return node.op in ("param", "scalar")
    return all(known[i] for i in node.inputs)


def _inputs(value: Any) -> set[str]:
    """The names of a value that is an input, or of the inputs of one that became a product."""
    if not isinstance(value, Node) or value.op not in ("input", "linear"):
        return set()
    return {str(n["name"]) for n in topological([value]) if n.op == "input"}


def _data(
    instance: Instance, case: str, whole: Collection[str], draw: random.Random
) -> dict[Node, torch.Tensor]:
    """New values of the kind `case` for the leaves.

    whole: names of those that are not masked.
    """
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    found = {}
    for node, old in instance.data.items():
        if not node.is_float:
            found[node] = old
            continue
        value = torch.randn(old.shape, generator=generator)
        if case == "offset":
            value = value + OFFSET * draw.choice((-1, -1, 0, 1, 1))
        elif case == "scaled":
            value = value * SCALE ** draw.choice((-1, 0, 1))
        elif case == "zeros":
            share = draw.choice((0.4, 1.0))
            value = value.masked_fill(torch.rand(old.shape, generator=generator) < share, 0.0)
        elif case == "masked" and node.op == "input" and node["name"] not in whole:
            value = value.masked_fill(_mask(old.shape, draw, generator), -torch.inf)
        found[node] = value.double()
    if case == "offset":
        _cancel(instance, found, draw)
    return found


def _cancel(instance: Instance, data: dict[Node, torch.Tensor], draw: random.Random) -> None:
    """Half of the time, what can be added to a product nearly cancels it."""
    products = [v for v in instance.found.values() if isinstance(v, Node) and v.op == "linear"]
    for product in products:
        value = run([product], data, {}, F64)[product]
        for node, old in data.items():
            sizes = zip(old.shape, value.shape, strict=True)
            alone = node.is_float and node not in product.inputs
            if alone and all(a in (1, b) for a, b in sizes) and draw.random() < 0.5:
                over = tuple(i for i, d in enumerate(old.shape) if d == 1)
                middle = value.mean(over, keepdim=True) if over else value
                data[node] = (-middle + old / OFFSET).float().double()


def _mask(shape: torch.Size, draw: random.Random, generator: torch.Generator) -> torch.Tensor:
    """Which elements are masked: some, or all along an axis."""
    along = draw.choice((None, -1, -2, -3))
    sizes = [1 if a - len(shape) == along else d for a, d in enumerate(shape)]
    return (torch.rand(sizes, generator=generator) < 0.3).expand(shape)


def _run(side: _Side, leaves: Data, folded: bool) -> dict[Node, torch.Tensor]:
    """The values of the roots in float32. folded: what follows from parameters alone is computed in
    float64 and rounded once."""
    done: dict[Node, torch.Tensor] = {}
    for node in side.order:
        beforehand = folded and side.fixed[node]
        kind = (F64 if beforehand else F32) if node.is_float else node.dtype
        inner = [done[i] for i in node.inputs]
        if not beforehand:
            inner = [v.to(F32) if v.dtype == F64 else v for v in inner]
        if node.op == "scalar":
            value = torch.full((1,) * RANK, concrete(node["value"], {}), dtype=kind)
        elif node in leaves:
            value = leaves[node].to(kind).reshape([concrete(d, {}) for d in node.shape])
        else:
            attrs = {k: concrete(v, {}) for k, v in node.attrs}
            if node.op == "cast":
                attrs["dtype"] = kind
            value = OPS[node.op].run(*inner, **attrs)
        done[node] = value
    return {n: done[n].to(F32) if n.is_float else done[n] for n in side.roots}
