"""One node type. Nodes are immutable and interned: equal nodes are the same object."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from refold.ir.dim import Dim, Sym
from refold.ir.op import Kind, Op
from refold.ir.ops import OPS
from refold.ir.shapes import RANK, Shape, pad

Attr: TypeAlias = "bool | int | float | str | Sym | torch.dtype | tuple[Attr, ...] | None"


@dataclass(frozen=True, eq=False)
class Node:
    """A value: one op applied to values.

    `shape` is padded with leading ones to rank 5 (values of higher rank pass between opaque calls
    only). Equality is identity: `make` and `leaf` return the same object for the same arguments.
    `depth` is how many ops one after the other lead to it at most: what it is made of has less.
    """

    op: str
    inputs: tuple[Node, ...]
    attrs: tuple[tuple[str, Attr], ...]
    shape: Shape
    dtype: torch.dtype
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        depth = 1 + max([i.depth for i in self.inputs], default=-1)
        object.__setattr__(self, "depth", depth)

    def __getitem__(self, name: str) -> Any:
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(f"{self.op} has no attribute {name!r}; it has {[k for k, _ in self.attrs]}")

    def get(self, name: str, default: Any = None) -> Any:
        return next((value for key, value in self.attrs if key == name), default)

    @property
    def row(self) -> Op:
        """What is known of the op."""
        return OPS[self.op]

    @property
    def kind(self) -> Kind:
        return OPS[self.op].kind

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    def __repr__(self) -> str:
        attrs = "".join(f" {k}={v}" for k, v in self.attrs)
        return f"<{self.op}{attrs} {'x'.join(str(d) for d in self.shape)}>"


_interned: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()


def _hints(values: Iterable[Attr]) -> Iterator[int]:
    """The captured values of the sizes among `values` and inside them."""
    for value in values:
        if isinstance(value, Sym):
            yield value.hint
        elif isinstance(value, tuple):
            yield from _hints(value)


def _intern(
    op: str,
    inputs: tuple[Node, ...],
    attrs: tuple[tuple[str, Attr], ...],
    shape: Shape,
    dtype: torch.dtype,
) -> Node:
    # bool is an int and 1 == 1.0 in Python: the types take part in the key, and so does the sign
    # of zero, which repr shows. So do the captured example's sizes: the "s0" of another model that
    # is still in memory is not this one's.
    kinds = repr(attrs) if attrs else ""
    sizes = tuple([d.hint for d in shape if isinstance(d, Sym)])
    if attrs:
        sizes = (*sizes, *_hints(v for _, v in attrs))
    key = (op, tuple(id(n) for n in inputs), kinds, shape, sizes, dtype)
    found = _interned.get(key)
    if found is None:
        found = Node(op, inputs, attrs, shape, dtype)
        _interned[key] = found
    return found


def make(op: str, *inputs: Node, **attrs: Attr) -> Node:
    """The node `op(*inputs, **attrs)`; its shape and dtype follow from the op table.

    Raises KeyError for an unknown op and ValueError for inputs that the op does not take.
    """
    row = OPS[op]
    if row.arity is not None and len(inputs) != row.arity:
        raise ValueError(f"{op} takes {row.arity} inputs, got {len(inputs)}")
    if set(attrs) != set(row.attrs):
        raise ValueError(f"{op} takes the attributes {list(row.attrs)}, got {sorted(attrs)}")
    shape, dtype = row.infer(inputs, attrs)
    return _intern(op, inputs, tuple(sorted(attrs.items())), shape, dtype)


def leaf(op: str, shape: tuple[Dim, ...], dtype: torch.dtype, **attrs: Attr) -> Node:
    """An input, parameter or scalar: a node whose shape and dtype are given, not inferred."""
    row = OPS[op]
    if row.kind is not Kind.LEAF and op != "aten":
        raise ValueError(f"{op} is no leaf: its shape follows from its inputs; use make()")
    return _intern(op, (), tuple(sorted(attrs.items())), pad(shape), dtype)


def opaque(
    inputs: tuple[Node, ...], shape: tuple[Dim, ...], dtype: torch.dtype, **attrs: Attr
) -> Node:
    """A call of PyTorch that the op table does not know; it runs as PyTorch runs it."""
    return _intern("aten", inputs, tuple(sorted(attrs.items())), pad(shape), dtype)


def as_scalar(value: bool | int | float | Sym, dtype: torch.dtype) -> Node:
    """A Python number (or a size) as a one-element value of `dtype`."""
    if dtype.is_floating_point and not isinstance(value, Sym):
        value = float(value)
    return leaf("scalar", (1,) * RANK, dtype, value=value)


def rebuild(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same op and attributes on other inputs."""
    if inputs == node.inputs:
        return node
    if node.op == "aten":
        return _intern("aten", inputs, node.attrs, node.shape, node.dtype)
    attrs: Mapping[str, Attr] = dict(node.attrs)
    return make(node.op, *inputs, **attrs)
