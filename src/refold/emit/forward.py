"""A plan as the statements of a fast forward."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch

from refold.capture import Captured
from refold.capture.containers import Given, Slot, Viewed, plain_text, walk_leaves, written
from refold.codegen.launch import Launch, Scope
from refold.codegen.text import Writer, identifier, leaf_shape, row_major, shape_text, stripped
from refold.emit import quantized
from refold.emit.guards import attribute
from refold.emit.target import Target
from refold.ir import OPS, Dim, Kind, Node, Output, Sym
from refold.ir.graph import topological
from refold.ir.ops import CONVOLUTIONS
from refold.plan import Call, Fold, Group, Plan
from refold.plan.layout import places_of, turned_back, turned_forth, weights
from refold.plan.memory import source
from refold.plan.plan import counters, reads, shared, shown
from refold.plan.product import Pack


@dataclass
class ForwardText:
    """The emitted text of one mode.

    lines: the statements. sources: parameters and constants that they read, folds among them.
    states: names of written buffers. Prepared values, which calls reuse until a source changes:
    folds; reads, parameters as they are; packs, a packed form of one of these. names, packed: the
    variable that holds each value, and each packed form. as_they_lie: the reads of which calls
    alone read the memory. channels_last: the folds that are laid out so. alone: whether no kernel
    of ours reads prepared values.
    """

    lines: list[str] = field(default_factory=list)
    sources: list[Node] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)
    reads: list[Node] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    names: dict[Node, str] = field(default_factory=dict)
    packed: dict[Pack, str] = field(default_factory=dict)
    as_they_lie: set[Node] = field(default_factory=set)
    channels_last: set[Node] = field(default_factory=set)
    alone: bool = False


LOCALS = ("rf_alike", "rf_cache", "rf_device", "rf_stream", "rf_empty")  # of targets' statements


class ForwardWriter:
    """Writes the forward of one mode."""

    def __init__(
        self,
        captured: Captured,
        plan: Plan,
        launches: Mapping[str, Launch],
        target: Target,
        class_names: Mapping[type, str],
    ) -> None:
        self.captured = captured
        self.class_names = class_names
        self.plan = plan
        self.launches = launches
        self.target = target
        self.text = ForwardText()
        self.shapes: dict[Node, tuple[Dim, ...]] = {}
        # forward's own parameters keep their names
        self.taken = {re.split(r"[.\[]", f.path)[0] for f in captured.fields} | {"self", *LOCALS}
        self.untouched = {
            leaf.path
            for tree in (captured.result, *captured.assigned.values())
            for leaf in walk_leaves(tree)
            if isinstance(leaf, (Given, Viewed))
        }
        symbols = [*sorted(captured.symbol_sources()), *captured.derived]
        free = (name for i in count() if (name := f"n{i}") not in self.taken)
        self.sizes = dict(zip(symbols, free, strict=False))
        self.counter: dict[str, int] = {}
        self.as_stored = False  # whether values are written as they lie in memory
        self.wholes: dict[str, str] = {}  # calls of several results: their text and their variable
        self.shown, self.shared = shown(plan), shared(plan)
        self.used: set[str] = set()  # names that variables have got
        # where values stand in the graph and in the plan; a plan is long, and asked often
        self.nodes = plan.graph.nodes()
        self.roots = set(plan.graph.roots())
        self.folded = {f.node for f in plan.folds}
        self.readers: dict[Node, list[Node]] = {}
        for n in self.nodes:
            for i in dict.fromkeys(n.inputs):
                self.readers.setdefault(i, []).append(n)
        self.made: dict[Node, Group] = {}  # by which kernel a value is stored
        self.inside: dict[Node, list[int]] = {}  # in which kernels it is computed, by their places
        self.read_in: dict[Node, list[int]] = {}  # and which read it from memory
        self.place = {g.name: k for k, g in enumerate(plan.groups)}
        for k, g in enumerate(plan.groups):
            self.made |= {n: g for n in g.outputs if n not in self.made}
            for n in g.nodes:
                self.inside.setdefault(n, []).append(k)
            for n in g.inputs:
                self.read_in.setdefault(n, []).append(k)
        products = [g for g in plan.groups if g.is_product]
        self.sides = {n for g in products for n in g.sides}
        # how many results of one call of PyTorch are read
        self.calls = Counter(_call_of(n) for n in self.nodes if n.op == "aten")
        self.direct = dict(self._direct())
        self.quantized: dict[Node, str] = {}  # values that may lie so, and where
        self.counted = {value for g in plan.groups for value, _ in g.counters}
        called = {s.node for s in plan.steps if isinstance(s, Call)} - self.counted
        self.bumped = {value for value, _ in counters(plan.graph) if value in called}

    def write(self) -> ForwardText:
        self._leaves()
        self._weights()
        body: list[str] = []
        prefix = "rf_v" if any(re.fullmatch(r"v\d+", name) for name in self.taken) else "v"
        writer = Writer(self.sizes, self._read, prefix=prefix, device=self._device())
        for step in self.plan.steps:
            if isinstance(step, Group):
                body += self._group(step)
            elif step.node not in self.bumped and step.node not in self.counted:
                body += self._call(step, writer)
        result = self._result(writer, body)
        head: list[str] = []
        made = {
            name: f"{place.path}.shape[{axis}]"
            for name, (place, axis) in sorted(self.captured.symbol_sources().items())
        }
        made |= {name: one.text(self.sizes) for name, one in self.captured.derived.items()}
        later = [*body, *result]
        for name, text in reversed(made.items()):
            if any(re.search(rf"\b{self.sizes[name]}\b", line) for line in later):
                head.insert(0, f"{self.sizes[name]} = {text}")
                later.append(text)
        prepared = bool(self.text.folds or self.text.reads)
        allocates = any(f"= {self.target.empty}(" in line for line in body)
        self.text.alone = prepared and not self.plan.groups
        first = self.target.prologue(prepared, allocates, self.text.alone)
        if any(o.other_strides is not None for o in self.plan.outputs):
            image = image_paths(self.captured)[0]
            alike = "" if self.captured.images_last[0] else "not "
            head.append(f"rf_alike = {alike}_refold_in_channels({image})")
        self.text.lines = [*first, *head, *self._input_lines(), *body, *result]
        return self.text

    # --- leaves ---------------------------------------------------------------------------------
    def _leaves(self) -> None:
        used = self.nodes
        inner = set(topological(f.node for f in self.plan.folds))
        outer = self.roots
        for fold in self.plan.folds:
            self.text.names[fold.node] = self._unique(fold.name)
            self.shapes[fold.node] = stripped(fold.node.shape, 1)
            self.text.folds.append(fold)
        needed = {i for s in self.plan.steps for i in _read_by(s)}
        for n in used:
            if n not in inner:
                needed.update(n.inputs)
        for n in used:
            if n.op in ("param", "constant"):
                if n in inner or n in needed or n in outer:
                    self.text.sources.append(n)
                if n in needed or n in outer:
                    self.text.reads.append(n)
                    self.text.names[n] = self._unique(identifier(n["name"]))
                    self.shapes[n] = leaf_shape(n)
            elif n.op == "state":
                name = self._unique(identifier(n["name"]))
                self.text.names[n] = name
                self.text.states.append(n["name"])
                self.shapes[n] = leaf_shape(n)
            elif n.op == "input":
                field_ = self.captured.tensors[n["index"]]
                assert field_.shape is not None
                self.shapes[n] = field_.shape
                plain = field_.path.isidentifier() and field_.path not in self.untouched
                name = field_.path if plain else self._unique(identifier(field_.path))
                self.text.names[n] = name

    def _weights(self) -> None:
        """Weights of convolutions alone: PyTorch reads them as they lie; folded ones lie as the
        images."""
        for weight, images in weights(self.nodes).items():
            alone = all(n.op in CONVOLUTIONS for n in self.readers[weight])
            if not alone or weight in self.roots or weight in self.read_in:
                continue
            rank = len(stripped(weight.shape, 1))
            last = places_of(rank) is not None and all(map(self._is_channels_last, images))
            if weight in self.text.reads:
                self.text.as_they_lie.add(weight)
            elif weight in self.folded and last:
                self.text.channels_last.add(weight)

    def _is_channels_last(self, images: Node) -> bool:
        """Whether the example's images lie so: an argument, a call's result, or a kernel's."""
        if images.op == "input":
            return all(self.captured.images_last) and bool(self.captured.images_last)
        if images.op == "aten" or images.op in CONVOLUTIONS:
            return any(turned_forth(r) for r in self.readers[images])
        return turned_back(images) is not None

    def _input_lines(self) -> list[str]:
        lines = []
        for n, name in self.text.names.items():
            if n.op == "input":
                path = self.captured.tensors[n["index"]].path
                if n in self.read_in:
                    lines.append(f"{name} = {path}.contiguous()")
                elif name != path:
                    lines.append(f"{name} = {path}")
            elif n.op == "state":
                copied = ".clone()" if n in self.shown else ""
                lines.append(f"{name} = {attribute(n['name'])}{copied}")
        return lines

    def _unique(self, base: str) -> str:
        if not self.used:
            self.used |= self.taken | set(self.sizes.values())
        name = next(n for k in count(1) if (n := f"{base}{k if k > 1 else ''}") not in self.used)
        self.used.add(name)
        return name

    def _read(self, node: Node) -> tuple[str, tuple[Dim, ...]] | None:
        value = source(node) if self.as_stored else node
        if value not in self.text.names:
            return None
        name = self.text.names[value]
        if not self.as_stored and self.plan.stored(value) != value.dtype:
            name = f"{name}.to({value.dtype})"
        return name, self.shapes[value]

    # --- steps ----------------------------------------------------------------------------------
    def _name(self, node: Node) -> str:
        base = {"linear": "product"}.get(node.op, node.op)
        if node.op == "aten":
            base = str(node["target"]).split(".")[1]
        self.counter[base] = self.counter.get(base, 0) + 1
        name = self._unique(f"{identifier(base)}{self.counter[base]}")
        self.text.names[node] = name
        return name

    def _group(self, group: Group) -> list[str]:
        launch, kernel = self.launches[group.name], group.kernel
        packs = kernel.packs if kernel is not None else ()
        lines = [
            line
            for pack in packs
            if (kernel is not None and pack != kernel.itself) or not self._is_for_one(pack)
            for line in self._pack(pack)
        ]
        for out in group.outputs:
            self.shapes[out] = stripped(out.shape, 1)
            if out in self.direct:
                self.text.names[out] = self.text.names[self.direct[out]]
                continue
            spent = [n for n in launch.overwrites if self._is_spent(n, group)]
            like = out.shape, self.plan.stored(out)
            over = next((n for n in spent if (n.shape, self.plan.stored(n)) == like), None)
            memory = self._empty(out) if over is None else self.text.names[over]
            name = self._name(out)
            if kernel is not None and kernel.quantized_from is not None and out is group.value:
                codes = self.quantized[out] = self._unique(f"{name}_codes")
                least, empty = kernel.quantized_from, self.target.empty
                made = quantized.memory(group, least, empty, self.sizes)
                lines.append(f"{codes} = {made}")
            lines.append(f"{name} = {memory}")
        names = self.text.names
        counters = [state for _, state in group.counters]
        operands = {i: names[i] for i in (*group.inputs, *counters) if i in names}
        results = {o: names[o] for o in group.outputs}
        packed = {p[0]: self.text.packed[p] for p in packs if p in self.text.packed}
        codes = self.quantized.get(group.quantized.value, "0") if group.quantized else "0"
        scope = Scope(operands, results, self.sizes, packed, codes)
        lines += launch.statements(scope)
        # PyTorch has to know of these writes, as it does of its own
        direct = [out for out in group.outputs if out in self.direct]
        written = [names[out] for out in direct if self._is_counted(self.direct[out]["name"])]
        written += [names[state] for state in counters]
        return [*lines, *(f"torch.autograd.graph.increment_version({w})" for w in written)]

    def _is_counted(self, name: str) -> bool:
        """Whether PyTorch counts this forward's write to a buffer. Those of a batch norm's
        statistics it does not: a backward that saved them would refuse to run; the batch norm's own
        counter tells of them."""
        parent, dot, last = name.rpartition(".")
        counter = f"{parent}{dot}num_batches_tracked"
        statistics = last in ("running_mean", "running_var")
        return not statistics or all(o.mutates != counter for o in self.plan.outputs)

    def _is_spent(self, node: Node, group: Group) -> bool:
        """Whether a kernel made the value and none but it, and kernels up to `group`, read it."""
        here, maker = self.place[group.name], self.made.get(node)
        made = maker is not None and self.place[maker.name] <= here
        read_later = any(k > here for k in self.read_in.get(node, ())) or node in self.roots
        readers = self.readers.get(node, ())
        inside = all(any(k <= here for k in self.inside.get(n, ())) for n in readers)
        return made and not read_later and inside

    def _is_for_one(self, pack: Pack) -> bool:
        """Whether one kernel reads the packed form, of a value that each call computes."""
        kernels = (g.kernel for g in self.plan.groups)
        readers = [p for k in kernels if k is not None for p in k.packs if p == pack]
        return len(readers) == 1 and not self._is_prepared(pack[0])

    def _is_prepared(self, node: Node) -> bool:
        return node in self.text.reads or node in self.folded

    def _pack(self, pack: Pack) -> list[str]:
        """Statements that pack a value; none where it is packed, or prepared with parameters."""
        text, (node, form) = self.text, pack
        if pack in text.packed:
            return []
        name = text.packed[pack] = self._unique(f"{text.names[node]}_packed")
        if self._is_prepared(node):
            text.packs.append(pack)
            return []
        return [f"{name} = _refold_{form}({text.names[node]})"]

    def _empty(self, out: Node) -> str:
        """Memory for a value, on the device of the arguments, row after row."""
        shape = self.shapes[out]
        sizes, strides = (shape_text(s, self.sizes) for s in (shape, row_major(shape)))
        return f"{self.target.empty}({sizes}, {strides}, {self.plan.stored(out)})"

    def _device(self) -> str:
        return f"{self.captured.tensors[0].path}.device"

    def _call(self, call: Call, writer: Writer) -> list[str]:
        node = call.node
        if self._lies_alike(node):
            self.text.names[node] = self.text.names[node.inputs[0]]
            return []
        # a product or a move takes values as they lie in memory, in one dtype at least
        kinds = {self.plan.stored(i) for i in reads(node)}
        self.as_stored = reads(node) != node.inputs or self.plan.stored(node) != node.dtype
        self.as_stored &= kinds == {self.plan.stored(node)}
        writer = replace(writer, values={})  # how a value is read depends on the call
        before = len(writer.lines)
        text, shape = writer.expression(node)
        lines = writer.lines[before:]
        self.as_stored = False
        if node.op == "aten" and node["index"] is not None:
            whole = text[: text.rindex("[")]
            if whole not in self.wholes and self._is_read_again(node):
                self.wholes[whole] = self._unique(f"results{len(self.wholes) + 1}")
                lines.append(f"{self.wholes[whole]} = {whole}")
            if whole in self.wholes:
                text = f"{self.wholes[whole]}[{node['index']}]"
        name = self._name(node)
        self.shapes[node] = shape
        if node in self.read_in:  # a cast, too, lies as what it casts
            text = f"{text}.contiguous()"
        return [*lines, f"{name} = {text}"]

    def _lies_alike(self, node: Node) -> bool:
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
            and x in self.text.names
            and self.plan.stored(x) == self.plan.stored(node)
            and node not in self.roots
            and not any(r in self.roots for r in self.readers.get(node, ()) if r.op == "slice")
            and all(r in self.inside for r in readers)
            and node not in self.sides
        )

    def _is_read_again(self, node: Node) -> bool:
        """Whether another result of the same call of PyTorch is read too."""
        return self.calls[_call_of(node)] > 1

    # --- buffers that forward writes ------------------------------------------------------------
    def _mutations(self) -> Iterator[tuple[Node, Node]]:
        """(new value, the buffer's old one) of each buffer that is written and is no result."""
        states = {n["name"]: n for n in self.nodes if n.op == "state"}
        times = Counter(self.plan.graph.roots())
        for out in self.plan.outputs:
            state = states.get(out.mutates) if out.mutates is not None else None
            if state is None or state in self.shown:
                continue
            if times[out.value] == 1 and out.value.shape == state.shape:
                yield out.value, state

    def _direct(self) -> Iterator[tuple[Node, Node]]:
        """Results of pointwise kernels that may go straight into their buffer: nothing but the
        kernel itself, element by element, reads what was there."""
        for value, state in self._mutations():
            g = self.made.get(value)
            if g is None or self.plan.stored(value) != state.dtype:
                continue
            pointwise = all(OPS[n.op].kind is Kind.POINTWISE for n in g.nodes)
            alike = g.vectors  # computed element by element, from values of one shape
            if pointwise and value.shape == g.dims:
                alike = g.nodes
            if value in alike and all(r in alike for r in self.readers.get(state, ())):
                yield value, state

    # --- result ---------------------------------------------------------------------------------
    def _result(self, writer: Writer, body: list[str]) -> list[str]:
        lines = []
        texts: list[str] = []
        for out in self.plan.outputs:
            if out.mutates is not None and (out.value in self.direct or out.value in self.counted):
                continue
            if out.mutates is not None and out.value in self.bumped:
                lines.append(f"{attribute(out.mutates)}.add_({out.value.inputs[1]['value']!r})")
                continue
            before = len(writer.lines)
            name, shape = writer.name(out.value)
            lines += writer.lines[before:]
            if out.value.op == "scalar":
                name = writer.at_rank(out.value, 0)
            if out in self.shared or (out.mutates is None and out.value in self.folded):
                name = f"{name}.clone()"
            if tuple(shape) != tuple(out.shape):
                name = f"{name}.reshape({shape_text(out.shape, self.sizes)})"
            if out.mutates is None and out.other_strides is not None:
                mine = out.strides or row_major(out.shape)
                both = (shape_text(s, self.sizes) for s in (mine, out.other_strides))
                name = f"_refold_laid_out({name}, {' if rf_alike else '.join(both)})"
            elif out.mutates is None and out.strides is not None:
                strides = shape_text(out.strides, self.sizes)
                name = f"_refold_laid_out({name}, {strides})"
            elif out.mutates is None:
                name += self._in_order(out)
            if out.mutates is not None:
                data = "" if self._is_counted(out.mutates) else ".data"
                lines.append(f"{attribute(out.mutates)}{data}.copy_({name})")
            else:
                texts.append(name)
        trees = (self.captured.result, *self.captured.assigned.values())
        slots = [leaf.index for tree in trees for leaf in walk_leaves(tree) if type(leaf) is Slot]
        for i, name in enumerate(texts):
            if slots.count(i) > 1 and not name.isidentifier():  # one tensor in several places
                texts[i] = self._unique(f"result{i}")
                lines.append(f"{texts[i]} = {name}")
        for path, tree in self.captured.assigned.items():
            lines.append(f"{attribute(path)} = {self._structure(tree, texts)}")
        return [*lines, f"return {self._structure(self.captured.result, texts)}"]

    def _in_order(self, out: Output) -> str:
        """What has to be appended so that the result's elements lie one after the other."""
        value = out.value
        while value.op == "reshape":
            value = value.inputs[0]
        ordered = (
            value in self.made or OPS[value.op].kind is Kind.CONTRACT
        )  # all else may lie as what it reads
        return ".contiguous()" if not ordered and out.value.inputs else ""

    def _structure(self, tree: Any, texts: list[str]) -> str:
        """The text of a result, or of what an attribute is set to."""

        def leaf(value: Any) -> str:
            if isinstance(value, Slot):
                return texts[value.index]
            if isinstance(value, Given):
                return value.path
            if isinstance(value, Viewed):
                return self._viewed(value)
            if isinstance(value, Sym):
                return value.text(self.sizes)
            if isinstance(value, torch.device) and value == self.captured.device:
                return self._device()
            return plain_text(value)

        return written(tree, leaf, self.class_names)

    def _viewed(self, view: Viewed) -> str:
        """A view, by the calls that eager makes; in whatever layout its source is."""

        def text(value: Any) -> str:
            if isinstance(value, (list, tuple)):
                return "[" + ", ".join(map(text, value)) + "]"
            if isinstance(value, Sym):
                return value.text(self.sizes)
            if isinstance(value, (torch.layout, torch.memory_format)):
                return str(value)
            return plain_text(value)

        made = view.path
        for target, args, kwargs, index in view.calls:
            parts = [made, *map(text, args), *(f"{k}={text(v)}" for k, v in kwargs)]
            made = f"torch.ops.{target}({', '.join(parts)})"
            made += "" if index is None else f"[{index}]"
        return made


def image_paths(captured: Captured) -> list[str]:
    """Where forward's images are found: its floating tensors of four or five dimensions."""
    return [
        f.path
        for f in captured.tensors
        if f.shape is not None
        and places_of(len(f.shape)) is not None
        and f.dtype is not None
        and f.dtype.is_floating_point
    ]


def _call_of(node: Node) -> tuple[object, ...]:
    """What results of one call of PyTorch have in common."""
    attrs = tuple((k, v, type(v)) for k, v in node.attrs if k not in ("index", "rank"))
    return node.inputs, attrs


def _is_first_part(node: Node) -> bool:
    """True if a value is the first part of another along its outermost axis: both begin at one
    address, and the part's elements lie one after the other."""
    if node.op != "slice" or node["start"] != 0:
        return False
    shape = node.inputs[0].shape
    return all(d == 1 for d in shape[: len(shape) + node["axis"]])


def _read_by(step: Group | Call) -> tuple[Node, ...]:
    return step.inputs if isinstance(step, Group) else reads(step.node)
