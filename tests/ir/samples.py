"""Inputs for every op of the table, from which the tests of its facts are made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.ir import OPS, Kind, Node, Op, leaf, make
from refold.ir.ops import ATTENTIONS
from refold.ir.shapes import RANK

F64 = torch.float64
# values of attributes by their names; a row with another attribute has to add it here
ATTRIBUTES: Mapping[str, tuple[Any, ...]] = {
    "alpha": (1.0, 0.3, -0.5),
    "beta": (1.0, 2.0),
    "threshold": (20.0, 40.0, -1.0),
    "slope": (0.01, 1.5, -0.5),
    "number": (0,),
    "probability": (1.0,),
    "p": (0.0,),
    "aligned": (True,),
    "dtype": (torch.float32, torch.float64),
    "axes": ((-1,), (-2,), (-3, -1)),
    "axis": (-1, -2),
    "correction": (0, 1),
    "shape": ((1, 2, 3, 4, 6),),
    "order": ((0, 1, 2, 4, 3), (0, 3, 1, 2, 4)),
    "start": (0, 1),
    "length": (2,),
    "size": (2,),
    "stride": (2, 1),
    "padding": (0, 1),
    "count_include_pad": (True, False),
    "strides": ((1, 1), (2, 2)),
    "paddings": ((0, 0), (1, 1)),
    "dilations": ((1, 1),),
    "groups": (1, 2),
    "output_padding": ((0, 0),),
    "sizes": ((2, 2),),
    "ceil_mode": (False, True),
    "causal": (False, True),
    "multiple": (1, 4),
    "scale": (0.3,),
}
_PLAIN = (1, 2, 3, 4, 6)
_TOKENS = ((1, 2, 5, 3, 6), (1, 2, 7, 3, 6), (1, 2, 7, 3, 6))
_MASK = (1, 2, 1, 5, 7)


def _attended(op: str) -> tuple[tuple[int, ...], ...]:
    q, k, v = _TOKENS
    if op.endswith("_sums"):
        operands = (q, k, _MASK)
    elif op.endswith("_gradient"):
        operands = (q, q, k, v, q, (1, 1, 2, 3, 8), _MASK)
    else:
        operands = (q, k, v, _MASK)
    return operands[: OPS[op].arity]


# shapes of the operands where they are not all alike; of a convolution by its groups
SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("bernoulli", "kept", "kept_mask"), ((1, 1, 1, 1, 1),)),
    "diagonal": ((1, 2, 3, 1, 6),),
    "expand": ((1, 2, 3, 1, 6),),
    "linear": (_PLAIN, (1, 1, 1, 5, 6)),
    "conv": ((1, 2, 4, 6, 6), (1, 6, 4, 3, 3), (1, 1, 1, 1, 6)),
    "conv_transpose": ((1, 2, 4, 6, 6), (1, 4, 6, 3, 3), (1, 1, 1, 1, 6)),
    **{op: _attended(op) for op in ATTENTIONS},
    "embedding": ((1, 1, 2, 3, 4), (1, 1, 1, 7, 6)),
}


@dataclass(frozen=True)
class Sample:
    """One use of an op: its attributes, and the leaves that are its operands."""

    op: Op
    attrs: Mapping[str, Any]
    operands: tuple[Node, ...]

    @property
    def node(self) -> Node:
        return make(self.op.name, *self.operands, **self.attrs)

    def draw(self, seed: int = 0, dtype: torch.dtype = F64) -> list[torch.Tensor]:
        """Operands in the op's domain."""
        generator = torch.Generator().manual_seed(seed)
        low, high = self.op.domain
        found = []
        for o in self.operands:
            shape = [int(d) for d in o.shape]  # type: ignore[call-overload]
            x = torch.randn(shape, generator=generator, dtype=F64) * 3
            x = x.clamp(min=low + 0.01 if math.isfinite(low) else low, max=high)
            if o.dtype == torch.int64:
                x = x.abs().long() % 7
            elif o.dtype == torch.bool:
                x = x > 0
            found.append(x.to(dtype) if o.is_float else x)
        return found

    def run(self, *operands: torch.Tensor) -> torch.Tensor:
        return self.op.run(*operands, **self.attrs)

    def __str__(self) -> str:
        return "-".join([self.op.name, *(str(v).replace(" ", "") for v in self.attrs.values())])


def samples(op: Op) -> Iterator[Sample]:
    """Uses of an op with all its attributes' values."""
    unknown = set(op.attrs) - set(ATTRIBUTES)
    assert not unknown, f"{op.name}: add values of {sorted(unknown)} to ATTRIBUTES"
    for values in itertools.product(*(ATTRIBUTES[a] for a in op.attrs)):
        attrs = dict(zip(op.attrs, values, strict=True))
        if attrs.get("groups", 1) > 1 and attrs["strides"] != (1, 1):
            continue
        if op.name == "prod" and len(attrs["axes"]) > 1:  # torch.prod takes one
            continue
        yield Sample(op, attrs, tuple(_operands(op, attrs)))


def _operands(op: Op, attrs: Mapping[str, Any]) -> Iterator[Node]:
    shapes = SHAPES.get(op.name, (_PLAIN,) * (3 if op.arity is None else op.arity))
    for i, given in enumerate(shapes):
        shape, dtype = list(given), F64
        if op.name == "where" and i == 0:
            dtype = torch.bool
        if op.name == "embedding" and i == 0:
            dtype = torch.int64
        if i == 1 and "groups" in attrs:
            shape[2] //= attrs["groups"]
        yield leaf("input", tuple(shape), dtype, name=f"x{i}", index=i)


COMPUTED = [op for op in OPS.values() if op.kind is not Kind.LEAF and op.name != "aten"]
SAMPLES = [s for op in COMPUTED for s in samples(op)]
POINTWISE = [op for op in COMPUTED if op.kind is Kind.POINTWISE]
assert len(_PLAIN) == RANK
