"""Every fact that a row of the op table states, against PyTorch; every row is a case.

Where a row states nothing, the tests show where they can that nothing is left unsaid.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import refold
from refold.capture.registry import HANDLERS
from refold.ir import OPS, Kind, Op, leaf, make
from refold.ir.evaluate import run
from refold.ir.facts import bounds
from refold.ir.node import as_scalar
from refold.ir.op import Contraction, Reduction, Rounding
from refold.ir.shapes import RANK

from .samples import COMPUTED, F64, POINTWISE, SAMPLES, Sample, samples

pytestmark = pytest.mark.filterwarnings("ignore:var\\(\\). degrees of freedom")
INF = math.inf
UNARY = [s for s in SAMPLES if s.op.kind is Kind.POINTWISE and s.op.arity == 1]
NUMERIC = [s for s in UNARY if s.op.name != "cast"]


def names(op: Op) -> str:
    return op.name


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_shape_and_dtype_are_what_torch_gives(sample: Sample) -> None:
    made = sample.run(*sample.draw())
    assert tuple(made.shape) == sample.node.shape
    assert made.dtype == sample.node.dtype


PAIRS = [op for op in POINTWISE if op.arity == 2]


@pytest.mark.parametrize("op", PAIRS, ids=names)
def test_operands_change_places(op: Op) -> None:
    (sample,) = samples(op)
    a, b = sample.draw()
    b.view(-1)[::2] = a.view(-1)[::2]
    assert torch.equal(op.run(a, b), op.run(b, a)) == op.commutative


def _linear(sample: Sample, group: tuple[int, ...]) -> bool:
    """Whether an op keeps sums and multiples of the operands in a group."""
    first, second = sample.draw(0), sample.draw(1)
    group = group or tuple(range(len(first)))
    second = [b if i in group else a for i, (a, b) in enumerate(zip(first, second, strict=True))]
    both = [
        2.5 * a - 0.5 * b if i in group else a
        for i, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    expected = 2.5 * sample.run(*first).double() - 0.5 * sample.run(*second).double()
    return torch.allclose(sample.run(*both).double(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_linear_in_what_it_says(op: Op) -> None:
    for sample in samples(op):
        for group in op.linear_in:
            assert _linear(sample, group), f"{sample} in {group}"
        for i, operand in enumerate(sample.operands):
            if operand.is_float and (i,) not in op.linear_in and not op.is_comparison:
                # a cast rounds, which float64 does not show
                assert not _linear(sample, (i,)) or op.name == "cast", f"{sample} in {i}"


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_factors_are_carried_into_the_operands(op: Op) -> None:
    carried = [g for g in op.linear_in if op.carries({"strides": (1, 1), "groups": 1}, g)]
    # the features of a transposed convolution lie in its weight group by group
    assert bool(carried) == (op.is_contraction and op.name != "conv_transpose")
    for sample in samples(op) if carried else ():
        for group in carried:
            found = op.carries(sample.attrs, group)
            assert found is not None
            assert _carries(sample, group, *found), f"{sample} in {group}"
            assert not _carries(sample, group, found[0], tuple(-1 for _ in group)) or group == (0,)


def _carries(sample: Sample, group: tuple[int, ...], along: int, into: tuple[int, ...]) -> bool:
    """Whether factors along an axis of the result are factors of operands along theirs."""
    given = sample.draw(0)
    whole = sample.run(*given).double()
    factors = torch.arange(1, whole.shape[along] + 1, dtype=F64)
    scaled = list(given)
    for i, axis in zip(group, into, strict=True):
        if given[i].shape[axis] != len(factors):
            return False
        scaled[i] = given[i] * _laid(factors, axis)
    return torch.allclose(sample.run(*scaled).double(), whole * _laid(factors, along))


def _laid(factors: torch.Tensor, axis: int) -> torch.Tensor:
    return factors.reshape([-1 if a == axis else 1 for a in range(-RANK, 0)])


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_operands_are_named_where_rules_need_their_sizes(op: Op) -> None:
    assert len(op.operands) == (op.arity if op.operands else 0)
    if op.is_contraction:
        assert op.operands


GRID = torch.cat([torch.linspace(-60, 60, 24001, dtype=F64), torch.linspace(-1, 1, 2001).double()])


@pytest.mark.parametrize("sample", NUMERIC, ids=str)
def test_monotone_as_it_says(sample: Sample) -> None:
    low, high = sample.op.domain
    x = GRID[(low < GRID) & (high > GRID)].sort().values
    made = sample.run(x.reshape(1, 1, 1, 1, -1)).flatten()
    last_digits = 1e-15 * made[1:].abs().clamp(min=1.0)  # are those of the machine's own functions
    steps = made.diff()
    never_falls = bool((steps >= -last_digits).all())
    never_rises = bool((steps <= last_digits).all())
    slope = sample.op.monotone(sample.attrs)
    assert never_falls if slope == 1 else never_rises if slope == -1 else True
    if slope == 0 and math.isinf(low):
        falls_unseen = sample.op.name == "softplus"  # by 2e-9 where it steps
        assert not (never_falls or never_rises) or falls_unseen, "it says nothing of being monotone"


@pytest.mark.parametrize("sample", NUMERIC, ids=str)
def test_jumps_where_it_says(sample: Sample) -> None:
    x = torch.tensor([v / 8 for v in range(-32, 33) if v], dtype=F64)
    below, above = (sample.run(v.reshape(1, 1, 1, 1, -1)) for v in (x - 1e-9, x + 1e-9))
    known = below.isfinite() & above.isfinite()
    assert known.any()
    step = (below - above)[known].abs().max().item()
    if sample.attrs.get("threshold") != -1.0:  # softplus, as nobody uses it
        assert (step > 0.5) == sample.op.jumps


@pytest.mark.parametrize("sample", [s for s in NUMERIC if not s.attrs], ids=str)
def test_a_second_time(sample: Sample) -> None:
    (x,) = sample.draw()
    once = sample.run(x)
    assert torch.equal(sample.run(once), once) == sample.op.idempotent


@pytest.mark.parametrize("op", [op for op in POINTWISE if op.is_comparison], ids=names)
def test_a_comparison_jumps(op: Op) -> None:
    assert op.jumps


# PyTorch takes them from a library of vectors, which on some processors errs in the last bit; that
# our kernels do not is tested beside them (test_op_kernels.py)
OF_A_LIBRARY = {"sqrt"}


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_rounding(op: Op) -> None:
    """What rounds once is float64's result, rounded; what does not round is the same in both."""
    if op.name == "cast" or op.rounding is Rounding.LIBRARY:
        return
    for sample in samples(op):
        narrow = sample.draw(dtype=torch.float32)
        wide = [x.double() if x.is_floating_point() else x for x in narrow]
        exact, made = sample.run(*wide), sample.run(*narrow)
        rounded = exact.to(made.dtype)
        if op.name in OF_A_LIBRARY:
            low, high = (torch.nextafter(rounded, torch.full_like(made, s * INF)) for s in (-1, 1))
            assert ((low <= made) & (made <= high)).all(), str(sample)
            continue
        assert torch.equal(rounded, made), str(sample)
        if op.rounding is Rounding.NONE:
            assert torch.equal(exact, made.to(exact.dtype)), str(sample)


@pytest.mark.parametrize("op", [op for op in COMPUTED if op.selects], ids=names)
def test_elements_are_selected(op: Op) -> None:
    for sample in samples(op):
        given = [x for x in sample.draw() if x.is_floating_point()]
        values = torch.cat([torch.zeros(1, dtype=F64), *(x.flatten().abs() for x in given)])
        assert torch.isin(sample.run(*sample.draw()).abs(), values).all(), str(sample)


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_infinity_passes_only_where_it_says(op: Op) -> None:
    """Products are said to be of finite values, and so are tables of parameters."""
    if op.is_contraction or op.kind is Kind.OPAQUE or op.passes_infinity:
        return
    for sample in samples(op):
        for i in range(len(sample.operands)):
            operands = sample.draw()
            if operands[i].is_floating_point():
                operands[i] = torch.full_like(operands[i], -INF)
                assert not sample.run(*operands).isinf().any(), str(sample)


INTERVALS = ((-INF, INF), (0.0, INF), (-INF, 0.0), (-2.0, 3.0), (1.0, 2.0), (-3.0, -1.0))


def _within(node: Any, interval: tuple[float, float]) -> Any:
    """A value between two bounds, as the bounds of the table know."""
    low, high = interval
    if low > -INF:
        node = make("maximum", node, as_scalar(low, node.dtype))
    if high < INF:
        node = make("minimum", node, as_scalar(high, node.dtype))
    return node


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_bounds_hold(op: Op) -> None:
    for sample in samples(op):
        for k, interval in enumerate(INTERVALS):
            given = [
                _within(o, interval if i == 0 else INTERVALS[(k + i) % 6]) if o.is_float else o
                for i, o in enumerate(sample.operands)
            ]
            node = make(op.name, *given, **sample.attrs)
            low, high = bounds(node)
            for seed in range(3):
                leaves = dict(zip(sample.operands, sample.draw(seed), strict=True))
                value = run([node], leaves, {})[node].double()
                value = value[value.isfinite()]
                assert ((value >= low - 1e-12) & (value <= high + 1e-12)).all(), (
                    f"{sample} {interval}"
                )


@pytest.mark.parametrize("op", [op for op in COMPUTED if op.kind is Kind.MOVE], ids=names)
def test_a_view_is_the_same_memory(op: Op) -> None:
    for sample in samples(op):
        given = sample.draw()
        same = (
            sample.run(*given).untyped_storage().data_ptr() == given[0].untyped_storage().data_ptr()
        )
        assert same == op.is_view, str(sample)


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_numbers_for_operands(op: Op) -> None:
    """Arithmetic of torch takes a Python number beside a tensor; what does not says so."""
    if op.kind is not Kind.POINTWISE or op.arity != 2:
        return
    (sample,) = samples(op)
    scope = {"torch": torch, "x": sample.draw()[0]}
    text = op.torch_text(["x", "1.5"], {})
    if op.takes_tensors_only:
        with pytest.raises(TypeError):
            eval(text, scope)
    else:
        assert eval(text, scope).shape == sample.draw()[0].shape


@pytest.mark.parametrize("op", COMPUTED, ids=names)
def test_no_rank_less_than_it_says(op: Op) -> None:
    if op.kind is not Kind.MOVE or op.least_rank == 1:
        return
    for sample in samples(op):
        (x,) = sample.draw()
        x = x[0, 0, 0]  # of rank 2
        text = op.torch_text(["x"], sample.attrs)
        assert eval(text, {"torch": torch, "x": x}) is not None
        with pytest.raises((IndexError, RuntimeError, TypeError)):
            eval(text, {"torch": torch, "x": x[0]})


def test_names_of_aten_are_handled_and_nobodys_else() -> None:
    listed = [name for op in OPS.values() for name in op.aten]
    assert len(listed) == len(set(listed)) > 40
    assert set(listed) <= set(HANDLERS)
    for name in listed:
        assert hasattr(torch.ops.aten, name), name


def test_products_and_sums_of_a_fused_multiply_add() -> None:
    def of(part: Contraction) -> set[str]:
        return {op.name for op in COMPUTED if op.contraction is part}

    assert of(Contraction.PRODUCT) == {"mul", "square"}
    assert of(Contraction.SUM) == {"add", "sub"}


@pytest.mark.parametrize("op", [op for op in COMPUTED if op.reduction], ids=names)
def test_reductions_of_parts(op: Op) -> None:
    """Whether equal parts' results reduced by the same op are the whole's."""
    assert op.reduction is not None
    if op.kind is not Kind.REDUCE:
        return
    x = torch.randn(1, 1, 1, 6, 8, dtype=F64) + 1
    attrs = {"correction": 0} if "correction" in op.attrs else {}
    whole = op.run(x, axes=(-2, -1), **attrs)
    parts = op.run(op.run(x, axes=(-1,), **attrs), axes=(-2,), **attrs)
    assert torch.allclose(whole, parts, rtol=1e-12) == op.reduction.joins


SOURCE = Path(refold.__file__).parent
# names of single ops for those who write rules; of those that PyTorch gives another argument; other
# names that PyTorch has for an op; what emitted files call an operand
BY_NAME = {"rules/term.py", "capture/aten_pointwise.py", "capture/aten.py", "plan/roles.py"}


@pytest.mark.parametrize(
    "path",
    [p for p in SOURCE.rglob("*.py") if not {"ops", "judge", "runtime"} & {*p.parts}],
    ids=lambda p: str(p.relative_to(SOURCE)),
)
def test_no_list_of_ops_stands_outside_the_table(path: Path) -> None:
    """What three ops or more have in common is a fact, and belongs to their rows."""
    for node in ast.walk(ast.parse(path.read_text())):
        keys = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        found = [k.value for k in keys if isinstance(k, ast.Constant) and k.value in OPS]
        allowed = len(found) < 3 or str(path.relative_to(SOURCE)) in BY_NAME
        leaves = all(OPS[name].arity == 0 or name == "aten" for name in found)
        assert allowed or leaves, f"line {node.lineno} lists {found}"  # type: ignore[attr-defined]


def test_badly_declared_rows_are_refused() -> None:
    plain = OPS["neg"]
    for wrong in (
        {"commutative": True},
        {"reduction": Reduction("Sum")},
        {"defaults": (1.0,)},
    ):
        with pytest.raises(ValueError, match=r"^wrong: "):
            Op("wrong", plain.kind, plain.meaning, plain.infer, 1, **wrong)


def test_an_op_that_says_nothing_claims_nothing() -> None:
    op = Op("silent", Kind.POINTWISE, "{0}", OPS["neg"].infer, 1)
    x = leaf("input", (1,) * RANK, F64, name="x", index=0)
    assert op.monotone({}) == 0 and op.bounds(x, [(0.0, 1.0)]) == (-INF, INF)
    assert not op.is_exact and not op.linear_in
