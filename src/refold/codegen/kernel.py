"""One group as C++ text that every target shares: the functor, its members, its arguments.

The functor is the body of a template in C++; its family says what stands in it (`Form`). A family's
templates for the CPU and for CUDA give the same names, so the text is the same. What differs, the
entry that Python calls and the statement that calls it, stands in cpp.py and cuda.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from refold.codegen.body import Body, Operand, Reduction, reductions
from refold.codegen.names import Names, at_commas, pointers_text, wrapped
from refold.ir import HALF_DTYPES, Dim, Node, Sym
from refold.plan import Group


def macro(kind: str, name: str, parameters: Sequence[str], called: str) -> str:
    """A function of Python, by a macro of call.h or of the target: what it takes and calls."""
    head, call = f"{kind}({name}, ({', '.join(parameters)}),", f"{called})"
    whole = f"{head} {call}"
    lines = [whole] if len(whole) < 99 else [*at_commas(head, 2, ""), *at_commas(call, 1, "    ")]
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Form:
    """What a family says of the text of each of its kernels, for every target.

    functor: the lines of the functor that follow its members. sizes: (name, size) of what the entry
    takes, in order. base: the struct of its headers that says what functors have unless they say
    otherwise. filled: the size that fills the functor's member after the width, `count`, if any.
    reductions: what a group reduces, and by which monoids.
    """

    functor: Callable[[GroupKernel], list[str]]
    sizes: Callable[[GroupKernel], list[tuple[str, Dim]]]
    base: str = "Bare"
    filled: Callable[[GroupKernel], str | None] = lambda kernel: None
    reductions: Callable[[Group], tuple[Reduction, ...]] = reductions


class GroupKernel:
    """One group as C++: a body for its family's template, and what its entry takes."""

    def __init__(self, group: Group, name: str, form: Form) -> None:
        self.group = group
        self.name = name
        self.form = form
        self.body = Body(group)
        self.times = 1  # groups that it is the kernel of
        self.real = self.body.real
        self.reductions = form.reductions(group)
        self.reduced = {n: r for r in self.reductions for n in r.nodes}
        self.inside = set(group.nodes)
        self.passes: list[set[Node]] = []  # of rows: what each pass reads, and what stores read
        self.members_of = {n: f"y{i}" for i, n in enumerate(group.outputs)}
        self.counter_members = [f"k{i}" for i in range(len(group.counters))]
        self._take_members()

    def rename(self, names: Mapping[Node, str]) -> None:
        """Name the functor's members after what they hold. names: of the values, in Python."""
        unique, body = Names(self.body.reserved), self.body
        for name in body.named_sizes():
            unique.unique(name)
        body.rename(
            {
                o.node: unique.unique(
                    names.get(o.node, "number" if o.kind == "number" else o.member)
                )
                for o in body.operands
                if o.kind != "matrix"
            }
        )
        self.members_of = {n: unique.unique(self._told(names, n)) for n in self.group.outputs}
        states = (state for _, state in self.group.counters)
        self.counter_members = [unique.unique(names.get(n, "calls")) for n in states]
        self._take_members()

    def _told(self, names: Mapping[Node, str], out: Node) -> str:
        """What an output is called; a buffer that is read, too, is written anew."""
        name = names.get(out, self.members_of[out])
        return f"new_{name}" if name in (o.member for o in self.body.operands) else name

    def _take_members(self) -> None:
        members = [o.member for o in self.body.operands]
        members += [*self.body.named_sizes(), *self.members_of.values(), *self.counter_members]
        self.body.taken = {*self.body.reserved, *members}

    # --- shapes of values -------------------------------------------------------------------------
    def is_full(self, node: Node) -> bool:
        return node.shape == self.group.dims

    def full_outputs(self) -> list[Node]:
        return [n for n in self.group.outputs if self.is_full(n)]

    def row_outputs(self) -> list[Node]:
        shape = self.body.row_shape
        return [n for n in self.group.outputs if n.shape == shape and not self.is_full(n)]

    def member(self, node: Node) -> str:
        """The functor's member that says where an output lies."""
        return self.members_of[node]

    # --- the body ---------------------------------------------------------------------------------
    def struct(self) -> str:
        made = self.functor()
        words = ", ".join(dict.fromkeys(n.op for n in self.group.nodes))
        outputs = [(self.body.element(o), self.member(o)) for o in self.group.outputs]
        outputs += [("long", member) for member, _ in self.counters()]
        head = f"struct {self.struct_name()} : {self.form.base} {{"
        beside = f"{head}  // {words}"
        lines, opened = ([], beside) if len(beside) < 99 else (wrapped(words, "// "), head)
        if self.times > 1:
            lines.append(f"// (of {self.times} groups; operands are those of the first)")
        lines.append(opened)
        lines += [f"  {m}" for m in self.inputs()]
        lines += [f"  {m}" for m in pointers_text(outputs)]
        lines += [
            "  long width;" if self.form.filled(self) is None else "  long width, count;",
            *(f"  {line}" for line in made),
            "};",
            "",
        ]
        return self.body.literals("\n".join(lines))

    def functor(self) -> list[str]:
        """The lines of the functor that follow its members."""
        return self.form.functor(self)

    def inputs(self) -> list[str]:
        """Declarations of the functor's inputs, once its functions are written."""
        return self.body.members()

    def struct_name(self) -> str:
        return "".join(p.capitalize() for p in self.name.split("_"))

    def monoids(self, chosen: Sequence[Reduction]) -> str:
        return f"List<{', '.join(r.monoid for r in chosen)}>"

    def function(self, head: str, lines: Sequence[str]) -> list[str]:
        """A function of the functor; on one line if it fits."""
        whole = f"{head} const {{ {' '.join(lines)} }}"
        if len(lines) <= 1 and len(whole) <= 98:
            return [whole]
        return [head + " const {", *(f"  {line}" for line in lines), "}"]

    def counters(self) -> list[tuple[str, int]]:
        """(member, number added) of each buffer that counts calls."""
        values = [value for value, _ in self.group.counters]
        added = [value.inputs[1]["value"] for value in values]
        return list(zip(self.counter_members, added, strict=True))

    # --- what the entry takes ---------------------------------------------------------------------
    def given_members(self) -> str:
        """The C++ parameter that stands for what Python gives of the functor's members."""
        count = len(self.body.pointers()) + len(self.body.numbers())
        count += len(self.body.named_sizes()) + len(self.group.outputs) + len(self.group.counters)
        return f"Members<{self.struct_name()}, {count}> body"

    def sized(self) -> str:
        """C++ of the functor with all its members."""
        filled = self.form.filled(self)
        return f"body.sized(width{f', {filled}' if filled else ''})"

    def parameters(self, sides: Sequence[tuple[str, str]]) -> list[str]:
        """C++ parameters of the entry. sides: (type, name) of what a product reads itself."""
        given = [f"{kind} {name}" for kind, name in sides]
        return [*given, self.given_members(), *(f"long {n}" for n, _ in self.sizes())]

    def pointer(self, node: Node) -> str:
        """C++ type of the address of an input or output, as entries spell it."""
        element = self.body.element(node)
        return f"rf::{element}*" if self.group.stored(node) in HALF_DTYPES else f"{element}*"

    def sizes(self) -> list[tuple[str, Dim]]:
        """(name, size) of what the entry takes."""
        return self.form.sizes(self)

    def given(
        self, operands: Mapping[Node, str], results: Mapping[Node, str], sizes: Mapping[str, str]
    ) -> list[str]:
        """The Python text of `arguments()`."""
        parts = [operands[o.node] for o in self.body.pointers()]
        parts += [self._number(o, sizes) for o in self.body.numbers()]
        parts += [sizes[n] for n in self.body.named_sizes()]
        parts += [results[o] for o in self.group.outputs]
        parts += [operands[state] for _, state in self.group.counters]
        return parts + self.given_sizes(sizes)

    def given_sizes(self, sizes: Mapping[str, str]) -> list[str]:
        """The Python text of `sizes()`."""
        return [d.text(sizes) if isinstance(d, Sym) else str(d) for _, d in self.sizes()]

    @staticmethod
    def _number(operand: Operand, sizes: Mapping[str, str]) -> str:
        value = operand.node["value"]
        return value.text(sizes) if isinstance(value, Sym) else repr(value)
