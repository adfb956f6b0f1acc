"""Graph nodes as torch expressions: the text of folded parameters and of calls of PyTorch.

A value in emitted Python has the node's shape without leading ones, at least down to its own
written rank; broadcasting makes the rest irrelevant. `Writer` keeps that rank for each value and
adds a reshape only where an op needs more axes than its input has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from refold.ir import OPS, Dim, Kind, Node, Sym
from refold.ir.literals import python_literal
from refold.ir.shapes import RANK
from refold.plan.memory import is_narrowing


def stripped(shape: Sequence[Dim], at_least: int = 2) -> tuple[Dim, ...]:
    """`shape` without leading ones, but of rank `at_least` at least."""
    rest = tuple(shape)
    while len(rest) > at_least and rest[0] == 1:
        rest = rest[1:]
    return rest


def leaf_shape(node: Node) -> tuple[Dim, ...]:
    """The shape in memory of a parameter, buffer or constant."""
    rank = node.get("rank")
    return stripped(node.shape, 1) if rank is None else node.shape[-rank:]


def shape_text(shape: Sequence[Dim], sizes: Mapping[str, str]) -> str:
    """A shape as the text of a tuple."""
    parts = [d.text(sizes) if isinstance(d, Sym) else str(d) for d in shape]
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The strides of a tensor that lies row after row."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (max(size, 1) if isinstance(size, int) else size)
    return tuple(reversed(strides))


@dataclass
class Writer:
    """Writes nodes as statements.

    sizes: Python text for each named size. read: gives the text of a leaf or of a value made
    elsewhere together with its true shape, or None. double: compute in float64 (for folds). lines:
    the statements so far. values: the variable that holds a node, and its shape. prefix: of the
    variables' names. device: text of the device on which numbers become tensors; empty for the
    current one.
    """

    sizes: Mapping[str, str]
    read: Callable[[Node], tuple[str, tuple[Dim, ...]] | None]
    double: bool = False
    lines: list[str] = field(default_factory=list)
    values: dict[Node, tuple[str, tuple[Dim, ...]]] = field(default_factory=dict)
    prefix: str = "t"
    device: str = ""

    def name(self, node: Node) -> tuple[str, tuple[Dim, ...]]:
        """The variable that holds `node` and its shape, writing what it needs first."""
        stack = [(node, False)]
        while stack:
            n, ready = stack.pop()
            if n in self.values:
                continue
            if ready:
                text, shape = self.expression(n)
                name = self.variable(n)
                self.lines.append(f"{name} = {text}")
                self.values[n] = (name, shape)
            elif (given := self.read(n)) is not None:
                self.values[n] = given
            elif n.op != "scalar":
                stack.append((n, True))
                stack.extend((i, False) for i in reversed(n.inputs) if not self._sums_raw(n))
        if node in self.values:
            return self.values[node]
        value = node["value"]
        if isinstance(value, Sym):
            return f"({value.text(self.sizes)})", ()
        return python_literal(value), ()

    def variable(self, node: Node) -> str:
        """A new variable's name."""
        return f"{self.prefix}{len(self.lines)}"

    def at_rank(self, node: Node, rank: int) -> str:
        """The text of `node` with exactly or at least `rank` axes."""
        name, shape = self.name(node)
        if node.op == "scalar" and not shape:
            return self._filled(node, (1,) * rank)
        if len(shape) >= rank:
            return name
        return f"{name}.reshape({shape_text(node.shape[-rank:], self.sizes)})"

    def expression(self, node: Node) -> tuple[str, tuple[Dim, ...]]:
        """The text that computes `node` from its inputs, and the shape that it gives."""
        row = OPS[node.op]
        attrs: dict[str, Any] = {
            k: v.text(self.sizes) if isinstance(v, Sym) else v for k, v in node.attrs
        }
        if node.op == "aten":
            return self._opaque(node)
        if row.draws:
            place = self.device.removesuffix(".device")
            attrs["shape"] = shape_text(node["shape"], self.sizes)
            return row.torch_text([place], attrs), node["shape"]
        if row.kind is Kind.POINTWISE:
            if node.op == "cast" and self.double and attrs["dtype"].is_floating_point:
                if is_narrowing(node):  # asked for by the model: it is rounded
                    (x,) = node.inputs
                    return f"{self._tensor(x)}.to({node.dtype}).double()", self.name(x)[1]
                attrs["dtype"] = torch.float64
            if all(i.op == "scalar" for i in node.inputs) or row.takes_tensors_only:
                texts = [self._tensor(i) for i in node.inputs]
            else:
                texts = [self.name(i)[0] for i in node.inputs]
            rank = max(len(self.name(i)[1]) for i in node.inputs)
            return row.torch_text(texts, attrs), node.shape[RANK - rank :]
        if node.op == "reshape":
            shape = stripped(node.shape, 1)
            return f"{self._moved(node)}.reshape({shape_text(shape, self.sizes)})", shape
        if node.op == "expand":
            shape = stripped(node.shape, 1)
            if node.inputs[0].op == "scalar":
                return self._filled(node.inputs[0], shape), shape
            text = self._at_most(node.inputs[0], len(shape))
            return f"{text}.expand({shape_text(shape, self.sizes)})", shape
        if node.op == "permute":
            return self._permute(node)
        if node.op == "linear":
            x, w = node.inputs
            rank = max(len(self.name(x)[1]), 1 if len(self.name(w)[1]) <= 2 else 3)
            shape = node.shape[-max(rank, len(self.name(w)[1]) if rank > 2 else rank) :]
            return row.torch_text([self.at_rank(x, rank), self.at_rank(w, 2)], attrs), shape
        if row.operand_ranks is not None:
            return self._of_true_rank(node, row.operand_ranks(attrs), attrs)
        if row.arity is None:
            rank = max(max(len(self.name(i)[1]) for i in node.inputs), -int(attrs["axis"]))
            texts = [self.at_rank(i, rank) for i in node.inputs]
            return row.torch_text(texts, attrs), node.shape[-rank:]
        x = node.inputs[0]
        if self._sums_raw(node):
            rank = max(len(stripped(x.shape, 1)), self._rank_needed(node))
            raw = self.raw(x, rank)
            method = f"{raw}.{node.op}({attrs['axes']}, keepdim=True, dtype=torch.float64)"
            return method, node.shape[-rank:]
        rank = max(len(self.name(x)[1]), self._rank_needed(node))
        return row.torch_text([self.at_rank(x, rank)], attrs), node.shape[-rank:]

    def _sums_raw(self, node: Node) -> bool:
        """Does it sum a parameter in float64, without a copy of the whole of it in float64?"""
        if not self.double or node.kind is not Kind.REDUCE or not node.row.linear_in:
            return False
        (x,) = node.inputs
        return x not in self.values and self.raw(x, 1) is not None

    def _of_true_rank(
        self, node: Node, ranks: Sequence[int | None], attrs: Mapping[str, Any]
    ) -> tuple[str, tuple[Dim, ...]]:
        """A call of PyTorch that wants so many axes of each operand, None being any number."""
        first, *_ = node.inputs
        if ranks[0] is None:
            shape = (*self.name(first)[1], node.shape[-1])  # a row for each number
        else:
            shape = node.shape[-ranks[0] :]
        texts = []
        for i, rank in zip(node.inputs, ranks, strict=True):
            if rank is not None:
                texts.append(self._of_rank(i, rank))
            elif node.row.is_contraction:
                texts.append(self._bias(i, shape[1]))
            else:
                texts.append(self.name(i)[0])
        return node.row.torch_text(texts, attrs), shape

    def _bias(self, b: Node, features: Dim) -> str:
        """A convolution's bias as PyTorch expects it; none is None."""
        if b.op == "scalar" and b["value"] == 0:
            return "None"
        if b.op == "scalar":
            return self._filled(b, (features,))
        bias, written = self.name(b)
        bias += "" if len(written) == 1 else ".flatten()"
        return bias + ("" if b.shape[-1] == features else f".expand({features})")

    def _of_rank(self, node: Node, rank: int) -> str:
        """The text of `node` with exactly `rank` axes; it has no more but leading ones."""
        name = self.at_rank(node, rank)
        if len(self.name(node)[1]) <= rank:
            return name
        return f"{name}.reshape({shape_text(node.shape[-rank:], self.sizes)})"

    def _at_most(self, node: Node, rank: int) -> str:
        """The text of `node`, a tensor, with no more than `rank` axes."""
        name = self.at_rank(node, 0)
        if len(self.name(node)[1]) <= rank:
            return name
        return f"{name}.reshape({shape_text(node.shape[-rank:], self.sizes)})"

    def raw(self, node: Node, rank: int) -> str | None:
        """The text of a parameter before its conversion to float64 (folds only)."""
        return None

    def _tensor(self, node: Node) -> str:
        name, _ = self.name(node)
        if node.op != "scalar":
            return name
        kind = torch.float64 if self.double and node.is_float else node.dtype
        return f"torch.tensor({name}, dtype={kind})"

    def _moved(self, node: Node) -> str:
        """The text of what moves in `node`, a tensor in any case."""
        return self.at_rank(node.inputs[0], 0)

    def _filled(self, node: Node, shape: Sequence[Dim]) -> str:
        """A number as a tensor of that shape, on the device of the others."""
        name, _ = self.name(node)
        kind = torch.float64 if self.double and node.is_float else node.dtype
        device = f", device={self.device}" if self.device else ""
        return f"torch.full({shape_text(shape, self.sizes)}, {name}, dtype={kind}{device})"

    def _rank_needed(self, node: Node) -> int:
        axes = node.get("axes") or (node.get("axis", -1),)
        least: int = -min(axes)
        return max(node.row.least_rank, least)

    def _permute(self, node: Node) -> tuple[str, tuple[Dim, ...]]:
        x = node.inputs[0]
        order: tuple[int, ...] = node["order"]
        _, shape = self.name(x)
        rank = RANK
        while rank > max(len(shape), 1) and order[RANK - rank] == RANK - rank:
            rank -= 1
        rank = max(rank, 2)
        moved = tuple(o - (RANK - rank) for o in order[RANK - rank :])
        text = self.at_rank(x, rank)
        if moved == (*range(rank - 2), rank - 1, rank - 2):
            return f"{text}.mT", node.shape[-rank:]
        return f"{text}.permute({moved})", node.shape[-rank:]

    def _opaque(self, node: Node) -> tuple[str, tuple[Dim, ...]]:
        shapes = node["shapes"]

        def text(code: Any) -> str:
            if isinstance(code, tuple) and code and code[0] == "$":
                source, true = node.inputs[code[1]], shapes[code[1]]
                name, written = self.name(source)
                if source.op == "scalar":
                    name = self._filled(source, ())
                if written == tuple(true):
                    return name
                return f"{name}.reshape({shape_text(true, self.sizes)})"
            if isinstance(code, tuple) and code and code[0] == "[]":
                return "[" + ", ".join(text(c) for c in code[1:]) + "]"
            if isinstance(code, tuple) and code and code[0] == "@":
                return str(code[1])  # one of forward's parameters
            if code == ("device", ""):
                return self.device or "torch.get_default_device()"
            if isinstance(code, tuple) and code and code[0] in ("device", "torch"):
                return f"torch.device({code[1]!r})" if code[0] == "device" else str(code[1])
            if isinstance(code, Sym):
                return code.text(self.sizes)
            return repr(code) if isinstance(code, str) else python_literal(code)

        args = [text(a) for a in node["args"]] + [f"{k}={text(v)}" for k, v in node["kwargs"]]
        target = str(node["target"])  # a function of torch or, as a rule, an operator of aten
        where = "" if target.startswith("torch.") else "torch.ops."
        call = f"{where}{target}({', '.join(args)})"
        if node["index"] is not None:
            call += f"[{node['index']}]"
        if self.double and not node.inputs and node.is_float:
            call += ".double()"
        rank: int = node["rank"]
        return call, node.shape[-rank:] if rank > 0 else ()


def describe(node: Node, depth: int = 4) -> str:
    """A parametric expression in short words, for a docstring."""
    if node.row.is_named:
        return str(node["name"])
    if node.op == "scalar":
        return str(node["value"])
    if depth == 0:
        return "..."
    inner = [describe(i, depth - 1) for i in node.inputs]
    name = str(node["target"]).split(".")[1] if node.op == "aten" else node.op
    if node.row.is_arithmetic and node.row.infix is not None:
        return "(" + node.row.infix.join(inner) + ")"
    axes = node.get("axes")
    return f"{name}({', '.join(inner)}{f', axes {list(axes)}' if axes else ''})"


def identifier(path: str) -> str:
    """A dotted name as a Python identifier."""
    text = re.sub(r"\W+", "_", path).strip("_")
    return text if text and not text[0].isdigit() else f"p_{text}"
