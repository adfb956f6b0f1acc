"""The functions of an emitted file that compute its folded parameters, in float64."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Mapping

import torch

from refold.codegen.text import Writer, identifier, leaf_shape, shape_text, stripped
from refold.emit.fold_parts import Cuts, Parts, parts_of, with_means
from refold.ir import Dim, Node
from refold.ir.graph import topological
from refold.ir.literals import bare
from refold.ir.op import Rounding
from refold.plan import Fold


class _FoldWriter(Writer):
    """Writes a fold: a floating parameter is converted to float64 where it is first read."""

    def __init__(self, arguments: Mapping[Node, str]) -> None:
        super().__init__({}, self._leaf, double=True)
        self.arguments = arguments
        self.as_asked = _AsAsked(self)
        self.taken = {*arguments.values(), "torch"}
        self.numbers: Counter[str] = Counter()

    def variable(self, node: Node) -> str:
        base = node.op if node.op != "aten" else str(node["target"]).split(".")[1]
        if hasattr(builtins, base) or keyword.iskeyword(base):
            base = f"{base}_"
        while True:
            self.numbers[base] += 1
            name = f"{base}{self.numbers[base] if self.numbers[base] > 1 else ''}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def expression(self, node: Node) -> tuple[str, tuple[Dim, ...]]:
        if not _jumps_by_rounding(node):
            return super().expression(node)
        text, shape = self.as_asked.expression(node)
        return f"({text}).double()" if node.is_float else text, shape

    def _leaf(self, node: Node) -> tuple[str, tuple[Dim, ...]] | None:
        name = self.arguments.get(node)
        if name is None:
            return None
        if node.is_float and node.dtype.itemsize < 8:
            self.lines.append(f"{name}_64 = {name}.double()")
            name = f"{name}_64"
        return name, leaf_shape(node)

    def raw(self, node: Node, rank: int) -> str | None:
        name = self.arguments.get(node)
        if name is None or len(leaf_shape(node)) == rank:
            return name
        if len(leaf_shape(node)) > rank and node.get("rank") is None:
            return name
        return f"{name}.reshape({shape_text(node.shape[-rank:], {})})"


class _AsAsked(Writer):
    """Writes what decides where a fold jumps as PyTorch computes it, in the model's own dtypes.

    The logarithm of 8 over that of 2 is 3 in float64 and less in float32, or the other way around:
    whole rows of a table of buckets would be others.
    """

    def __init__(self, fold: _FoldWriter) -> None:
        super().__init__({}, self._leaf, lines=fold.lines)
        self.fold = fold

    def variable(self, node: Node) -> str:
        return self.fold.variable(node)

    def _leaf(self, node: Node) -> tuple[str, tuple[Dim, ...]] | None:
        if (name := self.fold.arguments.get(node)) is not None:
            return name, leaf_shape(node)
        is_exact = not node.is_float and node.op != "scalar"
        return self.fold.name(node) if is_exact else None


def _jumps_by_rounding(node: Node) -> bool:
    """Does it jump, by what was rounded on the way to it?"""
    if not node.row.jumps and (node.op != "cast" or node.is_float):
        return False
    inner = topological([i for i in node.inputs if i.is_float])
    return any(n.row.rounding is not Rounding.NONE for n in inner if n.inputs)


_FORMATS = {
    4: "memory_format=torch.channels_last",
    5: "memory_format=torch.channels_last_3d",
}


def fold_lines(
    fold: Fold, last: bool = False, in_parts: bool = False
) -> tuple[list[str], list[str]]:
    """The arguments and the statements of the function that computes one folded parameter.

    last: whether it is a weight of convolutions of images whose channels lie last, as its own then.
    in_parts: whether a large one is computed part by part.
    """
    names = {n: identifier(n["name"]) for n in fold.sources}
    if len(set(names.values())) != len(names):
        names = {n: f"{v}_{i}" for i, (n, v) in enumerate(names.items())}
    node = with_means(fold.node)
    parts = parts_of(fold, node) if in_parts and not last else None
    if parts is not None:
        return list(names.values()), _part_lines(fold, parts, names)
    writer = _FoldWriter(names)
    text, made = writer.name(node)
    shape, kind = stripped(fold.node.shape, 1), fold.node.dtype
    text = f"_refold_rounded({text}, {kind})" if fold.may_leave_range else f"{text}.to({kind})"
    if tuple(made) != shape:
        text += f".reshape({shape_text(shape, {})})"
    if (
        len(shape) > 1 or not fold.node.is_float or kind.itemsize == 8
    ):  # else rounding has copied it
        text += f".contiguous({_FORMATS[len(shape)] if last else ''})"
    lines = [*writer.lines, f"return {text}"]
    return [names[n] for n in fold.sources], _joined(lines)


def _part_lines(fold: Fold, parts: Parts, names: Mapping[Node, str]) -> list[str]:
    """The statements of a fold that is computed part by part."""
    arguments: dict[Node, str] = {}
    first: list[str] = []
    for source, (part, cuts) in parts.leaves.items():
        name = names[source]
        while cuts and name in {*names.values(), *arguments.values()}:
            name += "_part"
        arguments[part] = name
        first += [f"{name} = {_narrowed(names[source], cuts)}"] if cuts else []
    writer = _FoldWriter(arguments)
    text, made = writer.name(parts.node)
    shape = stripped(fold.node.shape, 1)
    part_shape = list(shape)
    for axis, length, _ in parts.cuts:
        part_shape[axis] = length
    if tuple(made) != tuple(part_shape):
        text += f".reshape({shape_text(part_shape, {})})"
    kind = torch.float64 if fold.may_leave_range else fold.node.dtype
    inner = [*first, *writer.lines, f"{_narrowed('rf_whole', parts.cuts)}.copy_({text})"]
    whole = f"_refold_rounded(rf_whole, {fold.node.dtype})" if fold.may_leave_range else "rf_whole"
    loops = [f"for rf_{i} in range({count}):" for i, count in enumerate(parts.counts)]
    loops[-1] += "  # parts stay in a processor's cache"
    return [
        f"rf_whole = torch.empty({shape_text(shape, {})}, dtype={kind})",
        *(f"{'    ' * i}{line}" for i, line in enumerate(loops)),
        *(f"{'    ' * len(loops)}{line}" for line in _joined(inner)),
        f"return {whole}",
    ]


def _narrowed(name: str, cuts: Cuts) -> str:
    for axis, length, i in cuts:
        start = f"rf_{i} * {length}" if length > 1 else f"rf_{i}"
        name += f".narrow({axis}, {start}, {length})"
    return name


_WIDTH = 94  # of a statement in a function


def _joined(lines: list[str]) -> list[str]:
    """The same statements, where what is read once stands where it is read, if the line allows."""
    done: list[str] = []
    for i, line in enumerate(lines):
        name, is_set, value = line.partition(" = ")
        uses = [(j, m) for j in range(i + 1, len(lines)) for m in _uses(name, lines[j])]
        if is_set and name.isidentifier() and len(uses) == 1:
            j, use = uses[0]
            before, after = lines[j][: use.start()][-1:], lines[j][use.end() :][:1]
            alone = before == "(" and after in (",", ")")  # an argument
            inner = bare(value) if alone else f"({value})" if value.startswith("-") else value
            joined = lines[j][: use.start()] + inner + lines[j][use.end() :]
            if len(joined) <= _WIDTH:
                lines[j] = joined
                continue
        done.append(f"{name}{is_set}{bare(value)}")
    return done


def _uses(name: str, line: str) -> list[re.Match[str]]:
    return list(re.finditer(rf"(?<![\w.]){re.escape(name)}(?!\w)", line)) if name else []
