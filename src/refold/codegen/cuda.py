"""A group for CUDA: its entries, and the Python that calls them.

Entries take addresses, sizes, the stream and the device as ints, synchronise nothing and allocate
nothing; memory to work in belongs to the stream and is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from refold.codegen.kernel import GroupKernel
from refold.codegen.launch import Scope
from refold.plan import Group

T = TypeVar("T")


def planned(group: Group, decided: object, kind: type[T]) -> T:
    """What a plan for a GPU has decided of a group, which is of some kind.

    Raises ValueError for a plan that was made for another device.
    """
    if not isinstance(decided, kind):
        raise ValueError(
            f"{group.name}: expected a plan for a GPU, which says how its kernels are cut, got one"
            " for another device; make the plan for the device that the text is written for"
        )
    return decided


class CudaKernel(GroupKernel):
    """One group for CUDA. A family whose kernels need more than this has a class of its own.

    template: the name of the family's C++ functions, and of their header.
    """

    template = ""

    def headers(self) -> list[str]:
        """The headers that the kernel is instantiated from."""
        narrow = ["narrow.cuh"] if self.group.has_narrow else []
        return [*narrow, f"{self.template}.cuh"]

    def needs(self) -> str:
        """The C function that says how much memory the kernel works in."""
        sizes = [name for name, _ in self.sizes()]
        name = f"{self.name}_workspace_size"
        lines = [f"static PyObject* {name}(PyObject*, PyObject* const* args, Py_ssize_t n) {{"]
        lines.append(f"  if (!rf_takes(n, {len(sizes) + 1})) return nullptr;")
        lines += [f"  const long {s} = rf_size(args[{i}]);" for i, s in enumerate(sizes)]
        lines += [
            f"  const rf::OnDevice here(static_cast<int>(rf_size(args[{len(sizes)}])));",
            "  if (PyErr_Occurred()) return nullptr;",
            "  rf::WorkspaceSize size;",
            f"  const rf::Error error = {self.asked(sizes)};",
            "  if (error) return rf_result(error);",
            '  return Py_BuildValue("nn", Py_ssize_t(size.scratch), Py_ssize_t(size.arrivals));',
            "}",
            "",
        ]
        return "\n".join(lines)

    def asked(self, sizes: Sequence[str]) -> str:
        """The C++ call that fills in `size`."""
        function = f"rf::{self.template}_workspace_size"
        return f"{function}<rf::{self.struct_name()}>({', '.join(sizes)}, size)"

    def run(self) -> str:
        """The C++ call that starts the kernel."""
        sizes = ", ".join(name for name, _ in self.sizes())
        return f"rf::{self.template}(body, {sizes}, {self.aligned()}, work, on)"

    @property
    def may_quantize(self) -> bool:
        """Whether calls say where the group's value is quantized, if it is."""
        return self.group.quantized is not None

    def sides(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Of a product: (C type, name) of what describes its sides, and the C++ that makes them."""
        return [], []

    def entry(self) -> str:
        sides, lines = self.sides()
        arguments = [*sides, *self.arguments()]
        arguments += [("float*", "quantized")] if self.may_quantize else []
        arguments += [("float*", "scratch"), ("float*", "arrivals"), ("long", "stream")]
        arguments.append(("long", "device"))
        return self.entry_text(
            arguments,
            [
                *lines,
                "  const rf::Workspace work{scratch, reinterpret_cast<unsigned*>(arrivals)};",
                "  const auto on = reinterpret_cast<cudaStream_t>(stream);",
                "  rf::Error error;",
                "  Py_BEGIN_ALLOW_THREADS",
                f"  error = rf::launch_on(device, [&] {{ return {self.run()}; }});",
                "  Py_END_ALLOW_THREADS",
                "  return rf_result(error);",
            ],
        )

    def aligned(self) -> str:
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
            asked = f"_refold_kernels.{self.name}_workspace_size({', '.join(sizes)})"
            lines.append(f"rf_size = {asked}")
            lines.append("rf_work = _refold_workspace(rf_size, rf_stream, rf_device)")
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
        return bool(self.reductions)
