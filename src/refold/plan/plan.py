"""A plan: a list of steps in an order that can run.

Steps are groups (one generated kernel each), calls of PyTorch, and the folds that they read. A
group has an iteration space of `rows` by `width`: the last axis is the width, the axes before it
are the rows. A family of kernels (`families/`) computes each group:

- matmul: the product of rows of x with a weight; its epilogue is pointwise; its values are stored,
  reduced along each row, or reduced down each column. On a GPU also a batch of products, each with
  a weight of its own, whose values are stored.
- convolution: a convolution and its pointwise epilogue, whose value is stored; on a GPU windows of
  it, too, or passes over the channels of each place, and what is pointwise behind them.
- rows: passes over each row; a pass may use what the passes before it have reduced.
- channels: passes over one axis before the last, for each place; as rows, but that places lie next
  to each other.
- columns: a reduction over the rows for each column of each outer slice.
- pointwise: each element once.
- attention: of tokens of several heads, each by all keys, without their scores in memory.
- pooling: windows of images; its space is the image's, and what it stores has a space of its own.

What a column is reduced to may be followed by more, vectors of one value a column, in the same
kernel: batch norm's factor and its running buffers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from refold.ir import HALF_DTYPES, OPS, Dim, Graph, Kind, Node, Output, Sym, numel
from refold.ir.graph import memory_of, topological, within
from refold.ir.ops import ATTENTIONS, CONVOLUTIONS
from refold.ir.shapes import RANK
from refold.plan.buffers import Buffers
from refold.plan.convolution import ConvolutionKernel
from refold.plan.memory import is_narrowing, is_widening, source
from refold.plan.product import ProductKernel
from refold.plan.rows import ChannelsSchedule, RowsSchedule


def _is_plain_number(node: Node) -> bool:
    """A number between 2**-20 and 2**20, which moves nothing out of a dtype's range."""
    value = node["value"] if node.op == "scalar" else None
    return isinstance(value, (int, float)) and 2.0**-20 <= abs(value) <= 2.0**20


@dataclass(frozen=True)
class Fold:
    """A folded parameter: computed from parameters alone, cached until one of them changes."""

    name: str
    node: Node
    sources: tuple[Node, ...]

    @property
    def may_leave_range(self) -> bool:
        """May it be too large or too small for its dtype, though its sources are not?

        Rules that are marked `range` make products of parameters; what the model itself computes of
        its parameters is asked, too, where it is a product.
        """
        if self.node.dtype not in (torch.float32, *HALF_DTYPES):
            return False
        inner = (n for n in topological([self.node]) if n.is_float and n.row.multiplies)
        return any(not any(map(_is_plain_number, n.inputs)) for n in inner)


@dataclass(frozen=True)
class Quantized:
    """A value that lies in 16 bits between the product that makes it and the pointwise kernels that
    read it, where it has `rows` or more."""

    value: Node
    rows: int


@dataclass(frozen=True)
class Group:
    """One generated kernel.

    family: whose kernel it is. dims: the iteration space, rank 5; the last is the width.
    nodes: what it computes, inputs first. inputs: values made elsewhere. outputs: values that
    others read, in the order of nodes. memory: the dtype of inputs and outputs where they lie.
    real: the dtype of the kernel's arithmetic. counters: integers in buffers, to which the kernel
    adds a number, as (the sum, the buffer). transposed: sides of the product that are read from a
    value that lies the other way round. quantized: what it stores, or reads, in 16 bits. kernel: of
    a product or a convolution on a GPU, how it is cut and in which form it reads its sides.
    rows_schedule: of a kernel of rows or channels on a GPU, or of a pointwise one, how it is cut.
    again: what other kernels compute, too, and all have to have the same bits of. images: of one
    among whose images are some with their channels last, the number of their places. last: whether
    it passes over such images and stores such. turned: images that it reads and that lie in the
    other order than it passes over them.
    """

    name: str
    family: str
    dims: tuple[Dim, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    memory: Mapping[Node, torch.dtype] = field(default_factory=dict, compare=False)
    real: torch.dtype = torch.float32
    counters: tuple[tuple[Node, Node], ...] = ()
    transposed: tuple[Node, ...] = ()
    quantized: Quantized | None = None
    kernel: ProductKernel | ConvolutionKernel | None = None
    rows_schedule: RowsSchedule | ChannelsSchedule | None = None
    again: tuple[Node, ...] = ()
    images: int = 0
    last: bool = False
    turned: tuple[Node, ...] = ()

    def stored(self, node: Node) -> torch.dtype:
        """The dtype of an input or output in memory."""
        return self.memory.get(node, node.dtype)

    @property
    def channels_last(self) -> tuple[Node, ...]:
        """What lies with its channels last of what it reads and stores."""
        if not self.last:
            return self.turned
        every = (*self.images_read, *self.outputs)
        return tuple(n for n in every if n not in self.turned)

    @property
    def images_read(self) -> tuple[Node, ...]:
        """What it reads of its space's shape, and the image of a convolution."""
        whole = tuple(n for n in self.inputs if n.shape == self.dims)
        if not any(n.op in CONVOLUTIONS for n in self.nodes):
            return whole
        image, kernels = self.sides
        return (image, *(n for n in whole if n not in (image, kernels)))

    @property
    def has_narrow(self) -> bool:
        """Whether the kernel reads, writes or rounds to elements of 16 bits."""
        stored = {self.stored(n) for n in (*self.inputs, *self.outputs)}
        return bool(stored & set(HALF_DTYPES)) or any(map(is_narrowing, self.nodes))

    @property
    def sides(self) -> tuple[Node, ...]:
        """Of a product or a convolution: its two operands as they lie in memory."""
        return tuple(
            i.inputs[0] if i in self.transposed else source(i) for i in self.product.inputs[:2]
        )

    @property
    def whole(self) -> tuple[Node, ...]:
        """What its kernel reads otherwise than element by element of its space: the sides of a
        product, all that attention reads."""
        if any(n.op in ATTENTIONS for n in self.nodes):
            return self.inputs
        return self.sides if self.is_product else ()

    @property
    def is_transposed(self) -> tuple[bool, ...]:
        """Of a product: of each side, whether it lies the other way round: [depth, rows]."""
        return tuple(i in self.transposed for i in self.product.inputs)

    def __post_init__(self) -> None:
        if self.is_product:
            beside = [n for n in self.outputs if n.shape == self.dims and n is not self.value]
            assert not beside, f"{self.name} stores one value; {beside} would be read too"

    @property
    def rows(self) -> Dim:
        return numel(self.dims[:-1])

    @property
    def width(self) -> Dim:
        return self.dims[-1]

    @property
    def is_product(self) -> bool:
        """Whether it multiplies two sides: a product or a convolution."""
        return any(map(is_of_two_sides, self.nodes))

    @property
    def product(self) -> Node:
        return next(filter(is_of_two_sides, self.nodes))

    @property
    def batches(self) -> Dim:
        """Of a product: how many there are, each of as many of the rows with its own weight."""
        return numel(self.product.inputs[1].shape[:-2])

    @property
    def value(self) -> Node:
        """Of a product: the epilogue's result, the one value that is stored and reduced."""
        return last_full(self.nodes, self.dims)

    @property
    def reductions(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if OPS[n.op].kind is Kind.REDUCE)

    @property
    def column_results(self) -> tuple[Node, ...]:
        """What follows from the results of whole columns, one value a column."""
        if not reduces_columns(self.nodes, self.dims):
            return ()
        shape = column_shape(self.dims)
        pointwise = (n for n in self.nodes if OPS[n.op].kind is Kind.POINTWISE)
        return tuple(n for n in pointwise if n.shape == shape and not is_rematerialized(n))


@dataclass(frozen=True)
class ExternCall:
    """One op computed by PyTorch (a view, a batched product, an opaque call)."""

    node: Node


Step = Group | ExternCall


@dataclass(frozen=True)
class Plan:
    """What is computed, by which steps, and where it lies.

    memory: the dtype of each value in memory, where it is another than the graph's. images_last:
    whether the example's images lie with their channels last. buffers: the memory of all values.
    """

    graph: Graph
    folds: tuple[Fold, ...]
    steps: tuple[Step, ...]
    memory: Mapping[Node, torch.dtype] = field(default_factory=dict, compare=False)
    images_last: bool = False
    buffers: Buffers = field(default=Buffers(), compare=False)

    def stored(self, node: Node) -> torch.dtype:
        """The dtype of a value in memory."""
        return self.memory.get(node, node.dtype)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.graph.outputs

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(s for s in self.steps if isinstance(s, Group))


def counters(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """(a buffer plus a number, the buffer) of each that is so written, and read by nothing else."""
    states = {n["name"]: n for n in graph.nodes() if n.op == "state"}
    roots = graph.roots()
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes():
        for i in node.inputs:
            readers.setdefault(i, []).append(node)
    for out in graph.outputs:
        state, value = states.get(out.mutates or ""), out.value
        if state is None or value.op != "add" or value.inputs[0] is not state:
            continue
        number = value.inputs[1]
        fixed = number.op == "scalar" and not isinstance(number["value"], Sym)
        alone = readers[state] == [value] and value not in readers and state not in roots
        alike = value.shape == state.shape and value.dtype == state.dtype
        if fixed and alone and alike and roots.count(value) == 1:
            yield value, state


def aliased_states(plan: Plan) -> set[Node]:
    """Buffers of which a result, or another buffer, gets what was there before, or a view of it."""
    made = {o for g in plan.groups for o in g.outputs}
    todo = list(plan.graph.roots())
    found = set(todo)
    for node in todo:  # which grows
        if node not in made and OPS[node.op].kind in (Kind.MOVE, Kind.OPAQUE):
            todo += [i for i in node.inputs if i not in found]
            found.update(node.inputs)
    return {n for n in found if n.op == "state"}


def outputs_to_copy(plan: Plan) -> set[Output]:
    """Results of a value that another result, or an argument, has in other memory of its own."""
    owners: dict[Node, str] = {}
    found = set()
    for out in plan.outputs:
        made = out.value
        while made.row.is_view:
            made = made.inputs[0]
        if out.mutates is not None or made.op == "scalar":
            continue
        if made.op in ("input", "param", "constant"):
            owners[made] = memory_of(made)
        if owners.setdefault(made, out.memory) != out.memory:
            found.add(out)
    return found


def column_shape(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape of one value for each column of a space."""
    return (*(1 for _ in dims[:-1]), dims[-1])


def reduces_columns(nodes: Iterable[Node], dims: tuple[Dim, ...]) -> bool:
    """Does a kernel reduce columns of several rows as a whole?"""
    shape = column_shape(dims)
    return shape != dims and any(OPS[n.op].kind is Kind.REDUCE and n.shape == shape for n in nodes)


def is_matrix_product(node: Node) -> bool:
    """Is it a product of several features? That of one is a reduction along rows."""
    return node.op == "linear" and node.inputs[1].shape[-2] != 1


def is_of_two_sides(node: Node) -> bool:
    """Is it a contraction that only a kernel for it computes: a product of several features, or a
    convolution?"""
    return is_matrix_product(node) or node.op in CONVOLUTIONS


def exchanges(node: Node) -> bool:
    """Is it another value with its last two axes exchanged?"""
    return node.op == "permute" and node["order"] == (*range(RANK - 2), RANK - 1, RANK - 2)


def is_batch(nodes: Iterable[Node]) -> bool:
    """Is a product among `nodes` one of several weights?"""
    products = (n for n in nodes if n.op == "linear")
    return any(d != 1 for n in products for d in n.inputs[1].shape[:-2])


def last_full(nodes: Iterable[Node], dims: tuple[Dim, ...]) -> Node:
    """The last value of a space that is not reduced."""
    full = [n for n in nodes if OPS[n.op].kind is not Kind.REDUCE and n.shape == dims]
    return [n for n in full if not is_rematerialized(n)][-1]


def is_rematerialized(node: Node) -> bool:
    """Is it computed by each of its readers, and never stored? Comparisons, widening and
    arithmetic with sizes are."""
    if is_widening(node):
        return True
    if OPS[node.op].kind is not Kind.POINTWISE or not node.inputs:
        return False
    return node.dtype == torch.bool or all(i.op == "scalar" for i in node.inputs)


def beside(node: Node) -> list[Node]:
    """What is computed beside `node` for it, inputs first."""
    return within(node.inputs, is_rematerialized)


def values_read(node: Node) -> list[Node]:
    """The inputs of `node`, those of what is computed beside it in their place."""
    values: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(reversed(node.inputs))
    while stack:
        i = stack.pop()
        if not is_rematerialized(i):
            values.setdefault(i)
        elif i not in seen:
            seen.add(i)
            stack.extend(reversed(i.inputs))
    return list(values)


def reads_numbers(node: Node, kinds: Collection[torch.dtype]) -> bool:
    """Are a value's inputs of some dtypes, but for masks in memory that are read as numbers?"""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        reader = stack.pop()
        for i in reader.inputs:
            if is_widening(i):
                if i.dtype not in kinds or i.inputs[0].dtype not in (*kinds, torch.bool):
                    return False
            elif reader.op != "cast" and is_rematerialized(i):
                if i not in seen:
                    seen.add(i)
                    stack.append(i)
            elif i.dtype not in kinds:
                return False
    return True


def reads(node: Node) -> tuple[Node, ...]:
    """What a call of PyTorch reads: a product or a move takes values as they lie in memory."""
    as_stored = node.op == "linear" or OPS[node.op].kind is Kind.MOVE
    return tuple(map(source, node.inputs)) if as_stored else node.inputs


def leading(axes: tuple[int, ...], shape: tuple[Dim, ...]) -> bool:
    """Are the reduced axes one run that ends just before the last axis?"""
    wide = [a for a in axes if shape[a] != 1]
    if not wide or -1 in axes:
        return False
    return all(a in axes or shape[a] == 1 for a in range(min(wide), -1))
