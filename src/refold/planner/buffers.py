"""In which memory each value of a plan lies: views, results in place, buffers, packed forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from refold.families import BY_NAME
from refold.ir import OPS, Dim, Kind, Node, Output
from refold.ir.attention import tokens_of
from refold.ir.graph import topological
from refold.ir.ops import ATTENTIONS, CONVOLUTIONS
from refold.ir.shapes import RANK
from refold.plan.buffers import (
    Buffers,
    Fresh,
    Handed,
    InPlaceOf,
    OfPyTorch,
    Place,
    Prepared,
    StateOf,
    ViewOf,
    Written,
)
from refold.plan.layout import places_of, turned_back, turned_forth, weights
from refold.plan.plan import (
    ExternCall,
    Group,
    Plan,
    aliased_states,
    counters,
    outputs_to_copy,
    reads,
)
from refold.plan.product import Pack


def placed(plan: Plan) -> Plan:
    """The plan with its buffers decided."""
    return replace(plan, buffers=_Placer(plan).buffers())


class _Placer:
    """Answers by tables of where values stand: a plan is long, and asked often."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = plan.graph.nodes()
        self.roots = set(plan.graph.roots())
        self.folded = {f.node for f in plan.folds}
        self.readers: dict[Node, list[Node]] = {}
        for n in self.nodes:
            for i in dict.fromkeys(n.inputs):
                self.readers.setdefault(i, []).append(n)
        self.made: dict[Node, int] = {}  # the place of the kernel that stores a value
        self.inside: dict[Node, list[int]] = {}  # of those that compute it
        self.read_in: dict[Node, list[int]] = {}  # and of those that read it from memory
        for k, g in enumerate(plan.groups):
            for n in g.outputs:
                self.made.setdefault(n, k)
            for n in g.nodes:
                self.inside.setdefault(n, []).append(k)
            for n in g.inputs:
                self.read_in.setdefault(n, []).append(k)
        self.turned = {n: g.images for g in plan.groups for n in g.channels_last}
        self.sides = {n for g in plan.groups if g.is_product for n in g.sides}
        self.aliased_states = aliased_states(plan)
        self.counted = {value for g in plan.groups for value, _ in g.counters}
        called = {s.node for s in plan.steps if isinstance(s, ExternCall)} - self.counted
        self.called = called  # also what a kernel computes once more for itself
        self.added = {value for value, _ in counters(plan.graph) if value in called}

    def buffers(self) -> Buffers:
        states = tuple(n for n in self.nodes if n.op == "state")
        otherwise = frozenset(filter(self._may_lie_otherwise, self.read_in))
        by_strides = frozenset(filter(self._is_of_tokens, otherwise))
        return Buffers(
            self.places,
            states,
            frozenset(n for n in states if n in self.aliased_states),
            otherwise - by_strides,
            by_strides,
            self.given,
            self._prepared(),
            tuple(map(self._handed, self.plan.outputs)),
            self.turned,
        )

    # --- where values lie -------------------------------------------------------------------------
    @cached_property
    def places(self) -> dict[Node, Place]:
        found: dict[Node, Place] = {}
        written = dict(self._written())
        groups = iter(range(len(self.plan.groups)))
        for step in self.plan.steps:
            if isinstance(step, Group):
                here = next(groups)
                spent = [
                    n for n in BY_NAME[step.family].overwrites(step) if self._is_spent(n, here)
                ]
                for out in step.outputs:
                    like = (n for n in spent if self._is_alike(n, out))
                    over = next(like, None)
                    if out in written:
                        found[out] = StateOf(written[out])
                    else:
                        found[out] = Fresh() if over is None else InPlaceOf(over)
            elif step.node not in self.added and step.node not in self.counted:
                view = self._is_view(step.node, found)
                found[step.node] = ViewOf(step.node.inputs[0]) if view else OfPyTorch()
        return found

    def _is_of_pytorch(self, node: Node) -> bool:
        return isinstance(self.places.get(node), OfPyTorch)

    def _may_lie_otherwise(self, node: Node) -> bool:
        """Whether what a kernel reads need not lie row after row."""
        if node in self.turned:
            return False  # it lies with its channels last
        whole = node
        while whole.op == "reshape":
            (whole,) = whole.inputs
        if whole in self.made and whole not in self.turned:
            return False  # another shape of a kernel's memory
        return node.op == "input" or (self._is_of_pytorch(node) and not node.row.draws)

    def _is_of_tokens(self, node: Node) -> bool:
        """Whether kernels read it as tokens of attention alone, which may lie apart.

        It is the kernels that are asked: another may read it by another view, which is a node
        between."""
        within = [r for k in self.read_in[node] for r in self.plan.groups[k].nodes]
        return all(r.op in ATTENTIONS for r in within) and all(
            node not in r.inputs[len(tokens_of(r)) :] for r in within
        )

    def _is_alike(self, node: Node, other: Node) -> bool:
        stored = self.plan.stored
        lies = (node in self.turned) == (other in self.turned)
        return lies and (node.shape, stored(node)) == (other.shape, stored(other))

    def _is_spent(self, node: Node, here: int) -> bool:
        """Whether a kernel made the value and none but it, and kernels up to `here`, read it."""
        maker = self.made.get(node)
        made = maker is not None and maker <= here
        read_later = any(k > here for k in self.read_in.get(node, ())) or node in self.roots
        readers = self.readers.get(node, ())
        inside = all(any(k <= here for k in self.inside.get(n, ())) for n in readers)
        return made and not read_later and inside

    def _is_view(self, node: Node, found: dict[Node, Place]) -> bool:
        """Whether a value begins where another does that a kernel made, in another shape or the
        first part of it, and only kernels read it, by its address."""
        x = node.inputs[0] if node.op == "reshape" or _is_first_part(node) else node
        made = x.inputs[0] if x.op == "reshape" and node.op == "slice" else x
        readers = [
            r
            for reader in self.readers.get(node, ())
            for r in (self.readers.get(reader, ()) if _is_first_part(reader) else (reader,))
        ]
        return (
            x is not node
            and made in self.made
            and x in found
            and self.plan.stored(x) == self.plan.stored(node)
            and node not in self.roots
            and not any(r in self.roots for r in self.readers.get(node, ()) if r.op == "slice")
            and all(r in self.inside and r not in self.called for r in readers)
            and node not in self.sides
        )

    def _mutations(self) -> Iterator[tuple[Node, Node]]:
        """(new value, the buffer's old one) of each buffer that is written and is no result."""
        states = {n["name"]: n for n in self.nodes if n.op == "state"}
        times = Counter(self.plan.graph.roots())
        for out in self.plan.outputs:
            state = states.get(out.mutates) if out.mutates is not None else None
            if state is None or state in self.aliased_states:
                continue
            if times[out.value] == 1 and out.value.shape == state.shape:
                yield out.value, state

    def _written(self) -> Iterator[tuple[Node, Node]]:
        """Results of pointwise kernels that may go straight into their buffer: nothing but the
        kernel itself, element by element, reads what was there."""
        for value, state in self._mutations():
            maker = self.made.get(value)
            if maker is None or self.plan.stored(value) != state.dtype:
                continue
            g = self.plan.groups[maker]
            pointwise = all(OPS[n.op].kind is Kind.POINTWISE for n in g.nodes)
            alike = g.column_results  # computed element by element, from values of one shape
            if pointwise and value.shape == g.dims:
                alike = g.nodes
            if value in alike and all(r in alike for r in self.readers.get(state, ())):
                yield value, state

    # --- packed forms -----------------------------------------------------------------------------
    @cached_property
    def given(self) -> dict[str, tuple[Pack, ...]]:
        kernels = {g.name: g.kernel for g in self.plan.groups if g.kernel is not None}
        times = Counter(p for k in kernels.values() for p in k.packs)

        def packs_itself(pack: Pack) -> bool:  # one kernel reads it, and each call computes it
            return times[pack] == 1 and not self._is_prepared(pack[0])

        return {
            name: tuple(p for p in k.packs if p != k.itself or not packs_itself(p))
            for name, k in kernels.items()
        }

    # --- what is prepared -------------------------------------------------------------------------
    def _is_prepared(self, node: Node) -> bool:
        return node in self.folded or (node.op in ("param", "constant") and node in self._needed)

    @cached_property
    def _in_folds(self) -> set[Node]:
        return set(topological(self.folded))

    @cached_property
    def _needed(self) -> set[Node]:
        """What steps read, and roots."""
        found = {i for s in self.plan.steps for i in _read_by(s)} | self.roots
        for n in self.nodes:
            if n not in self._in_folds:
                found.update(n.inputs)
        return found

    def _prepared(self) -> Prepared:
        leaves = [n for n in self.nodes if n.op in ("param", "constant")]
        read = tuple(n for n in leaves if n in self._needed)
        as_they_lie, last = set(), set()
        for weight, images in weights(self.nodes).items():
            # of convolutions alone: PyTorch reads it as it lies; a folded one lies as the images
            alone = all(n.op in CONVOLUTIONS for n in self.readers[weight])
            if not alone or weight in self.roots or weight in self.read_in:
                continue
            if weight in read:
                as_they_lie.add(weight)
            elif weight in self.folded and self._is_image(weight):
                so = all(map(self._is_channels_last, images))
                so = so or self.turned.keys() >= set(self.readers[weight])
                last |= {weight} if so else set()
        packs = dict.fromkeys(p for packs in self.given.values() for p in packs)
        return Prepared(
            tuple(n for n in leaves if n in self._in_folds or n in self._needed),
            read,
            frozenset(as_they_lie),
            frozenset(last),
            tuple(p for p in packs if self._is_prepared(p[0])),
        )

    @staticmethod
    def _is_image(node: Node) -> bool:
        shape: tuple[Dim, ...] = node.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        return places_of(len(shape)) is not None

    def _is_channels_last(self, images: Node) -> bool:
        """Whether the example's images lie so: an argument, a call's result, or a kernel's."""
        if images.op == "input":
            return self.plan.images_last
        if images.op == "aten" or images.op in CONVOLUTIONS:
            return any(turned_forth(r) for r in self.readers[images])
        return turned_back(images) is not None

    # --- results ----------------------------------------------------------------------------------
    @cached_property
    def _shared(self) -> set[Output]:
        return outputs_to_copy(self.plan)

    def _handed(self, out: Output) -> Handed:
        if out.mutates is not None:
            if isinstance(self.places.get(out.value), StateOf) or out.value in self.counted:
                return Handed(Written.BY_KERNEL)
            return Handed(Written.ADDED if out.value in self.added else Written.COPIED)
        cloned = out in self._shared or out.value in self.folded
        strides = out.strides is not None or out.other_strides is not None
        return Handed(None, cloned, not strides and not self._is_in_order(out))

    def _is_in_order(self, out: Output) -> bool:
        """Whether a result's elements lie one after the other: those of kernels and of products do,
        and leaves; all else may lie as what it reads."""
        value = out.value
        while value.op == "reshape":
            value = value.inputs[0]
        made = value in self.made or OPS[value.op].kind is Kind.CONTRACT
        return made or not out.value.inputs


def _is_first_part(node: Node) -> bool:
    """True if a value is the first part of another along its outermost axis: both begin at one
    address, and the part's elements lie one after the other."""
    if node.op != "slice" or node["start"] != 0:
        return False
    shape = node.inputs[0].shape
    return all(d == 1 for d in shape[: RANK + node["axis"]])


def _read_by(step: Group | ExternCall) -> tuple[Node, ...]:
    return step.inputs if isinstance(step, Group) else reads(step.node)
