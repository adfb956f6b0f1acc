"""One group as C++ text that every back end shares: the functor, its members, its arguments.

The functor is the body of a template (matmul, rows, columns) of kernels/cpu or kernels/cuda; both
folders give the same names, so the text is the same. What differs, the entry that Python calls and
the statement that calls it, stands with each target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refold.emit.functor import (
    Body,
    Operand,
    Reduction,
    depends_on,
    reduction_of,
    reductions,
    result_text,
)
from refold.families.walk import WALKS
from refold.ir import NARROW, OPS, Dim, Kind, Node, Sym, numel
from refold.plan import Group


def _read(kind: str, i: int) -> str:
    """C++ that reads the i-th argument of an entry as a pointer, a size or a number."""
    if kind.endswith("*"):
        return f"rf_pointer<{kind[:-1]}>(args[{i}])"
    return f"rf_size(args[{i}])" if kind == "long" else f"{kind}(rf_number(args[{i}]))"


def _operand_text(text: str) -> str:
    """C++ that may be an operand of any other."""
    return f"({text})" if " " in text else text


class GroupKernel:
    """One group as C++: a body for its template, and what its entry takes."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.body = Body(group)
        self.times = 1  # groups that it is the kernel of
        self.real = self.body.real
        self.reductions = reductions(group)
        self.reduced = {n: r for r in self.reductions for n in r.nodes}
        self.inside = set(group.nodes)
        self.flat = (
            group.family in WALKS
            and not self.reductions
            and all(o.kind in ("full", "scalar", "number") for o in self.body.operands)
        )

    # --- shapes of values -------------------------------------------------------------------------
    def _is_full(self, node: Node) -> bool:
        return node.shape == self.group.dims

    def full_outputs(self) -> list[Node]:
        if self.group.family == "columns":
            return []
        return [n for n in self.group.outputs if self._is_full(n)]

    def _row_outputs(self) -> list[Node]:
        shape = self.body.row_shape
        return [n for n in self.group.outputs if n.shape == shape and not self._is_full(n)]

    def member(self, node: Node) -> str:
        return f"y{self.group.outputs.index(node)}"

    def _row_values(self) -> list[Node]:
        """Pointwise values of one per row that follow from reductions."""
        reduced = set(self.reduced)
        return [
            n
            for n in self.group.nodes
            if n not in reduced
            and n.shape == self.body.row_shape
            and not self._is_full(n)
            and OPS[n.op].kind is Kind.POINTWISE
            and n.is_float
            and depends_on(n, reduced, self.inside)
        ]

    # --- the body ---------------------------------------------------------------------------------
    def struct(self) -> str:
        make = {
            "rows": self._rows_struct,
            "pointwise": self._rows_struct,
            "columns": self._columns_struct,
            "matmul": self._matmul_struct,
        }[self.group.family]
        made = make()
        words = ", ".join(dict.fromkeys(n.op for n in self.group.nodes))
        if self.times > 1:
            words += f" (of {self.times} groups; operands are those of the first)"
        members = [
            *self.inputs(made),
            *(f"{self.body.element(o)}* {self.member(o)};" for o in self.group.outputs),
            *(f"long* {member};" for member, _ in self._counters()),
        ]
        lines = [f"// {words}", f"struct {self.struct_name()} {{"]
        lines += [f"  {m}" for m in members]
        lines += [
            "  long width;",
            *(f"  {line}" for line in made),
            *(f"  {line}" for line in self.last_members),
            "};",
            "",
        ]
        return self.body.literals("\n".join(lines))

    # members with a value of their own, which entries do not give
    last_members: tuple[str, ...] = ()

    def inputs(self, functions: Sequence[str]) -> list[str]:
        """Declarations of the functor's inputs, which its functions read."""
        return self.body.members()

    def struct_name(self) -> str:
        return "".join(p.capitalize() for p in self.name.split("_"))

    def _monoids(self, chosen: Sequence[Reduction]) -> str:
        return f"List<{', '.join(r.monoid for r in chosen)}>"

    def _function(self, head: str, lines: Sequence[str]) -> list[str]:
        return [head + " const {", *(f"  {line}" for line in lines), "}"]

    def _rows_struct(self) -> list[str]:
        row_values = self._row_values()
        slots = {n: f"r{i}" for i, n in enumerate([*self.reduced, *row_values])}
        fields = ", ".join(slots.values())
        known = {n: f"lanes<V>(r.{slot})" for n, slot in slots.items()}
        lines = [f"struct Row {{ {f'{self.real} {fields}; ' if fields else ''}}};"]
        lines.append(f"using Monoids = {self._monoids(self.reductions)};")
        count = f"static_cast<{self.real}>(width)"
        for r in self.reductions:
            source = r.source
            own_product = source in r.nodes  # a product of one output feature
            at_hand = {n: t for n, t in known.items() if not (own_product and n is source)}
            if own_product:
                statements, texts = self.body.statements(source.inputs, at_hand)
                x, w = (texts[i] for i in source.inputs)
                text = f"{x} * {w}"
            else:
                statements, texts = self.body.statements([source], known)
                text = texts[source]
            lines += self._function(
                f"template <class V, class C> RF_FN V term(Step<{r.index}>, const Row& r, long row,"
                " C col)",
                [*statements, f"return {self._lanes_text(text, source)};"],
            )
            setters = [f"r.{slots[n]} = {r.text(n, count)};" for n in r.nodes]
            setters += self._follow(r, row_values, slots)
            kind = f"const {self.real}" if r.second else self.real
            lines += self._function(
                f"RF_FN void set(Step<{r.index}>, Row& r, long row, {kind} {r.takes})", setters
            )
        full = self.full_outputs()
        lines.append(f"static constexpr bool kStores = {str(bool(full)).lower()};")
        if full:
            statements, texts = self.body.statements(full, known)
            puts = [
                f"put({self.member(n)}, row * width, col, {self._lanes_text(texts[n], n)});"
                for n in full
            ]
            lines += self._function(
                "template <class V, class C> RF_FN void store(const Row& r, long row, C col)",
                [*statements, *puts],
            )
        rows = self._row_outputs()
        lines.append(f"static constexpr bool kFinishes = {str(bool(rows)).lower()};")
        if rows:
            scalars = {n: f"r.{slot}" for n, slot in slots.items()}
            statements, texts = self.body.statements(rows, scalars, self.body.real)
            lines += self._function(
                "RF_FN void finish(const Row& r, long row)",
                [*statements, *(f"put({self.member(n)}, row, {texts[n]});" for n in rows)],
            )
        return lines

    def _follow(
        self, r: Reduction, row_values: Sequence[Node], slots: Mapping[Node, str]
    ) -> list[str]:
        """Statements that compute the row's values that are complete once `r` is."""
        late = {n for q in self.reductions[r.index + 1 :] for n in q.nodes}
        lines: list[str] = []
        for k, n in enumerate(row_values):
            if not depends_on(n, set(r.nodes), self.inside) or depends_on(n, late, self.inside):
                continue
            known = {m: f"r.{slots[m]}" for m in slots if m in self.reduced}
            known |= {m: f"r.{slots[m]}" for m in row_values[:k]}
            more, texts = self.body.statements([n], known, self.body.real)
            lines += ["{", *(f"  {m}" for m in more), f"  r.{slots[n]} = {texts[n]};", "}"]
        return lines

    @staticmethod
    def _lanes_text(text: str, node: Node) -> str:
        return f"lanes<V>({text})" if node.op == "scalar" else text

    def _columns_struct(self) -> list[str]:
        lines = ["long count;", f"using Monoids = {self._monoids(self.reductions)};"]
        for r in self.reductions:
            statements, texts = self.body.statements([r.source], {})
            lines += self._function(
                f"template <class V, class C> RF_FN V term(Step<{r.index}>, long row, C col)",
                [*statements, f"return {texts[r.source]};"],
            )
        return [*lines, *self._finish_columns(self.reductions, "long outer, ", "outer * width + ")]

    def _finish_columns(self, down: Sequence[Reduction], outer: str, before: str) -> list[str]:
        """What becomes of the results of columns.

        outer: how `finish_column` is given the slice, if it is; before: C++ of its offset.
        """
        group = self.group
        slots = {n: f"r{i}" for i, n in enumerate(n for r in down for n in r.nodes)}
        lines = [f"struct Column {{ {self.real} {', '.join(slots.values())}; }};"]
        count = f"static_cast<{self.real}>(count)"
        for i, r in enumerate(down):
            compound = any(reduction_of(n).compound for n in r.nodes)
            state = f"{r.monoid}State" if compound else f"{r.monoid}::State"
            result = "s" if compound else "s.get()"
            texts = {n: result_text(n, r.monoid, result, count) for n in r.nodes}
            lines += self._function(
                f"RF_FN void set_column(Step<{i}>, Column& c, const {state}& s)",
                [f"c.{slots[n]} = {self.body.as_stored(n, t)};" for n, t in texts.items()],
            )
        puts = [
            f"put({self.member(n)}, {before}col, c.{slot});"
            for n, slot in slots.items()
            if n in group.outputs
        ]
        vectors = [n for n in group.vectors if n in group.outputs]
        known = {n: f"c.{slot}" for n, slot in slots.items()}
        statements, found = self.body.statements(vectors, known, self.real)
        puts += [*statements, *(f"put({self.member(n)}, col, {found[n]});" for n in vectors)]
        puts += [f"if (col == 0) *{member} += {by};" for member, by in self._counters()]
        head = f"RF_FN void finish_column(const Column& c, {outer}long col)"
        return [*lines, *self._function(head, puts)]

    def _counters(self) -> list[tuple[str, int]]:
        """(member, number added) of each buffer that counts calls."""
        values = [value for value, _ in self.group.counters]
        return [(f"k{i}", value.inputs[1]["value"]) for i, value in enumerate(values)]

    def down(self) -> list[Reduction]:
        """A product's reductions of its columns; its others are of its rows."""
        return [r for r in self.reductions if r.nodes[0]["axes"] != (-1,)]

    def _matmul_struct(self) -> list[str]:
        group = self.group
        down = self.down()
        along = [r for r in self.reductions if r not in down]
        value = group.value
        known = {group.product: self.body.as_stored(group.product, "acc")}
        statements, texts = self.body.statements([value], known)
        lines = self._function(
            "template <class V, class C> RF_FN V value(V acc, long row, C col)",
            [*statements, f"return {texts[value]};"],
        )
        full = self.full_outputs()
        lines.append(f"static constexpr bool kStores = {str(bool(full)).lower()};")
        if full:
            lines += self._function(
                "template <class C> RF_FN void store(long row, C col, Vec v)",
                [f"put({self.member(value)}, row * width, col, v);"],
            )
        lines.append(f"using RowMonoids = {self._monoids(along)};")
        known = {
            n: _operand_text(
                result_text(n, r.monoid, f"results[{i}]", f"static_cast<{self.real}>(width)")
            )
            for i, r in enumerate(along)
            for n in r.nodes
        }
        rows = self._row_outputs()
        statements, texts = self.body.statements(rows, known, self.body.real)
        if along:
            lines += self._function(
                f"RF_FN void finish_row(long row, const {self.real}* results)",
                [*statements, *(f"put({self.member(n)}, row, {texts[n]});" for n in rows)],
            )
        lines += [f"using ColumnMonoids = {self._monoids(down)};"]
        if down:
            lines += ["long count;", *self._finish_columns(down, "", "")]
        return lines

    # --- what the entry takes ---------------------------------------------------------------------
    def arguments(self) -> list[tuple[str, str]]:
        """(C type, name) of what every entry takes, the sides of a product aside, in order."""
        found = [(self.pointer(o.node), o.member) for o in self.body.pointers()]
        found += [(self.real, o.member) for o in self.body.numbers()]
        found += [("long", n) for n in self.body.named_sizes()]
        found += [(self.pointer(o), self.member(o)) for o in self.group.outputs]
        found += [("long*", member) for member, _ in self._counters()]
        return found + [("long", n) for n, _ in self.sizes()]

    def pointer(self, node: Node) -> str:
        """C++ type of the address of an input or output, as entries spell it."""
        element = self.body.element(node)
        return f"rf::{element}*" if self.group.stored(node) in NARROW else f"{element}*"

    def sizes(self) -> list[tuple[str, Dim]]:
        group = self.group
        if group.is_product:
            depth = group.product.inputs[0].shape[-1]
            return [("rows", group.rows), ("width", group.width), ("depth", depth)]
        if group.family == "columns":
            axes = group.reductions[0]["axes"]
            count = numel(group.dims[a] for a in axes)
            outer = numel(group.dims[: min(a for a in axes if group.dims[a] != 1)])
            return [("outer", outer), ("count", count), ("width", group.width)]
        if self.flat:
            return [("rows", 1), ("width", numel(group.dims))]
        return [("rows", numel(self.body.dims[:-1])), ("width", self.body.dims[-1])]

    def members(self) -> list[str]:
        """What the entry fills the functor with, in order."""
        members = [o.member for o in (*self.body.pointers(), *self.body.numbers())]
        members += self.body.named_sizes() + [self.member(o) for o in self.group.outputs]
        members += [*(member for member, _ in self._counters()), "width"]
        if self.group.family == "columns":
            members.append("count")
        if self.group.is_product and self.down():
            members.append("rows")
        return members

    def entry_text(self, arguments: Sequence[tuple[str, str]], run: Sequence[str]) -> str:
        """The C function that Python calls: reads `arguments`, fills the functor `body`, runs."""
        lines = [f"static PyObject* {self.name}(PyObject*, PyObject* const* args, Py_ssize_t n) {{"]
        lines.append(f"  if (!rf_takes(n, {len(arguments)})) return nullptr;")
        for i, (kind, name) in enumerate(arguments):
            lines.append(f"  {kind} {name} = {_read(kind, i)};")
        lines.append("  if (PyErr_Occurred()) return nullptr;")
        lines.append(f"  const rf::{self.struct_name()} body{{{', '.join(self.members())}}};")
        return "\n".join([*lines, *run, "}", ""])

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
