"""THE op table: one row says what an op means in torch, its shape, its C++ text and its facts.

Everything else derives from the rows: the meaning used by the proofs and the folded parameters
(`OpRow.run` evaluates the same text that is emitted), the generated kernels and the tests. All ops
work on values padded to rank 5, with negative axes, and reductions keep their axes with size 1; so
broadcasting is an elementwise maximum and rank is never mentioned again.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from refold.ir import convolution, shapes
from refold.ir.literals import cpp_literal, python_literal
from refold.ir.shapes import RANK, Shape

if TYPE_CHECKING:
    from refold.ir.node import Node

__all__ = ["NARROW", "OPS", "RANK", "Kind", "OpRow", "Shape"]

Inference = Callable[[Sequence["Node"], Mapping[str, Any]], tuple[Shape, torch.dtype]]


class Kind(enum.Enum):
    """How an op reads its inputs; what plans and costs turn on."""

    LEAF = "leaf"
    POINTWISE = "pointwise"  # each element from the same element of every input, with broadcasting
    REDUCE = "reduce"  # over `axes`, kept with size 1
    SCAN = "scan"  # along `axes`, the shape unchanged: softmax, cumsum
    CONTRACT = "contract"
    MOVE = "move"  # elements change place: reshape, permute, slice, cat, pooling windows
    OPAQUE = "opaque"


@dataclass(frozen=True)
class OpRow:
    """One op.

    meaning: the meaning, as an expression of torch over `{0}`, `{1}`, ... and attributes by name.
    cpp: for pointwise ops, the C++ expression over the same names; it is compiled for lanes of
        floats on the CPU and for float on CUDA, with the functions of the kernels' math header.
    attrs: names of the attributes.
    slope: +1 or -1 where the op is monotone in its single input over all reals, else 0.
    low, high: bounds of the result whatever the (finite) input.
    flops: arithmetic per output element, as a multiple of one multiply-add.
    exact: every implementation gives the same bits, except for the sign of a zero.
    domain: inputs on which the op is defined, as (low, high), for tests and proofs.
    """

    name: str
    kind: Kind
    meaning: str
    infer: Inference
    arity: int | None
    cpp: str | None = None
    attrs: tuple[str, ...] = ()
    slope: int = 0
    low: float = -math.inf
    high: float = math.inf
    flops: float = 1.0
    exact: bool = False
    domain: tuple[float, float] = (-math.inf, math.inf)

    def run(self, *inputs: torch.Tensor, **attrs: Any) -> torch.Tensor:
        """The op on tensors of rank 5."""
        if self.arity is None:
            return _compiled(self, 0)(inputs, **attrs)
        if self.name == "embedding":
            inputs = inputs[0][0], inputs[1][0, 0, 0]
        if "strides" not in attrs:
            return _compiled(self, 0)(*inputs, **attrs)
        images = convolution.of_true_rank(inputs, attrs, self.name == "conv_transpose")
        made = _compiled(self, len(attrs["strides"]))(*images, **attrs)
        return made[(None,) * (RANK - made.dim())]

    def torch_text(self, inputs: Sequence[str], attrs: Mapping[str, Any]) -> str:
        """The meaning as Python text over the given names.

        Of a convolution over tensors of their true rank, its bias being that of each feature.
        """
        return self._text(inputs, attrs, len(attrs.get("strides", ())))

    def _text(self, inputs: Sequence[str], attrs: Mapping[str, Any], places: int) -> str:
        if self.arity is None and inputs != ["xs"]:
            inputs = [f"({', '.join(inputs)},)"]
        literals = {k: python_literal(v) for k, v in attrs.items()}
        return self.meaning.format(*inputs, places=places, **literals)

    def cpp_text(self, inputs: Sequence[str], attrs: Mapping[str, Any]) -> str:
        """The C++ expression over the given names; attributes become float literals."""
        if self.cpp is None:
            raise ValueError(f"{self.name} has no C++ expression")
        return self.cpp.format(*inputs, **{k: cpp_literal(v) for k, v in attrs.items()})


@functools.cache
def _compiled(row: OpRow, places: int) -> Callable[..., torch.Tensor]:
    """A row's meaning as a function of its inputs and attributes."""
    names = ["xs"] if row.arity is None else [f"x{i}" for i in range(row.arity)]
    body = row._text(names, {a: a for a in row.attrs}, places)
    scope: dict[str, Any] = {"torch": torch, "inf": math.inf, "nan": math.nan}
    exec(f"def run({', '.join([*names, *row.attrs])}):\n    return {body}", scope)
    compiled: Callable[..., torch.Tensor] = scope["run"]
    return compiled


# floats of 16 bits
NARROW = (torch.float16, torch.bfloat16)

OPS: dict[str, OpRow] = {}


def _add(row: OpRow) -> None:
    if row.name in OPS:
        raise ValueError(f"the op {row.name!r} is declared twice")
    OPS[row.name] = row


def _leaf(name: str, *attrs: str) -> None:
    _add(OpRow(name, Kind.LEAF, "", shapes.no_inference, 0, attrs=attrs))


def _map(name: str, arity: int, torch_text: str, cpp: str | None, **facts: Any) -> None:
    infer = facts.pop("infer", shapes.pointwise)
    attrs = facts.pop("attrs", ())
    _add(OpRow(name, Kind.POINTWISE, torch_text, infer, arity, cpp, attrs, **facts))


def _reduce(name: str, torch_text: str, *more: str, **facts: Any) -> None:
    _add(
        OpRow(
            name,
            Kind.REDUCE,
            torch_text,
            shapes.reduced,
            1,
            attrs=("axes", *more),
            **facts,
        )
    )


def _other(
    name: str, kind: Kind, text: str, infer: Inference, arity: int | None, *attrs: str, **facts: Any
) -> None:
    _add(OpRow(name, kind, text, infer, arity, attrs=attrs, **facts))


# --- leaves -------------------------------------------------------------------------------------
_leaf("input", "name", "index")  # an argument of forward
_leaf("param", "name")  # a parameter or buffer, by its dotted name
_leaf("state", "name")  # a buffer that the function itself writes: read anew at every call
_leaf("constant", "name")  # a tensor attribute that is neither
_leaf("scalar", "value")  # a Python number, or a size of an input

# --- pointwise, one input -----------------------------------------------------------------------
_map("neg", 1, "-{0}", "-{0}", slope=-1, exact=True)
_map("abs", 1, "{0}.abs()", "abs({0})", low=0.0, exact=True)
_map("exp", 1, "{0}.exp()", "exp({0})", slope=1, low=0.0, flops=8)
_map("expm1", 1, "{0}.expm1()", "expm1({0})", slope=1, low=-1.0, flops=10)
_map("log", 1, "{0}.log()", "log({0})", domain=(0.0, math.inf), flops=8)
_map("log1p", 1, "{0}.log1p()", "log1p({0})", domain=(-1.0, math.inf), flops=10)
_map("sqrt", 1, "{0}.sqrt()", "sqrt({0})", domain=(0.0, math.inf), low=0.0, flops=4, exact=True)
_map("rsqrt", 1, "{0}.rsqrt()", "rsqrt({0})", domain=(0.0, math.inf), low=0.0, flops=4)
_map("reciprocal", 1, "{0}.reciprocal()", "1.0f / {0}", flops=4, exact=True)
_map("square", 1, "{0}.square()", "{0} * {0}", low=0.0, exact=True)
_map("sin", 1, "{0}.sin()", "sin({0})", low=-1.0, high=1.0, flops=10)
_map("cos", 1, "{0}.cos()", "cos({0})", low=-1.0, high=1.0, flops=10)
_map("tanh", 1, "{0}.tanh()", "tanh({0})", slope=1, low=-1.0, high=1.0, flops=12)
_map("sigmoid", 1, "{0}.sigmoid()", "sigmoid({0})", slope=1, low=0.0, high=1.0, flops=10)
_map("erf", 1, "{0}.erf()", "erf({0})", slope=1, low=-1.0, high=1.0, flops=12)
_map("floor", 1, "{0}.floor()", "floor({0})", slope=1, exact=True)
_map("ceil", 1, "{0}.ceil()", "ceil({0})", slope=1, exact=True)
_map("round", 1, "{0}.round()", "round({0})", slope=1, exact=True)
_map("trunc", 1, "{0}.trunc()", "trunc({0})", slope=1, exact=True)
_map("relu", 1, "{0}.relu()", "relu({0})", slope=1, low=0.0, exact=True)
_map(
    "gelu",
    1,
    "torch.nn.functional.gelu({0})",
    "0.5f * {0} * (1.0f + erf({0} * 0.70710678118654752f))",
    low=-0.17,
    flops=16,
)
_map(
    "gelu_tanh",
    1,
    "torch.nn.functional.gelu({0}, approximate='tanh')",
    "0.5f * {0} * (1.0f + tanh(0.79788456080286536f * ({0} + 0.044715f * {0} * {0} * {0})))",
    low=-0.18,
    flops=20,
)
_map("silu", 1, "torch.nn.functional.silu({0})", "{0} * sigmoid({0})", low=-0.28, flops=12)
_map(
    "softplus",
    1,
    "torch.nn.functional.softplus({0}, {beta}, {threshold})",
    "where({0} * {beta} > lanes<V>({threshold}), {0}, log1p(exp({0} * {beta})) / {beta})",
    attrs=("beta", "threshold"),
    flops=20,
)
_map(
    "elu",
    1,
    "torch.nn.functional.elu({0}, {alpha})",
    "where({0} > lanes<V>(0.0f), {0}, {alpha} * expm1({0}))",
    attrs=("alpha",),
    flops=12,
)
_map(
    "leaky_relu",
    1,
    "torch.nn.functional.leaky_relu({0}, {slope})",
    "where({0} > lanes<V>(0.0f), {0}, {slope} * {0})",
    attrs=("slope",),
    flops=2,
)
_map("mish", 1, "torch.nn.functional.mish({0})", "{0} * tanh(log1p(exp({0})))", low=-0.31, flops=32)
_map(
    "hardsigmoid",
    1,
    "torch.nn.functional.hardsigmoid({0})",
    "minimum(maximum({0} + 3.0f, lanes<V>(0.0f)), lanes<V>(6.0f)) / 6.0f",
    slope=1,
    low=0.0,
    high=1.0,
    flops=4,
)
_map(
    "hardswish",
    1,
    "torch.nn.functional.hardswish({0})",
    "{0} * minimum(maximum({0} + 3.0f, lanes<V>(0.0f)), lanes<V>(6.0f)) / 6.0f",
    low=-0.38,
    flops=5,
)
_map(
    "selu",
    1,
    "torch.nn.functional.selu({0})",
    "1.0507009873554805f * where({0} > lanes<V>(0.0f), {0}, 1.6732632423543772f * expm1({0}))",
    slope=1,
    low=-1.76,
    flops=12,
)
_map("cast", 1, "{0}.to({dtype})", "rounded<{dtype}>({0})", attrs=("dtype",), infer=shapes.cast)

# --- pointwise, more inputs ---------------------------------------------------------------------
_map("add", 2, "({0} + {1})", "{0} + {1}", exact=True)
_map("sub", 2, "({0} - {1})", "{0} - {1}", exact=True)
_map("mul", 2, "({0} * {1})", "{0} * {1}", exact=True)
_map("div", 2, "({0} / {1})", "{0} / {1}", flops=4, exact=True)
_map("pow", 2, "({0} ** {1})", "pow({0}, {1})", flops=24, domain=(0.0, math.inf))
_map("maximum", 2, "torch.maximum({0}, {1})", "maximum({0}, {1})", exact=True)
_map("minimum", 2, "torch.minimum({0}, {1})", "minimum({0}, {1})", exact=True)
_map("lt", 2, "({0} < {1})", "{0} < {1}", infer=shapes.compare, exact=True)
_map("le", 2, "({0} <= {1})", "{0} <= {1}", infer=shapes.compare, exact=True)
_map("gt", 2, "({0} > {1})", "{0} > {1}", infer=shapes.compare, exact=True)
_map("ge", 2, "({0} >= {1})", "{0} >= {1}", infer=shapes.compare, exact=True)
_map("eq", 2, "({0} == {1})", "{0} == {1}", infer=shapes.compare, exact=True)
_map("ne", 2, "({0} != {1})", "{0} != {1}", infer=shapes.compare, exact=True)
_map(
    "where",
    3,
    "torch.where({0}, {1}, {2})",
    "where({0}, {1}, {2})",
    infer=shapes.select,
    exact=True,
)

# --- reductions: axes is a sorted tuple of negative ints ----------------------------------------
_reduce("sum", "{0}.sum({axes}, keepdim=True)")
_reduce("mean", "{0}.mean({axes}, keepdim=True)")
_reduce("prod", "torch.prod({0}, {axes}[0], keepdim=True)")
_reduce("max", "{0}.amax({axes}, keepdim=True)")
_reduce("min", "{0}.amin({axes}, keepdim=True)")
_reduce("logsumexp", "torch.logsumexp({0}, {axes}, keepdim=True)", flops=9)
_reduce(
    "var",
    "torch.var({0}, {axes}, correction={correction}, keepdim=True)",
    "correction",
    low=0.0,
    flops=3,
)

# --- along an axis ------------------------------------------------------------------------------
_other(
    "softmax",
    Kind.SCAN,
    "torch.softmax({0}, {axis})",
    shapes.same,
    1,
    "axis",
    low=0.0,
    high=1.0,
    flops=18,
)
_other(
    "log_softmax",
    Kind.SCAN,
    "torch.log_softmax({0}, {axis})",
    shapes.same,
    1,
    "axis",
    high=0.0,
    flops=18,
)
_other("cumsum", Kind.SCAN, "torch.cumsum({0}, {axis})", shapes.same, 1, "axis")

# --- contraction over the last axis of both: x[.., N, K], w[.., M, K] -> [.., N, M] ---------------
_other("linear", Kind.CONTRACT, "({0} @ {1}.mT)", shapes.linear, 2)

# --- moving elements ----------------------------------------------------------------------------
_other("reshape", Kind.MOVE, "{0}.reshape({shape})", shapes.reshape, 1, "shape")
_other("permute", Kind.MOVE, "{0}.permute({order})", shapes.permute, 1, "order")
_other("diagonal", Kind.MOVE, "torch.diag_embed({0}.squeeze(-2))", shapes.diagonal, 1)
_other("expand", Kind.MOVE, "{0}.expand({shape})", shapes.expand, 1, "shape")
_other(
    "slice",
    Kind.MOVE,
    "{0}.narrow({axis}, {start}, {length})",
    shapes.narrow,
    1,
    "axis",
    "start",
    "length",
)
_other("cat", Kind.MOVE, "torch.cat({0}, {axis})", shapes.cat, None, "axis")
_other(
    "avg_pool",
    Kind.MOVE,
    "torch.nn.functional.avg_pool1d({0}.flatten(0, -2), {size}, {stride}, {padding}, False,"
    " {count_include_pad}).unflatten(0, {0}.shape[:-1])",
    shapes.pooled,
    1,
    "size",
    "stride",
    "padding",
    "count_include_pad",
    flops=1,
)

# --- convolutions, PyTorch's own, along as many axes (`places`) as there are strides -------------
# a bias of one element is that of every feature
CONVOLUTIONS = ("conv", "conv_transpose")
_other(
    "conv",
    Kind.OPAQUE,
    "torch.nn.functional.conv{places}d({0}, {1}, {2}, {strides}, {paddings}, {dilations},"
    " {groups})",
    convolution.conv,
    3,
    *("strides", "paddings", "dilations", "groups"),
)
_other(
    "conv_transpose",
    Kind.OPAQUE,
    "torch.nn.functional.conv_transpose{places}d({0}, {1}, {2}, {strides}, {paddings}, {extras},"
    " {groups}, {dilations})",
    convolution.conv_transpose,
    3,
    *("strides", "paddings", "dilations", "groups", "extras"),
)
_other(
    "image_pool",
    Kind.OPAQUE,
    "torch.nn.functional.avg_pool{places}d({0}, {sizes}, {strides})",
    convolution.image_pool,
    1,
    *("sizes", "strides"),
)

# --- rows of a table, by their numbers ------------------------------------------------------------
_LOOKED_UP = "torch.nn.functional.embedding({0}, {1})"
_other("embedding", Kind.OPAQUE, _LOOKED_UP, shapes.embedding, 2, exact=True)

# --- everything else ----------------------------------------------------------------------------
_add(
    OpRow(
        "aten",
        Kind.OPAQUE,
        "",
        shapes.no_inference,
        None,
        attrs=("target", "args", "kwargs", "shapes", "index", "rank"),
    )
)
