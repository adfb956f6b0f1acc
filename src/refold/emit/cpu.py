"""The CPU target: groups as C++ bodies over the headers in kernels/cpu, and the Python that builds
and calls them.

The emitted extension is a plain Python module in C: a call passes addresses and sizes as ints and
releases the interpreter's lock. It includes neither pybind11 nor the tensor headers, so it compiles
in seconds and a call costs well under a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.emit.alike import kernels_of
from refold.emit.guards import Refusal
from refold.emit.kernel import GroupKernel
from refold.emit.launch import Launch, Scope
from refold.emit.source import (
    COMMON,
    Source,
    bodies_text,
    digest,
    header,
    included,
    module_text,
    real_text,
)
from refold.emit.template import render
from refold.plan import Group

_HEADERS = {
    "rows": "rows.h",
    "pointwise": "rows.h",
    "columns": "columns.h",
    "matmul": "matmul.h",
}


class CpuTarget:
    """Kernels for this machine's processor, by the system's C++ compiler."""

    name = "cpu"
    device = "cpu"
    empty = "_refold_empty"

    def launch(self, group: Group, name: str) -> Launch:
        return CpuKernel(group, name).call

    def text(self, group: Group, name: str) -> str:
        kernel = CpuKernel(group, name)
        return kernel.struct() + kernel.entry()

    def source(self, groups: Sequence[tuple[str, Group]], alone: bool) -> Source:
        narrow = ["narrow.h"] if any(g.has_narrow for _, g in groups) else []
        needed = included("cpu", ["run.h", *narrow, *(_HEADERS[g.family] for _, g in groups)])
        kernels = kernels_of(groups, CpuKernel)
        headers = ["#define PY_SSIZE_T_CLEAN", *real_text(groups), *map(header, COMMON)]
        headers += [header(f"cpu/{h}") for h in needed]
        entries = [*(k.entry() for k in kernels), module_text(k.name for k in kernels)]
        return Source(
            "\n".join(headers).rstrip("\n"),
            bodies_text(k.struct() for k in kernels),
            "\n".join(entries).rstrip("\n"),
        )

    def build(self, groups: Sequence[tuple[str, Group]], source: Source) -> str:
        return render("cpu.py.jinja", extension=f"refold_cpu_{digest(source.text)}")

    def guards(self, names: Sequence[str]) -> list[str]:
        return []

    def flags(self) -> list[Refusal]:
        return []

    def prologue(self, prepared: bool, allocates: bool, alone: bool) -> list[str]:
        return []


class CpuKernel(GroupKernel):
    """One group for the CPU: its entry and the Python that calls it."""

    def entry(self) -> str:
        arguments = self.arguments()
        if self.group.is_product:
            sides = zip(map(self.pointer, self.group.sides), ("a", "w"), strict=True)
            arguments = [*sides, *arguments]
        run = {
            "matmul": "matmul(body, a, w, rows, width, depth)",
            "rows": "rows(body, rows, width)",
            "pointwise": "rows(body, rows, width)",
            "columns": "columns(body, outer, count, width)",
        }[self.group.family]
        return self.entry_text(
            arguments,
            [f"  return rf_run([&] {{ rf::{run}; }});"],
        )

    def call(self, scope: Scope) -> list[str]:
        """The statement of emitted Python that runs the kernel."""
        parts = self.given(scope.operands, scope.results, scope.sizes)
        if self.group.is_product:
            sides = [scope.operands[i] for i in self.group.sides]
            parts = [*sides, *parts]
        return [f"_refold_kernels.{self.name}({', '.join(parts)})"]
