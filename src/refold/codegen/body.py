"""A group's arithmetic as the body of a C++ functor: the same text for the CPU and for CUDA.

The text works on lanes `V` (a SIMD vector of consecutive columns on the CPU, one float on CUDA) at
a position (row, col). What a value needs is written in the order in which it is needed, each value
once, with the op table's expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from refold.codegen.expression import Text
from refold.codegen.names import pointers_text, reserved
from refold.codegen.statements import Statements
from refold.codegen.text import describe, identifier
from refold.ir import HALF_DTYPES, OPS, Dim, Kind, Node, Sym, numel
from refold.ir import op as ops
from refold.ir.literals import CPP_TYPES, bare
from refold.ir.op import Contraction
from refold.ir.ops import ATTENTIONS
from refold.plan import Group
from refold.plan.memory import is_narrowing
from refold.plan.space import Space, is_reduction


@dataclass(frozen=True)
class Operand:
    """A value that a group reads from memory, or a number that it is given.

    member: its name in the functor. kind: "column" (one value a column), "row" (one value a row),
    "channel" (one value a channel of a convolution), "full", "mixed" (broadcast along some of the
    row axes), "scalar" (one element), "number" (a size passed by value), "matrix" (a side of the
    product, which the template reads itself), "turned" (an image in the other order than the
    kernel's, which the template gives with the position).
    """

    node: Node
    member: str
    kind: str


@dataclass(frozen=True)
class Reduction:
    """One monoid over one value, and the graph nodes that are read off its result.

    second: those of them that are read off the second of its results, if it has two. ready: what
    the first of two results is as it is, others being made of it. none: those that are zero.
    """

    index: int
    monoid: str
    source: Node
    nodes: tuple[Node, ...]
    second: tuple[Node, ...] = ()
    ready: tuple[Node, ...] = ()
    none: tuple[Node, ...] = ()

    @property
    def takes(self) -> str:
        """C++ after its results' type: how a body is given them."""
        return "(&values)[2]" if self.second else "value"

    def text(self, node: Node, count: str) -> str:
        """C++ of a node's value, of a row of `count` elements."""
        if not self.second:
            return result_text(node, self.monoid, "value", count)
        if node in self.ready or node in self.none:
            return "values[0]" if node in self.ready else "0.0f"
        return result_text(node, "", f"values[{int(node in self.second)}]", count)


_FLOAT_LITERAL = re.compile(r"\b(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)f\b")


def _signless(node: Node) -> Node:
    """What a value is but for its sign."""
    while node.op == "neg":
        (node,) = node.inputs
    return node


def _made_of(value: Node, source: Node) -> bool:
    """Whether `value` is computed from `source`, in this kernel or before it."""
    stack, seen = [value], set()
    while stack:
        n = stack.pop()
        if n is source:
            return True
        if n not in seen and n.depth > source.depth:
            seen.add(n)
            stack.extend(n.inputs)
    return False


def reduction_of(node: Node) -> ops.Reduction:
    """How kernels reduce to get `node`."""
    return reduction_of_op(node.op)


def reduction_of_op(op: str) -> ops.Reduction:
    found = OPS[op].reduction
    assert found is not None, f"no kernel reduces by {op}"
    return found


def reductions(group: Group) -> tuple[Reduction, ...]:
    """The group's reductions, those over one value and axes by one monoid merged, in order."""
    found: dict[tuple[str, Node, object], list[Node]] = {}
    taken = {(n.op, n.inputs[0], n["axes"]) for n in group.nodes if n.kind is Kind.REDUCE}
    for node in group.nodes:
        if not is_reduction(node):
            continue
        source = node if node.op == "linear" else node.inputs[0]
        how, axes = reduction_of(node), node.get("axes")
        if (how.state_of, source, axes) in taken:
            how = reduction_of_op(str(how.state_of))
        monoid = how.monoid
        found.setdefault((monoid, source, axes), []).append(node)
    return tuple(
        Reduction(i, monoid, source, tuple(nodes))
        for i, ((monoid, source, _), nodes) in enumerate(found.items())
    )


def result_text(node: Node, monoid: str, result: str, count: str) -> str:
    """C++ for a node's value from the result over `count` elements of a monoid: the op's own, or
    that of the op whose state it may be read from."""
    how = reduction_of(node)
    there = how.state_of is not None and monoid == reduction_of_op(how.state_of).monoid
    return how.text(result, count, dict(node.attrs), there)


class Body:
    """Writes values of one group as C++ statements."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.space = Space(group)
        self.dims, self.row_shape = self.space.dims, self.space.row_shape
        self.inside = set(group.nodes)
        self.real = CPP_TYPES[group.real]
        # What a kernel stores of a value is what it goes on with: a mean of other values than those
        # that are stored would not be theirs, and the variance of equal ones not zero.
        self.rounded = {
            n: CPP_TYPES[group.stored(n)]
            for n in group.outputs
            if group.stored(n) in HALF_DTYPES and not is_narrowing(n)
            if any(n in m.inputs for m in group.nodes)
        }
        self.apart = self._kept_apart()
        self.operands = self._operands()
        self.by_node = {o.node: o for o in self.operands}
        self.reserved = reserved(group.nodes, self.apart)
        self.taken = self.reserved  # names that no variable may have
        self.last_read: set[Node] = set()  # by the last statements: operands, values given

    def rename(self, names: Mapping[Node, str]) -> None:
        """Give operands other names."""
        self.operands = [replace(o, member=names.get(o.node, o.member)) for o in self.operands]
        self.by_node = {o.node: o for o in self.operands}

    def _kept_apart(self) -> set[Node]:
        """Products that the compiler must not fuse with the sums that take them: those computed in
        two places, for a maximum and for the distance from it, or in two kernels. Fused in one
        place alone, the largest value would lie a rounding off the maximum: 3e-5 of values near
        600, and so much of a softmax."""
        again = {n for n in self.group.again if n.row.cpp_apart}
        found = {_signless(r.source) for r in reductions(self.group) if r.monoid == "LogSumExp"}
        found = {n for n in found if n.row.cpp_apart and n in self.inside}
        for node in self.group.nodes:
            if node.row.contraction is Contraction.SUM:
                a, b = (_signless(i) for i in node.inputs)
                for n, other in ((a, b), (b, a)):
                    if n.row.cpp_apart and n in self.inside and _made_of(other, n):
                        found.add(n)
        return found | again

    # --- operands -------------------------------------------------------------------------------
    def _operands(self) -> list[Operand]:
        found = []
        sides = set(self.group.whole)
        for node in self.group.inputs:
            read = [n for n in self.group.nodes if node in n.inputs]
            # widening is no reading
            if node in sides and all(n.row.is_contraction or n.op in ATTENTIONS for n in read):
                found.append(Operand(node, "", "matrix"))
            elif node.op == "scalar":
                if isinstance(node["value"], Sym):
                    found.append(Operand(node, f"c{len(found)}", "number"))
            else:
                found.append(Operand(node, f"p{len(found)}", self.space.access(node)))
        return found

    def load(self, operand: Operand, lanes: str) -> str:
        """C++ that reads an operand at (row, col)."""
        p = operand.member
        if operand.kind == "number":
            return f"lanes<{lanes}>({p})"
        if operand.kind == "scalar":
            return f"scalar<{lanes}>({p})"
        if operand.kind == "row":
            return f"scalar<{lanes}>({p} + row)"
        if operand.kind == "channel":
            return f"scalar<{lanes}>({p} + channel)"
        if operand.kind == "column":
            return f"column<{lanes}>({p}, col)"
        if operand.kind == "full":
            return f"full<{lanes}>({p}, row * width, col)"
        if operand.kind == "turned" and self.space.images is not None:
            return f"in_other_order<{lanes}>({p}, col)"
        if operand.kind == "turned":
            return f"as_last<{lanes}, {self.group.turned.index(operand.node)}>(col)"
        offset = self._mixed_offset(operand)
        if self.space.shape(operand.node.shape)[-1] == 1 and self.dims[-1] != 1:
            return f"scalar<{lanes}>({p} + {offset})"
        addressed = self.space.images is not None and self.group.images
        return f"{'along' if addressed else 'full'}<{lanes}>({p}, {offset}, col)"

    def is_along_width(self, operand: Operand) -> bool:
        """Whether an operand is read column after column."""
        if operand.kind == "mixed":
            return self.space.shape(operand.node.shape)[-1] != 1 or self.dims[-1] == 1
        return operand.kind in ("column", "full")

    def _mixed_offset(self, operand: Operand) -> str:
        """The row's offset in an operand that is broadcast along some of the row axes."""
        dims, shape = self.dims, self.space.shape(operand.node.shape)
        terms = []
        for axis in range(len(dims) - 1):
            if shape[axis] == 1:
                continue
            inner = numel(dims[axis + 1 : -1])
            index = "row" if inner == 1 else f"row / {self.size(inner)}"
            if any(d != 1 for d in dims[:axis]):
                index = f"{index} % {self.size(dims[axis])}"
            stride = numel(shape[axis + 1 :])
            terms.append(f"({index}) * {self.size(stride)}" if stride != 1 else f"({index})")
        return " + ".join(terms) or "0"

    # --- sizes ----------------------------------------------------------------------------------
    def size(self, dim: Dim) -> str:
        """C++ text of a size; named sizes are members of the functor."""
        return f"({dim.text()})" if isinstance(dim, Sym) else f"{dim}L"

    def named_sizes(self) -> list[str]:
        """Names of the sizes that mixed operands need, as members."""
        names: set[str] = set()
        for o in self.operands:
            if o.kind == "mixed":
                for d in (*self.dims[:-1], *self.space.shape(o.node.shape)):
                    if isinstance(d, Sym):
                        names |= d.names()
        return sorted(names)

    def members(self, again: Sequence[Operand] = ()) -> list[str]:
        """Declarations of the functor's members, in the order in which launches fill them.

        again: operands of type Reused, whose addresses say that several passes read them.
        """

        def kind(o: Operand) -> str:
            element, quantized = self.element(o.node), self.group.quantized
            if quantized is not None and o.node is quantized.value:
                return f"ReusedQuantized<{again.index(o)}>"
            return f"Reused<{element}, {again.index(o)}>" if o in again else f"const {element}*"

        lines: list[str] = []
        alike: list[tuple[str, str]] = []  # of those whose names say what they are
        for o in self.pointers():
            told = "" if identifier(describe(o.node)) == o.member else _told(o.node)
            if not told and o not in again:
                alike.append((f"const {self.element(o.node)}", o.member))
            else:
                lines += [*pointers_text(alike), f"{kind(o)} {o.member};{told}"]
                alike.clear()
        lines += pointers_text(alike)
        lines += [f"{self.real} {o.member};{_told(o.node)}" for o in self.numbers()]
        lines += [f"long {name};" for name in self.named_sizes()]
        return lines

    def element(self, node: Node) -> str:
        """C++ type of an input's or output's elements in memory."""
        return CPP_TYPES[self.group.stored(node)]

    def literals(self, line: str) -> str:
        """The op table's text with literals of the kernel's arithmetic."""
        return line if self.real == "float" else _FLOAT_LITERAL.sub(r"\1", line)

    @staticmethod
    def _is_pointer(o: Operand) -> bool:
        return o.kind not in ("number", "matrix")

    def pointers(self) -> list[Operand]:
        return [o for o in self.operands if self._is_pointer(o)]

    def numbers(self) -> list[Operand]:
        return [o for o in self.operands if o.kind == "number"]

    # --- values ---------------------------------------------------------------------------------
    def statements(
        self,
        targets: Iterable[Node],
        known: Mapping[Node, str],
        lanes: str = "V",
        given: Mapping[Node, str] | None = None,
        room: int = 84,
        in_order: bool = False,
        stored: bool = False,
    ) -> tuple[list[str], dict[Node, str]]:
        """Statements that compute `targets`, and the text of each.

        known: values at hand (the accumulator, what rows have been reduced to) and their text.
        lanes: the C++ type that values have here. given: values that an expression gives, which
        is better written once. room: characters that the text of a target may take. in_order:
        whether what is read row by row is read in statements of its own, because C++ leaves open
        in which order an expression reads. stored: whether the targets are stored one after the
        other, where others are read from: all but the first then get variables before.

        What is read once stands where it is read, if the line has room for it.
        """
        writer = Statements(self, known, given or {}, lanes, in_order)
        found = writer.write(list(targets), room, stored)
        self.last_read = writer.read
        return found

    def is_passed_on(self, node: Node) -> bool:
        """Whether it is a widening of what loads give in the kernel's arithmetic anyway."""
        return node.op == "cast" and node in self.inside and not is_narrowing(node)

    def is_read(self, node: Node) -> bool:
        """Whether it is read from memory, or given as a number."""
        return node in self.by_node and not self.is_passed_on(node)

    def as_stored(self, node: Node, text: str) -> str:
        """C++ of a value that has the text `text`, rounded where it is stored and read further."""
        return f"rounded<{self.rounded[node]}>({text})" if node in self.rounded else text

    def argument(self, node: Node, source: Node, text: Text, lanes: str) -> Text:
        """An operand as an op of lanes takes it."""
        literal = source.op == "scalar" and not isinstance(source["value"], Sym)
        if not literal or OPS[node.op].kind is not Kind.POINTWISE:
            return text
        others = [i for i in node.inputs if i is not source]
        if node.row.is_arithmetic and others and not all(i.op == "scalar" for i in others):
            return text
        return Text(f"lanes<{lanes}>({text.code})")


def _told(node: Node) -> str:
    """A comment that says what a member holds, as far as a line has room for it."""
    found = (bare(describe(node, depth)) for depth in (2, 1))
    words = next((w for w in found if len(w) <= 60), "")
    return f"  // {words}" if words else ""


def depends_on(node: Node, targets: set[Node], inside: set[Node]) -> bool:
    """Whether `node` is computed, inside the group, from one of `targets`."""
    stack, seen = [node], set()
    while stack:
        n = stack.pop()
        if n in targets:
            return True
        if n in seen or n not in inside:
            continue
        seen.add(n)
        stack.extend(n.inputs)
    return False
