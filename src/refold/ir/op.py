"""What an op is: one record holds every fact of it.

Nothing else in the project lists ops by a property that a field here says: the proofs, the folded
parameters, the kernels, the capture, the rules and the tests ask the record.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from refold.ir import bounds, shapes
from refold.ir.bounds import Interval
from refold.ir.literals import cpp_literal, python_literal
from refold.ir.shapes import RANK, Shape

if TYPE_CHECKING:
    from refold.ir.node import Node

Attrs = Mapping[str, Any]
Inference = Callable[[Sequence["Node"], Attrs], tuple[Shape, torch.dtype]]
Bounds = Callable[["Node", Sequence[Interval]], Interval]


class Kind(enum.Enum):
    """How an op reads its inputs; what plans and costs turn on."""

    LEAF = "leaf"
    POINTWISE = "pointwise"  # each element from the same element of every input, with broadcasting
    REDUCE = "reduce"  # over `axes`, kept with size 1
    SCAN = "scan"  # along `axis`, the shape unchanged: softmax, cumsum
    CONTRACT = "contract"
    MOVE = "move"  # elements change place: reshape, permute, slice, cat, pooling windows
    OPAQUE = "opaque"


class Rounding(enum.Enum):
    """What an op's result loses of its exact value, in arithmetic of one dtype."""

    NONE = "none"  # nothing: the result is one of the inputs' values, or a small integer
    ONCE = "once"  # it is the exact value rounded to the nearest, in every implementation
    LIBRARY = "library"  # the last bits are those of the library's code


class Contraction(enum.Enum):
    """An op's part in a fused multiply-add, which rounds once where two ops round twice."""

    PRODUCT = "product"
    SUM = "sum"


@dataclass(frozen=True)
class Flops:
    """Arithmetic per element, as a multiple of one multiply-add.

    plain: as prices count it. unrolled: in an unrolled loop without branches, where many
    elements are under way at a time; None: as `plain`. By judgement, but for sigmoid, of which the
    unrolled loop was timed (docs/kernels-ladder.md). slow_path: the function has a slow way for
    large numbers, which takes registers of a GPU.
    """

    plain: float = 1.0
    unrolled: float | None = None
    slow_path: bool = False

    @property
    def in_a_loop(self) -> float:
        return self.plain if self.unrolled is None else self.unrolled


@dataclass(frozen=True)
class Reduction:
    """How kernels reduce by an op.

    monoid: a struct of kernels/cpu/monoid.h and kernels/cuda/monoid.cuh. result: C++ of the op's
    value, from `{state}`, the `{count}` of elements and the op's attributes by name. compound: the
    state is a struct, of whose members the result is made; else it is one number. joins: the
    reduction of equal parts' results by the same op is the reduction of the whole. joined_by: the
    op that makes the reduction of two parts of any sizes from theirs. state_of: an op
    that reduces the same values by another monoid, whose state this op's value can be read from:
    a mean from the state of a variance; `result_there` is its C++.
    """

    monoid: str
    result: str = "{state}"
    compound: bool = False
    joins: bool = True
    joined_by: str | None = None
    state_of: str | None = None
    result_there: str = ""

    def text(self, state: str, count: str, attrs: Attrs, there: bool = False) -> str:
        """C++ of the op's value. there: the state is that of `state_of`."""
        literals = {k: cpp_literal(v) for k, v in attrs.items() if k != "axes"}
        text = self.result_there if there else self.result
        return text.format(state=state, count=count, **literals).replace(f"({count} - 0.0f)", count)


Carried = tuple[int, tuple[int, ...]]


def _carries_nothing(attrs: Attrs, group: tuple[int, ...]) -> Carried | None:
    return None


def _no_slope(attrs: Attrs) -> int:
    return 0


def rises(attrs: Attrs) -> int:
    return 1


def falls(attrs: Attrs) -> int:
    return -1


@dataclass(frozen=True, eq=False)  # a row is itself: to hash all of its fields takes long
class Op:
    """One op.

    meaning: the meaning, as an expression of torch over `{0}`, `{1}`, ... and attributes by name.
    infer: gives shape and dtype of the result. arity: the number of inputs; None for any number.
    attrs: names of the attributes. defaults: their values where a call of ATen leaves them out; the
        last attributes have them, and all are numbers.
    cpp: for pointwise ops, the C++ expression over the same names; it is compiled for lanes of
        floats on the CPU and for float on CUDA, with the functions of the kernels' math headers.
    cpp_apart: C++ of a product that the compiler must not fuse with the sum that takes it.
    takes_tensors_only: the expression of torch takes no Python number for an operand.
    aten: names of ATen's operators that are this op, argument for argument: no handler is written.
    rounding: what the result loses; the sign of a zero aside.
    multiplies: the result may be larger or smaller than the inputs by any factor.
    contraction: the op's part in a fused multiply-add.
    commutative: the two operands may change places.
    linear_in: groups of operands in which it is linear, jointly within a group, with the others
        held: (0,), (1,) of a product; (0, 1) of a sum. The group () is all operands, however many.
    operands: the operands' names and sizes as rules write them, `x[N,K]`; of an op of one input
        that takes any sizes, none.
    carries: by its attributes, for a group of operands in which it is linear: an axis of the
        result, and of each operand in the group the axis along which factors multiply it that
        multiply the result along that axis. None where one number alone may be taken in.
    monotone: of an op of one input, by its attributes: +1 where it never falls over all reals, -1
        where it never rises, else 0.
    bounds: of the result's elements, from those of the inputs; for finite inputs.
    passes_infinity: an infinite element of an input may make an element of the result infinite.
    idempotent: of one input; a second time it changes nothing.
    jumps: an arbitrarily small change of an input may change the result by a whole step.
    selects: each element of the result is one of the inputs' elements, its sign aside.
    draws: PyTorch draws random numbers for it: it is computed once in each call, in its turn.
    is_view: PyTorch gives the result as a view of the input's memory, where strides allow it.
    reduction: how kernels reduce by the op; None where they do not.
    operand_ranks: by the attributes, how many axes PyTorch's function wants of each operand: so
        many exactly; None for any number.
    as_torch_takes: of inputs of rank 5, the tensors that PyTorch's function takes; None where it
        takes them as they are.
    least_rank: how many axes the operands need at least, beside those that attributes name.
    flops: arithmetic per output element (of a reduction and a scan: per input element).
    domain: inputs on which the op is defined, as (low, high), for tests and proofs.
    """

    name: str
    kind: Kind
    meaning: str
    infer: Inference
    arity: int | None
    attrs: tuple[str, ...] = ()
    defaults: tuple[float, ...] = ()
    cpp: str | None = None
    cpp_apart: str | None = None
    takes_tensors_only: bool = False
    aten: tuple[str, ...] = ()
    rounding: Rounding = Rounding.LIBRARY
    multiplies: bool = False
    contraction: Contraction | None = None
    commutative: bool = False
    linear_in: tuple[tuple[int, ...], ...] = ()
    operands: tuple[str, ...] = ()
    carries: Callable[[Attrs, tuple[int, ...]], Carried | None] = _carries_nothing
    monotone: Callable[[Attrs], int] = _no_slope
    bounds: Bounds = bounds.unknown
    passes_infinity: bool = False
    idempotent: bool = False
    jumps: bool = False
    selects: bool = False
    draws: bool = False
    is_view: bool = False
    reduction: Reduction | None = None
    operand_ranks: Callable[[Attrs], tuple[int | None, ...]] | None = None
    as_torch_takes: Callable[[Sequence[torch.Tensor], Attrs], Sequence[torch.Tensor]] | None = None
    least_rank: int = 1
    flops: Flops = field(default_factory=Flops)
    domain: Interval = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        if self.commutative and self.arity != 2:
            raise ValueError(f"{self.name}: a commutative op takes two inputs")
        if self.reduction is not None and self.kind not in (Kind.REDUCE, Kind.CONTRACT):
            raise ValueError(f"{self.name}: only a reduction or a contraction has a monoid")
        if len(self.defaults) > len(self.attrs):
            raise ValueError(f"{self.name}: {self.defaults} for the attributes {self.attrs}")

    @property
    def is_exact(self) -> bool:
        """Every implementation gives the same bits, except for the sign of a zero."""
        return self.rounding is not Rounding.LIBRARY

    @property
    def is_named(self) -> bool:
        """A leaf that has a value of its own: an argument, a parameter, a buffer, a constant."""
        return self.kind is Kind.LEAF and "name" in self.attrs

    @property
    def is_comparison(self) -> bool:
        """The result is a mask."""
        return self.infer is shapes.compare

    @property
    def is_arithmetic(self) -> bool:
        """A sum, difference, product or quotient of two values: operators of C++ that take lanes
        beside a plain number."""
        return self.kind is Kind.POINTWISE and self.arity == 2 and bool(self.linear_in)

    @property
    def is_contraction(self) -> bool:
        """It adds products of two values' elements: a product of matrices or a convolution."""
        return self.kind is not Kind.POINTWISE and len(self.linear_in) == 2

    @property
    def infix(self) -> str | None:
        """The sign between the operands, where the meaning is arithmetic of two."""
        found = re.fullmatch(r"\(\{0\}( \S+ )\{1\}\)", self.meaning)
        return found[1] if found else None

    def run(self, *inputs: torch.Tensor, **attrs: Any) -> torch.Tensor:
        """The op on tensors of rank 5."""
        if self.arity is None:
            return _compiled(self, 0)(inputs, **attrs)
        if self.as_torch_takes is None:
            return _compiled(self, 0)(*inputs, **attrs)
        given = self.as_torch_takes(inputs, attrs)
        made = _compiled(self, len(attrs.get("strides", ())))(*given, **attrs)
        return made[(None,) * (RANK - made.dim())]

    def torch_text(self, inputs: Sequence[str], attrs: Attrs) -> str:
        """The meaning as Python text over the given names.

        Of a convolution over tensors of their true rank, its bias being that of each feature.
        """
        return self._text(inputs, attrs, len(attrs.get("strides", ())))

    def _text(self, inputs: Sequence[str], attrs: Attrs, places: int) -> str:
        if self.arity is None and inputs != ["xs"]:
            inputs = [f"({', '.join(inputs)},)"]
        literals = {k: python_literal(v) for k, v in attrs.items()}
        return self.meaning.format(*inputs, places=places, **literals)

    def cpp_template(self, apart: bool = False) -> str:
        """The C++ expression, with places for operands and attributes.

        apart: as `cpp_apart` has it. Raises ValueError where there is none.
        """
        cpp = self.cpp_apart if apart else self.cpp
        if cpp is None:
            raise ValueError(f"{self.name} has no C++ expression")
        return cpp


@functools.cache
def _compiled(row: Op, places: int) -> Callable[..., torch.Tensor]:
    """A row's meaning as a function of its inputs and attributes."""
    names = ["xs"] if row.arity is None else [f"x{i}" for i in range(row.arity)]
    body = row._text(names, {a: a for a in row.attrs}, places)
    scope: dict[str, Any] = {"torch": torch, "inf": math.inf, "nan": math.nan}
    exec(f"def run({', '.join([*names, *row.attrs])}):\n    return {body}", scope)
    compiled: Callable[..., torch.Tensor] = scope["run"]
    return compiled
