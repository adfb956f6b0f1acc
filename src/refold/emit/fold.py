"""The functions of an emitted file that compute its folded parameters, in float64."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Mapping

from refold.codegen.text import Writer, identifier, leaf_shape, shape_text, stripped
from refold.ir import Dim, Node
from refold.ir.literals import bare
from refold.plan import Fold


class _FoldWriter(Writer):
    """Writes a fold: a floating parameter is converted to float64 where it is first read."""

    def __init__(self, arguments: Mapping[Node, str]) -> None:
        super().__init__({}, self._leaf, double=True)
        self.arguments = arguments
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


_FORMATS = {
    4: "memory_format=torch.channels_last",
    5: "memory_format=torch.channels_last_3d",
}


def fold_lines(fold: Fold, last: bool = False) -> tuple[list[str], list[str]]:
    """The arguments and the statements of the function that computes one folded parameter.

    last: whether it is a weight of convolutions of images whose channels lie last, as its own then.
    """
    names = {n: identifier(n["name"]) for n in fold.sources}
    if len(set(names.values())) != len(names):
        names = {n: f"{v}_{i}" for i, (n, v) in enumerate(names.items())}
    writer = _FoldWriter(names)
    text, made = writer.name(fold.node)
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
