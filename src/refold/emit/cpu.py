"""The CPU target: groups as C++ bodies over the headers in kernels/cpu, and the Python that builds
and calls them.

The emitted extension is a plain Python module in C: a call passes addresses and sizes as ints and
releases the interpreter's lock. It includes neither pybind11 nor the tensor headers, so it compiles
in seconds and a call costs well under a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.cpp import CppKernel, beside
from refold.codegen.headers import COMMON, header, included
from refold.codegen.launch import Launch
from refold.emit.alike import Member, kernels_of
from refold.emit.guards import Refusal
from refold.emit.source import (
    Source,
    digest,
    own_text,
    real_text,
)
from refold.emit.template import render
from refold.families import BY_NAME
from refold.plan import Group


class CpuTarget:
    """Kernels for this machine's processor, by the system's C++ compiler."""

    name = "cpu"
    device = "cpu"
    empty = "_refold_empty"

    def launch(self, group: Group, name: str) -> Launch:
        return self.kernel(group, name).call

    def kernel(self, group: Group, name: str) -> CppKernel:
        """The kernel of a group."""
        family = BY_NAME[group.family]
        if family.cpp is None:
            raise ValueError(f"{family.name} has no kernels for the CPU, but claims {group.nodes}")
        return CppKernel(group, name, family.form, family.cpp)

    def text(self, group: Group, name: str) -> str:
        kernel = self.kernel(group, name)
        return kernel.struct() + kernel.entry()

    def source(self, groups: Sequence[Member], looks: bool) -> Source:
        kernels = kernels_of(groups, self.kernel)
        aside = beside(kernels)
        narrow = ["narrow.h"] if any(k.group.has_narrow for k in kernels) else []
        needed = included("cpu", ["run.h", *narrow, *(k.cpp.header for k in kernels)])
        headers = [
            "#define PY_SSIZE_T_CLEAN",
            *real_text(m.group for m in groups),
            *(["#define RF_VECTORS  // of PyTorch: they load and store 16 bits"] if narrow else []),
            header(COMMON[0]),
            "#if !defined(RF_UNIT) || RF_UNIT == 0",
            *map(header, COMMON[1:]),
            "#endif",
        ]
        headers += [header(f"cpu/{h}") for h in needed]
        return Source(
            "\n".join(headers).rstrip("\n"),
            own_text(kernels, [k.entry(k.name in aside) for k in kernels]),
        )

    def build(self, groups: Sequence[Member], source: Source) -> str:
        kernels = kernels_of(groups, self.kernel)
        parts = 2 if beside(kernels) or any(k.cpp.shared for k in kernels) else 1
        name = f"refold_cpu_{digest(source.text)}"
        # PyTorch's headers ask for C++20; of C++17 the standard library's take a third of the time
        marks = "#define RF_REAL double", "#define RF_VECTORS"
        standard = "c++20" if any(mark in source.headers for mark in marks) else "c++17"
        return render("cpu.py.jinja", extension=name, parts=parts, standard=standard)

    def guards(self, names: Sequence[str]) -> list[Refusal]:
        return []

    def flags(self, groups: Sequence[Group]) -> list[Refusal]:
        return []

    def prologue(self, prepared: bool, allocates: bool, alone: bool, device: str) -> list[str]:
        return []
