"""A group of rows or columns for CUDA: its functor's entries, and the Python that calls them.

Entries take addresses, sizes, the stream and the device as ints, synchronise nothing and allocate
nothing; memory to work in belongs to the stream and is reused.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.emit.kernel import GroupKernel
from refold.emit.launch import Scope
from refold.emit.one_pass import one_pass
from refold.families.walk import WALKS
from refold.ir import Node, Sym, hint
from refold.plan import Group

# Columns of a row that a block holds in registers (row_cut.cuh, Holds): in fours, and one by one.
_HELD, _HELD_SINGLY = 8192, 4096
# Narrower rows are never taken by several blocks (row_cut.cuh, kSplitFrom).
_SPLIT_FROM = 65536


class CudaKernel(GroupKernel):
    """One group for CUDA."""

    last_members = ("rf_watch::Look look = rf_watch::take_look();  // see look.h",)

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name)
        width = hint(group.width)
        if group.family in WALKS and width > (_HELD_SINGLY if width % 4 else _HELD):
            self.reductions = one_pass(self.reductions)
            self.reduced = {n: r for r in self.reductions for n in r.nodes}

    def headers(self) -> list[str]:
        """The headers that the kernel is instantiated from."""
        narrow = ["narrow.cuh"] if self.group.has_narrow else []
        if self.group.family not in WALKS:
            return [*narrow, "columns.cuh"]
        return [*narrow, "rows.cuh", *(["quantized_rows.cuh"] if self.group.quantized else [])]

    def _rows_struct(self) -> list[str]:
        lines = [*super()._rows_struct(), f"static constexpr int kBlocks = {self._blocks()};"]
        if not self.full_outputs():
            return lines
        start = next(i for i, line in enumerate(lines) if " store(" in line)
        reads = [
            f"{self.body.load(o, 'V')};"
            for o in self.body.pointers()
            if self.body.is_along_width(o) and any(f"({o.member}," in x for x in lines[start:])
        ]
        head = "template <class V, class C> RF_FN void read(long row, C col)"
        return [*lines, *self._function(head, reads)]

    def _blocks(self) -> int:
        """Blocks that hold rows on a multiprocessor: as many as registers suffice for.

        While one waits for its rows the others compute. A thread of two has 64 registers, and its
        part of a row takes 16.
        """
        slow = any(n.row.flops.slow_path for n in self.group.nodes)
        return 1 if slow or self.real == "double" or self._kept() > 1 else 2

    def _kept(self) -> int:
        """How many values of an element a thread keeps from one pass for later ones, at most."""
        passes = [self._needed([r.source]) for r in self.reductions]
        passes.append(self._needed(self.full_outputs()))
        most = 0
        for k in range(1, len(passes)):
            before = {n for needed in passes[:k] for n in needed}
            later = {n for needed in passes[k:] for n in needed}
            read = {i for n in later - before for i in n.inputs}
            stored = set(self.full_outputs())
            most = max(most, len(before & (read | stored)))
        return most

    def _needed(self, values: Sequence[Node]) -> set[Node]:
        """What of an element `values` are computed from, themselves and operands among it."""
        found: set[Node] = set()
        stack = list(values)
        while stack:
            n = stack.pop()
            if n not in found and n.shape[-1] == self.group.width:
                found.add(n)
                stack += n.inputs if n in self.inside else ()
        return found

    def inputs(self, functions: Sequence[str]) -> list[str]:
        if self.group.family not in WALKS:
            return super().inputs(functions)
        again = [
            o
            for o in self.body.pointers()
            if self.body.is_along_width(o) and sum(f"({o.member}," in f for f in functions) > 1
        ]
        return [*self.body.members(again), f"static constexpr int kAgain = {len(again)};"]

    def needs(self) -> str:
        """The C function that says how much memory the kernel works in."""
        sizes = [name for name, _ in self.sizes()]
        lines = [
            f"static PyObject* {self.name}_needs(PyObject*, PyObject* const* args, Py_ssize_t n) {{"
        ]
        lines.append(f"  if (!rf_takes(n, {len(sizes) + 1})) return nullptr;")
        lines += [f"  const long {s} = rf_size(args[{i}]);" for i, s in enumerate(sizes)]
        lines += [
            f"  const rf::OnDevice here(static_cast<int>(rf_size(args[{len(sizes)}])));",
            "  if (PyErr_Occurred()) return nullptr;",
            "  rf::Needs needs;",
            f"  const rf::Error error = {self.asked(sizes)};",
            "  if (error) return rf_result(error);",
            '  return Py_BuildValue("nn", Py_ssize_t(needs.parts), Py_ssize_t(needs.turns));',
            "}",
            "",
        ]
        return "\n".join(lines)

    def asked(self, sizes: Sequence[str]) -> str:
        """The C++ call that fills in `needs`."""
        return f"rf::{self._template}_needs<rf::{self.struct_name()}>({', '.join(sizes)}, needs)"

    def run(self) -> str:
        """The C++ call that starts the kernel."""
        sizes = ", ".join(name for name, _ in self.sizes())
        width = self.group.width
        fixed = self._template == "rows" and self.reductions and not isinstance(width, Sym)
        known = f"<{width}>" if fixed else ""  # fewer kernels are compiled then
        text = f"rf::{self._template}{known}(body, {sizes}, {self._aligned()}, work, on)"
        if not self.group.quantized:
            return text
        smaller = f"rf::rows_quantized(body, quantized, {sizes}, {self._aligned()}, on)"
        return f"quantized ? {smaller}\n      : {text}"

    @property
    def may_quantize(self) -> bool:
        """Whether calls say where the group's value is quantized, if it is."""
        return self.group.quantized is not None

    @property
    def _template(self) -> str:
        return "rows" if self.group.family in WALKS else "columns"

    def sides(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Of a product: (C type, name) of what describes its sides, and the C++ that makes them."""
        return [], []

    def entry(self) -> str:
        sides, lines = self.sides()
        arguments = [*sides, *self.arguments()]
        arguments += [("float*", "quantized")] if self.may_quantize else []
        arguments += [("float*", "parts"), ("float*", "turns"), ("long", "stream")]
        arguments.append(("long", "device"))
        return self.entry_text(
            arguments,
            [
                *lines,
                "  const rf::Workspace work{parts, reinterpret_cast<unsigned*>(turns)};",
                "  const auto on = reinterpret_cast<cudaStream_t>(stream);",
                "  rf::Error error;",
                "  Py_BEGIN_ALLOW_THREADS",
                "  const rf::OnDevice here(static_cast<int>(device));",
                f"  error = {self.run()};",
                "  Py_END_ALLOW_THREADS",
                "  return rf_result(error);",
            ],
        )

    def _aligned(self) -> str:
        """C++: whether what is read or written along the width can be taken 16 bytes at a time."""
        along = [o.member for o in self.body.pointers() if self.body.is_along_width(o)]
        along += [self.member(n) for n in self.full_outputs()]
        return f"rf::aligned({', '.join(along)})"

    def call(self, scope: Scope) -> list[str]:
        """The statements of emitted Python that run the kernel."""
        memory = ["0", "0"]
        lines, sides = self.given_sides(scope)
        if self.works_in_memory(scope):
            sizes = [*self.sizes_of_needs(scope), "rf_device"]
            asked = f"_refold_kernels.{self.name}_needs({', '.join(sizes)})"
            lines.append(f"rf_work = _refold_workspace({asked}, rf_stream, rf_device)")
            memory = ["rf_work[0]", "rf_work[1]"]
        parts = [*sides, *self.given(scope.operands, scope.results, scope.sizes)]
        parts += [scope.quantized] if self.may_quantize else []
        parts += [*memory, "rf_stream", "rf_device"]
        return [*lines, f"_refold_kernels.{self.name}({', '.join(parts)})"]

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        """Of a product: statements before the call, and the Python of its sides' arguments."""
        return [], []

    def sizes_of_needs(self, scope: Scope) -> list[str]:
        """The Python of the sizes on which memory to work in depends."""
        return self.given_sizes(scope.sizes)

    def works_in_memory(self, scope: Scope) -> bool:
        """Whether some size makes the kernel work in memory beside its operands and results."""
        width = self.group.width
        narrow = isinstance(width, int) and width < _SPLIT_FROM
        if self.group.family in WALKS and narrow:
            return False
        return bool(self.reductions)
