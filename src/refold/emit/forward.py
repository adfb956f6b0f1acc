"""A plan as the statements of a fast forward: where values lie, and when, the plan has decided."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from refold.capture import Captured
from refold.capture.containers import walk_leaves
from refold.capture.forms import Given, OutputIndex, Viewed
from refold.codegen.launch import Launch, Scope
from refold.codegen.text import Writer, identifier, leaf_shape, row_major, shape_text, stripped
from refold.emit import quantized
from refold.emit.guards import attribute
from refold.emit.results import Structure, image_paths
from refold.emit.target import Target
from refold.ir import Dim, Kind, Node, Output
from refold.plan import ExternCall, Fold, Group, Plan
from refold.plan.buffers import InPlaceOf, StateOf, ViewOf, Written
from refold.plan.memory import source
from refold.plan.plan import reads
from refold.plan.product import Pack
from refold.plan.roles import roles


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
    as_they_lie: frozenset[Node] = frozenset()
    channels_last: frozenset[Node] = frozenset()
    alone: bool = False


_NAMES = {"linear": "product", "slice": "part"}  # of values, where not as their op
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
        found = {*captured.symbol_sources(), *captured.numbers}
        symbols = [*sorted(found), *captured.derived]
        free = (name for i in count() if (name := f"n{i}") not in self.taken)
        self.sizes = dict(zip(symbols, free, strict=False))
        self.roles = roles(plan.graph.nodes())
        results = [o.value for o in plan.outputs if o.mutates is None]
        self.results = set(results) if len(results) == 1 else set()
        self.as_stored = False  # whether values are written as they lie in memory
        self.wholes: dict[str, str] = {}  # calls of several results: their text and their variable
        self.used: set[str] = set()  # names that variables have got
        self.numbers: Counter[str] = Counter()  # how many of them began alike
        # how many results of one call of PyTorch are read
        self.calls = Counter(_call_of(n) for n in plan.graph.nodes() if n.op == "aten")
        self.quantized: dict[Node, str] = {}  # values that may lie so, and where
        self.structure = Structure(captured, class_names, self.sizes, self._device())

    def write(self) -> ForwardText:
        self._leaves()
        body: list[str] = []
        prefix = "rf_v" if any(re.fullmatch(r"v\d+", name) for name in self.taken) else "v"
        writer = Writer(self.sizes, self._read, prefix=prefix, device=self._device())
        for step in self.plan.steps:
            if isinstance(step, Group):
                body += self._group(step)
            elif step.node in self.plan.buffers.places:
                body += self._call(step, writer)
        result = self._result(writer, body)
        head: list[str] = []
        made = {
            name: f"{place.path}.shape[{axis}]"
            for name, (place, axis) in sorted(self.captured.symbol_sources().items())
        }
        made |= self.captured.numbers
        made |= {name: one.text(self.sizes) for name, one in self.captured.derived.items()}
        later = [*body, *result]
        for name, text in reversed(made.items()):
            if any(re.search(rf"\b{self.sizes[name]}\b", line) for line in later):
                head.insert(0, f"{self.sizes[name]} = {text}")
                later.append(text)
        first = self._first(any(f"= {self.target.empty}(" in line for line in body))
        if any(o.other_strides is not None for o in self.plan.outputs):
            image = image_paths(self.captured)[0]
            alike = "" if self.captured.images_last[0] else "not "
            head.append(f"rf_alike = {alike}_refold_in_channels({image})")
        self.text.lines = [*first, *head, *self._input_lines(), *body, *result]
        return self.text

    # --- leaves ---------------------------------------------------------------------------------
    def _leaves(self) -> None:
        text, prepared = self.text, self.plan.buffers.prepared
        for fold in self.plan.folds:
            text.names[fold.node] = self._unique(fold.name)
            self.shapes[fold.node] = stripped(fold.node.shape, 1)
            text.folds.append(fold)
        text.sources, text.reads = list(prepared.sources), list(prepared.reads)
        text.as_they_lie = prepared.as_they_lie
        text.channels_last = prepared.channels_last
        text.states = [n["name"] for n in self.plan.buffers.states]
        named = {*prepared.reads, *self.plan.buffers.states}
        for n in self.plan.graph.nodes():
            if n in named:
                text.names[n] = self._unique(identifier(n["name"]))
                self.shapes[n] = leaf_shape(n)
            elif n.op == "input":
                field_ = self.captured.tensors[n["index"]]
                assert field_.shape is not None
                self.shapes[n] = field_.shape
                plain = field_.path.isidentifier() and field_.path not in self.untouched
                text.names[n] = field_.path if plain else self._unique(identifier(field_.path))

    def _input_lines(self) -> list[str]:
        states = [self.text.names[n] for n in self.plan.buffers.states]
        lines = [f"{_unpacked(states)} = rf_cache.states"] if states else []
        for n, name in self.text.names.items():
            if n.op == "input":
                path = self.captured.tensors[n["index"]].path
                if n in self.plan.buffers.dense:
                    lines.append(f"{name} = {path}.contiguous()")
                elif name != path:
                    lines.append(f"{name} = {path}")
            elif n.op == "state" and n in self.plan.buffers.copied:
                lines.append(f"{name} = {name}.clone()")
        return lines

    def _unique(self, base: str) -> str:
        if not self.used:
            self.used |= self.taken | set(self.sizes.values())
        while True:
            self.numbers[base] += 1
            number = self.numbers[base]
            between = "_" if base[-1].isdigit() else ""
            name = f"{base}{between}{number}" if number > 1 else base
            if name not in self.used:
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
        base = _NAMES.get(node.op, node.op)
        if node in self.roles and node.kind is not Kind.REDUCE:  # a mean is better called so
            base = self.roles[node]
        if node.op == "aten":
            base = str(node["target"]).split(".")[1]
        if node in self.results:
            base = "result"
        base = identifier(base)
        if hasattr(builtins, base) or keyword.iskeyword(base):
            base = f"{base}_"
        name = self.text.names[node] = self._unique(base)
        return name

    def _group(self, group: Group) -> list[str]:
        kernel, buffers, names = group.kernel, self.plan.buffers, self.text.names
        given = buffers.given.get(group.name, ())
        lines = [line for pack in given for line in self._pack(pack)]
        written = []  # buffers
        for out in group.outputs:
            places = buffers.turned.get(out)
            self.shapes[out] = stripped(out.shape, 1 if places is None else places + 2)
            place = buffers.places[out]
            if isinstance(place, StateOf):
                names[out] = names[place.state]
                # PyTorch has to know of these writes, as it does of its own
                written += [names[out]] * self._is_counted(place.state["name"])
                continue
            memory = names[place.node] if isinstance(place, InPlaceOf) else self._empty(out)
            name = self._name(out)
            if kernel is not None and kernel.quantized_from is not None and out is group.value:
                codes = self.quantized[out] = self._unique(f"{name}_codes")
                least, empty = kernel.quantized_from, self.target.empty
                made = quantized.memory(group, least, empty, self.sizes)
                lines.append(f"{codes} = {made}")
            told = "  # in its place" if isinstance(place, InPlaceOf) else ""
            lines.append(f"{name} = {memory}{told}")
        counters = [state for _, state in group.counters]
        operands = {i: names[i] for i in (*group.inputs, *counters) if i in names}
        results = {o: names[o] for o in group.outputs}
        packed = {pack[0]: self.text.packed[pack] for pack in given}
        codes = self.quantized.get(group.quantized.value, "0") if group.quantized else "0"
        lies = buffers.by_strides
        scope = Scope(operands, results, self.sizes, packed, codes, lies)
        lines += self.launches[group.name](scope)
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

    def _pack(self, pack: Pack) -> list[str]:
        """Statements that pack a value; none where it is packed, or prepared with parameters."""
        text, (node, form) = self.text, pack
        if pack in text.packed:
            return []
        name = text.packed[pack] = self._unique(f"{text.names[node]}_packed")
        if pack in self.plan.buffers.prepared.packs:
            text.packs.append(pack)
            return []
        return [f"{name} = _refold_{form}({text.names[node]})"]

    def _empty(self, out: Node) -> str:
        """Memory for a value, on the device of the arguments, row after row, or with its channels
        last."""
        shape = self.shapes[out]
        steps = row_major(shape)
        if out in self.plan.buffers.turned:
            images, channels, *places = shape
            first, *inner, last = row_major((images, *places, channels))
            steps = (first, last, *inner)
        sizes, strides = (shape_text(s, self.sizes) for s in (shape, steps))
        return f"{self.target.empty}({sizes}, {strides}, {self.plan.stored(out)})"

    def _written_place(self, name: str) -> str:
        """The text of what takes a new value: a buffer of the module."""
        return attribute(name)

    def _first(self, allocates: bool) -> list[str]:
        """The statements before all others. allocates: whether memory is asked for."""
        prepared = bool(self.text.folds or self.text.reads)
        self.text.alone = prepared and not self.plan.groups
        return self.target.prologue(prepared, allocates, self.text.alone, "rf_cache.device")

    def _device(self) -> str:
        return f"{self.captured.tensors[0].path}.device"

    def _call(self, call: ExternCall, writer: Writer) -> list[str]:
        node = call.node
        place = self.plan.buffers.places[node]
        if isinstance(place, ViewOf):
            self.text.names[node] = self.text.names[place.node]
            return []
        # a product or a move takes values as they lie in memory, in one dtype at least
        kinds = {self.plan.stored(i) for i in reads(node)}
        self.as_stored = reads(node) != node.inputs or self.plan.stored(node) != node.dtype
        self.as_stored &= kinds == {self.plan.stored(node)}
        writer = replace(writer, values={})  # how a value is read depends on the call
        before = len(writer.lines)
        last = self._channels_last(node, writer) if node in self.plan.buffers.turned else ""
        text, shape = writer.expression(node)
        lines = writer.lines[before:]
        self.as_stored = False
        if node.op == "aten" and node["index"] is not None:
            whole = text[: text.rindex("[")]
            if whole not in self.wholes and self.calls[_call_of(node)] > 1:
                self.wholes[whole] = self._unique(f"results{len(self.wholes) + 1}")
                lines.append(f"{self.wholes[whole]} = {whole}")
            if whole in self.wholes:
                text = f"{self.wholes[whole]}[{node['index']}]"
        name = self.text.names.get(node) or self._name(node)
        self.shapes[node] = shape
        if node in self.plan.buffers.dense:  # a cast, too, lies as what it casts
            text = f"{text}.contiguous()"
        return [*lines, f"{name} = {text}{last}"]

    def _channels_last(self, node: Node, writer: Writer) -> str:
        """The text that lays out a convolution's result with its channels last, as it lies where
        its image does. The call is given its image so."""
        rank, image = len(node["strides"]) + 2, node.inputs[0]
        kind = "channels_last" if rank == 4 else "channels_last_3d"
        last = f".contiguous(memory_format=torch.{kind})"
        if image in self.plan.buffers.turned:
            return last
        name = self._name(node)  # which the result takes over, so that the copy is gone behind it
        writer.lines.append(f"{name} = {writer.at_rank(image, rank)}{last}")
        writer.values[image] = name, image.shape[-rank:]
        return last

    # --- result ---------------------------------------------------------------------------------
    def _result(self, writer: Writer, body: list[str]) -> list[str]:
        lines = []
        texts: list[str] = []
        for out, handed in zip(self.plan.outputs, self.plan.buffers.handed, strict=True):
            if handed.written is Written.BY_KERNEL:
                continue
            if handed.written is Written.ADDED:
                place = self._written_place(str(out.mutates))
                lines.append(f"{place}.add_({out.value.inputs[1]['value']!r})")
                continue
            before = len(writer.lines)
            name, shape = writer.name(out.value)
            lines += writer.lines[before:]
            if out.value.op == "scalar":
                name = writer.at_rank(out.value, 0)
            if handed.cloned:
                name = f"{name}.clone()"
            if tuple(shape) != tuple(out.shape):
                name = f"{name}.reshape({shape_text(out.shape, self.sizes)})"
            if out.mutates is not None:
                data = "" if self._is_counted(out.mutates) else ".data"
                lines.append(f"{self._written_place(out.mutates)}{data}.copy_({name})")
                continue
            texts.append(f"{name}.contiguous()" if handed.ordered else self._laid_out(out, name))
        trees = (self.captured.result, *self.captured.assigned.values())
        slots = [
            leaf.index for tree in trees for leaf in walk_leaves(tree) if type(leaf) is OutputIndex
        ]
        for i, name in enumerate(texts):
            if slots.count(i) > 1 and not name.isidentifier():  # one tensor in several places
                texts[i] = self._unique(f"result{i}")
                lines.append(f"{texts[i]} = {name}")
        for path, tree in self.captured.assigned.items():
            lines.append(f"{attribute(path)} = {self.structure.text(tree, texts)}")
        return [*lines, f"return {self.structure.text(self.captured.result, texts)}"]

    def _laid_out(self, out: Output, name: str) -> str:
        """A result in the strides that eager gives it, where they are not those of its shape."""
        if out.other_strides is not None:
            mine = out.strides or row_major(out.shape)
            both = (shape_text(s, self.sizes) for s in (mine, out.other_strides))
            return f"_refold_laid_out({name}, {' if rf_alike else '.join(both)})"
        if out.strides is not None:
            return f"_refold_laid_out({name}, {shape_text(out.strides, self.sizes)})"
        return name


def _unpacked(names: Sequence[str]) -> str:
    """The targets of an assignment that takes a tuple apart."""
    return ", ".join(names) + ("," if len(names) == 1 else "")


def _call_of(node: Node) -> tuple[object, ...]:
    """What results of one call of PyTorch have in common."""
    attrs = tuple((k, v, type(v)) for k, v in node.attrs if k not in ("index", "rank"))
    return node.inputs, attrs
