"""The CUDA target: groups as the same functors over the headers in kernels/cuda, the entries that
start them, and the Python that builds and calls them.

A product of float32 reads both sides packed (kernels/cuda/split.cuh): a parameter is packed once
until it changes, a value at each call; on Hopper by the product itself, some rows at a time, unless
several products read it; or element by element on its way to the tensor cores (direct_sm90.cuh).
One of 16 bits reads its sides as they are; a folded weight, which has more bits, as two 16-bit
parts. Entries take addresses, sizes, the stream and the device as ints, synchronise nothing and
allocate nothing; memory to work in belongs to the stream and is reused.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from refold.emit.forward import Launch, Pack, Scope
from refold.emit.kernel import GroupKernel, digest, header, included, module_text, real_text
from refold.emit.template import render
from refold.ir import NARROW, Sym, hint
from refold.ir.graph import is_parametric
from refold.ir.ops import CPP_TYPES
from refold.plan import Group, Template
from refold.schedule import FEW_ROWS, Schedule, by_rows, default_schedule, directly

_PRODUCTS = {"sm_90": "launch.cuh", "sm_80": "launch_sm80.cuh"}
ARCHITECTURES = {
    "sm_90": ("-gencode=arch=compute_90a,code=sm_90a",),
    "sm_80": (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_80,code=compute_80",
    ),
}
# hidden: two modules may have functions of one name, and the loader would take one for both
FLAGS = ("-std=c++17", "-O3", "-split-compile=0", "-Xcompiler=-fvisibility=hidden")


class CudaTarget:
    """Kernels for an NVIDIA GPU, by nvcc.

    architecture: "sm_90" (Hopper's own instructions) or "sm_80" (Ampere and later). float32: "ieee"
    for products as accurate as fp32's, "tf32" for products as accurate as TF32's, which emitted
    modules use only while PyTorch's flags allow it. choose: how a product of (rows, columns, depth)
    is cut; a tuner may put its own in.
    """

    device = "cuda"

    def __init__(self, architecture: str, float32: str = "ieee") -> None:
        self.architecture = architecture
        self.float32 = float32
        self.choose: Callable[[int, int, int], Schedule] = partial(
            default_schedule, architecture, direct=float32 == "ieee"
        )
        self.name = f"cuda:{architecture}"

    @property
    def mode(self) -> str:
        return {"ieee": "Ieee", "tf32": "Tf32"}[self.float32]

    def launch(self, group: Group, name: str) -> Launch:
        kernel = CudaKernel(group, name, self)
        packs, itself = kernel.packings(), kernel.packs_itself()
        return Launch(group, kernel.call, packs, itself, kernel.overwrites())

    def prologue(self, first: str, prepared: bool) -> list[str]:
        lines = [f"rf_device = {first}.get_device()", "rf_stream = _refold_stream(rf_device)"]
        if prepared:
            lines += ["if rf_stream != rf_cache.stream:", "    _refold_wait(rf_cache, rf_device)"]
        return lines

    def guards(self, names: Sequence[str]) -> list[str]:
        lines = []
        for name in names[1:]:
            lines.append(f"if {name}.get_device() != {names[0]}.get_device():")
            lines.append(f'    return "{name} is on another device than {names[0]}"')
        if self.float32 == "tf32":
            lines.append("if not _refold_tf32_allowed():")
            lines.append('    return "PyTorch\'s flags do not allow TF32, which the kernels use"')
        return lines

    def source(self, groups: Sequence[tuple[str, Group]]) -> str:
        text = self.cuda_text(groups)
        packings = {f for n, g in groups for _, f in CudaKernel(g, n, self).packings()}
        architecture = ARCHITECTURES[self.architecture]
        capability = tuple(int(c) for c in self.architecture.removeprefix("sm_"))
        only = "!=" if self.architecture == "sm_90" else "<"
        return render(
            "cuda.py.jinja",
            text=text.rstrip("\n"),
            extension=f"refold_{self.architecture}_{digest(text + self.name)}",
            flags=repr([*FLAGS, *architecture]),
            packs="_refold_pack" in packings,
            parts=sorted(p for p in packings if p != "_refold_pack"),
            capability=capability,
            only=only,
            words=f"{capability[0]}.{capability[1]}{' or later' if only == '<' else ''}",
        )

    def cuda_text(self, groups: Sequence[tuple[str, Group]]) -> str:
        """The extension's one source."""
        kernels = [CudaKernel(g, name, self) for name, g in groups]
        needed = included("cuda", [h for k in kernels for h in k.headers()])
        parts = ["#define PY_SSIZE_T_CLEAN", *real_text(groups), header("call.h")]
        parts += [header(f"cuda/{h}") for h in needed]
        parts += ["namespace rf {\n", *(k.struct() for k in kernels), "}  // namespace rf\n"]
        names = []
        if kernels:
            parts.append(_RESULT)
        if any(k.packs and not k.narrow for k in kernels):
            parts.append(_PACK.replace("@MODE@", self.mode))
            names += ["packed_bytes", "pack"]
        for k in kernels:
            parts += [k.needs(), k.entry()]
            names += [f"{k.name}_needs", k.name]
        parts.append(module_text(names))
        return "\n".join(parts)


class CudaKernel(GroupKernel):
    """One group for CUDA: its entries and the Python that calls them."""

    def __init__(self, group: Group, name: str, target: CudaTarget) -> None:
        super().__init__(group, name)
        self.target = target

    def headers(self) -> list[str]:
        """The headers that the kernel is instantiated from."""
        narrow = ["narrow.cuh"] if self.group.has_narrow else []
        if self.group.template is Template.ROWS:
            return [*narrow, "rows.cuh"]
        if self.group.template is Template.COLUMNS:
            return [*narrow, "columns.cuh"]
        narrow += ["native.cuh"] if self.narrow else []
        tensor = ["packed.cuh", _PRODUCTS[self.schedule.architecture]] if self.packs else []
        tensor += ["direct_sm90.cuh"] if self.packs and self.is_direct else []
        plain = ["packed.cuh", "launch_plain.cuh"] if self.sometimes_plain else []
        return [*narrow, *tensor, *plain, *(["finish.cuh"] if self.down() else [])]

    def inputs(self, functions: Sequence[str]) -> list[str]:
        if self.group.template is not Template.ROWS:
            return super().inputs(functions)
        again = [
            o
            for o in self.body.pointers()
            if self.body.is_along_width(o) and sum(f"({o.member}," in f for f in functions) > 1
        ]
        return [*self.body.members(again), f"static constexpr int kAgain = {len(again)};"]

    # --- products ---------------------------------------------------------------------------------
    @cached_property
    def schedule(self) -> Schedule:
        """How the product is cut, for the sizes that the model was captured with."""
        rows, cols, depth = (hint(d) for _, d in self.sizes())
        if not self.narrow:
            way = self.target.choose(rows, cols, depth)
            return way if self._may_be_direct else replace(way, direct=False)
        # the copy engine of sm_90 wants rows at multiples of 16 bytes
        architecture = self.target.architecture if depth % 8 == 0 else "sm_80"
        return default_schedule(architecture, rows, cols, depth * self.parts)

    @cached_property
    def narrow(self) -> str | None:
        """The 16-bit element type of the product's operands, if they have one."""
        if self.group.template is not Template.MATMUL:
            return None
        x = self.group.stored(self.group.sides[0])
        return f"rf::{CPP_TYPES[x]}" if x in NARROW else None

    @property
    def parts(self) -> int:
        """How many 16-bit parts the weight is given as."""
        return 1 if self.group.stored(self.group.sides[1]) in NARROW else 2

    @property
    def mode(self) -> str:
        if self.narrow is None:
            return self.target.mode
        return f"Native<{self.narrow}{', 2' if self.parts == 2 else ''}>"

    def packings(self) -> tuple[Pack, ...]:
        """What the kernel reads packed."""
        if not self.packs:
            return ()
        if self.narrow is None:
            return tuple((i, "_refold_pack") for i in self.group.sides[self.is_direct :])
        x, w = self.group.sides
        kind = str(self.group.stored(x)).removeprefix("torch.")
        return ((w, f"_refold_parts_{kind}"),) if self.parts == 2 else ()

    def packs_itself(self) -> Pack | None:
        """What the kernel packs itself unless it is given packed."""
        if not self.packs or self.narrow or self.schedule.architecture != "sm_90":
            return None
        return self.group.sides[0], "_refold_pack"

    @cached_property
    def is_direct(self) -> bool:
        """Whether some way takes the first side as it is: the kernel is never given it packed."""
        return any(way.direct for _, way in self._ways)

    @property
    def packs(self) -> bool:
        """Whether the kernel runs on tensor cores."""
        return self.group.template is Template.MATMUL and not self.schedule.plain

    @property
    def sometimes_plain(self) -> bool:
        """Whether some sizes take the plain product: few rows do, where their number may vary."""
        if self.group.template is not Template.MATMUL:
            return False
        return self.schedule.plain or isinstance(self.group.rows, Sym)

    @cached_property
    def _ways(self) -> list[tuple[int | None, Schedule]]:
        """How a product on tensor cores is cut, by the most rows of which each way holds."""
        rows, cols, depth = (hint(d) for _, d in self.sizes())
        if not isinstance(self.group.rows, Sym):
            return [(None, self.schedule)]
        split = replace(self.schedule, direct=False)
        ways = by_rows(split, rows, cols, depth * self.parts)
        if not self._may_be_direct:
            return ways
        return [
            (most, self.schedule if w == split else directly(w, most or rows, cols, depth))
            for most, w in ways
        ]

    @property
    def _may_be_direct(self) -> bool:
        """Whether the copy engine can take the first side as it is, rows of fp32 that start at
        multiples of 16 bytes; a parameter is better packed once."""
        depth = dict(self.sizes())["depth"]
        if self.mode != "Ieee" or isinstance(depth, Sym) or depth % 4:
            return False
        return not is_parametric(self.group.sides[0])

    def _schedules(self) -> list[tuple[str, str]]:
        """(C++ condition, schedule) of each kernel that sizes may choose; the last one holds."""
        found = []
        if self.sometimes_plain:
            plain = "rf::Plain"
            if self.narrow is not None:
                weight = self.narrow if self.parts == 1 else "float"
                plain = f"rf::PlainOf<{self.narrow}, {weight}>"
            found.append((f"rows <= {FEW_ROWS}" if self.packs else "true", plain))
        if self.packs:
            for limit, way in self._ways:
                condition = "true" if limit is None else f"rows <= {limit}"
                found.append((condition, way.text(self.mode)))
        return found

    def _choose(self, text: str) -> str:
        """C++: `text` with the schedule of the sizes at hand in the place of @."""
        if self.group.template is not Template.MATMUL:
            return text
        *some, (_, last) = self._schedules()
        words = [f"{condition} ? {text.replace('@', s)}\n      : " for condition, s in some]
        return "".join(words) + text.replace("@", last)

    def needs(self) -> str:
        """The C function that says how much memory the kernel works in."""
        function = {
            Template.MATMUL: "matmul_needs<@, {}>",  # depth: 0 if all is given packed
            Template.ROWS: "rows_needs<{}>",
            Template.COLUMNS: "columns_needs<{}>",
        }[self.group.template].format(f"rf::{self.struct_name()}")
        sizes = [name for name, _ in self.sizes()]
        call = f"rf::{function}({', '.join(sizes)}, needs)"
        lines = [
            f"static PyObject* {self.name}_needs(PyObject*, PyObject* const* args, Py_ssize_t n) {{"
        ]
        lines.append(f"  if (!rf_takes(n, {len(sizes) + 1})) return nullptr;")
        lines += [f"  const long {s} = rf_size(args[{i}]);" for i, s in enumerate(sizes)]
        lines += [
            f"  const rf::OnDevice here(static_cast<int>(rf_size(args[{len(sizes)}])));",
            "  if (PyErr_Occurred()) return nullptr;",
            "  rf::Needs needs;",
            f"  const rf::Error error = {self._choose(call)};",
            "  if (error) return rf_result(error);",
            '  return Py_BuildValue("nn", Py_ssize_t(needs.parts), Py_ssize_t(needs.turns));',
            "}",
            "",
        ]
        return "\n".join(lines)

    def entry(self) -> str:
        arguments = self.arguments()
        if self.group.template is Template.MATMUL:
            arguments = [*self._side_arguments(), *arguments]
        arguments += [("float*", "parts"), ("float*", "turns"), ("long", "stream")]
        arguments.append(("long", "device"))
        lines = []
        if self.group.template is Template.MATMUL:
            for side, count in (("a", "rows"), ("w", "width")):
                lines.append(f"  const rf::Side {side}_side = {self._side(side, count)};")
            run = self._choose("rf::matmul<@>(body, a_side, w_side, depth, work, on)")
        elif self.group.template is Template.ROWS:
            run = f"rf::rows(body, rows, width, {self._aligned()}, work, on)"
        else:
            run = f"rf::columns(body, outer, count, width, {self._aligned()}, work, on)"
        return self.entry_text(
            arguments,
            [
                *lines,
                "  const rf::Workspace work{parts, reinterpret_cast<unsigned*>(turns)};",
                "  const auto on = reinterpret_cast<cudaStream_t>(stream);",
                "  rf::Error error;",
                "  Py_BEGIN_ALLOW_THREADS",
                "  const rf::OnDevice here(static_cast<int>(device));",
                f"  error = {run};",
                "  Py_END_ALLOW_THREADS",
                "  return rf_result(error);",
            ],
        )

    def _side_arguments(self) -> list[tuple[str, str]]:
        """(C type, name) of the product's sides, each with its packed form where it has one."""
        found = []
        packed = [node for node, _ in self.packings()]
        for node, name in zip(self.group.sides, ("a", "w"), strict=True):
            found.append((self.pointer(node), name))
            if node in packed and not (name == "a" and self.is_direct):
                found.append((f"{self.narrow or 'float'}*", f"{name}_packed"))
        return found

    def _side(self, name: str, count: str) -> str:
        """C++ that describes one side of the product."""
        if self.narrow is None:
            if not self.packs:
                return f"rf::plain_side({name}, {count}, depth)"
            mode = f"rf::{self.target.mode}"
            if name == "a" and self.is_direct:
                return f"rf::packed_side<{mode}>(nullptr, a, rows, depth)"
            return f"rf::packed_side<{mode}>({name}_packed, {name}, {count}, depth)"
        if name == "a" or self.parts == 1:
            return f"rf::native_side({name}, {count}, depth)"
        if not self.packs:
            return f"rf::plain_side({name}, {count}, depth)"
        return f"rf::parts_side({name}_packed, {name}, {count}, depth)"

    def _aligned(self) -> str:
        """C++: whether what is read or written along the width can be taken 16 bytes at a time."""
        along = [o.member for o in self.body.pointers() if self.body.is_along_width(o)]
        along += [self.member(n) for n in self.full_outputs()]
        return f"rf::aligned({', '.join(along)})"

    def call(self, scope: Scope) -> list[str]:
        """The statements of emitted Python that run the kernel."""
        parts = self.given(scope.operands, scope.results, scope.sizes)
        lines = []
        if self.group.template is Template.MATMUL:
            sides = []
            copied = self.narrow and self.packs and self.schedule.architecture == "sm_90"
            for i, side in zip(self.group.sides, ("a", "w"), strict=True):
                name = scope.operands[i]
                sides.append(f"{name}.data_ptr()")
                direct = side == "a" and self.is_direct
                if direct or (copied and i not in scope.packed):
                    # the copy engine reads from multiples of 16 bytes
                    lines += [f"if {name}.data_ptr() % 16:", f"    {name} = {name}.clone()"]
                elif i in scope.packed:
                    sides.append(f"{scope.packed[i]}.data_ptr()")
                elif any(i is node for node, _ in self.packings()):
                    sides.append("0")
            parts = [*sides, *parts]
        itself = self.packs_itself()
        packs = itself is not None and (self.is_direct or itself[0] not in scope.packed)
        sizes = [
            "0" if name == "depth" and not packs else text
            for text, (name, _) in zip(self.given_sizes(scope.sizes), self.sizes(), strict=True)
        ]
        memory = ["0", "0"]
        if packs or self._works_in_memory():
            lines.append(
                f"rf_work = _refold_workspace(_refold_kernels.{self.name}_needs("
                f"{', '.join([*sizes, 'rf_device'])}), rf_stream, rf_device)"
            )
            memory = ["rf_work[0]", "rf_work[1]"]
        parts += [*memory, "rf_stream", "rf_device"]
        return [*lines, f"_refold_kernels.{self.name}({', '.join(parts)})"]

    def _works_in_memory(self) -> bool:
        """Whether some size makes the kernel work in memory beside its operands and results."""
        if self.group.template is Template.MATMUL:
            return bool(self.reductions) or any(way.splits > 1 for _, way in self._ways)
        return bool(self.reductions)


_RESULT = """\
static PyObject* rf_result(rf::Error error) {
  if (error == nullptr) Py_RETURN_NONE;
  PyErr_SetString(PyExc_RuntimeError, error);
  return nullptr;
}
"""

_PACK = """\
static PyObject* packed_bytes(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 2)) return nullptr;
  const long rows = rf_size(args[0]), depth = rf_size(args[1]);
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromSize_t(rf::packed_bytes<rf::@MODE@>(rows, depth));
}

static PyObject* pack(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 6)) return nullptr;
  float *x = rf_pointer<float>(args[0]), *packed = rf_pointer<float>(args[1]);
  const long rows = rf_size(args[2]), depth = rf_size(args[3]), stream = rf_size(args[4]);
  const long device = rf_size(args[5]);
  if (PyErr_Occurred()) return nullptr;
  const rf::OnDevice here(static_cast<int>(device));
  const auto on = reinterpret_cast<cudaStream_t>(stream);
  return rf_result(rf::pack<rf::@MODE@>(x, packed, rows, depth, on));
}
"""


def nvcc() -> str | None:
    """The CUDA compiler's path: on PATH, or where CUDA_HOME and the usual place have it."""
    found = shutil.which("nvcc")
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if found is None and home and Path(home, "bin", "nvcc").exists():
            found = str(Path(home, "bin", "nvcc"))
    return found


def compile_emitted(text: str) -> str | None:
    """Compile the CUDA source of an emitted file without running it; the first error, or None."""
    source = text.partition('_REFOLD_CUDA = r"""')[2].partition('"""')[0]
    flags = re.search(r"extra_cuda_cflags=(\[[^\]]*\])", text)
    compiler = nvcc()
    if not source or flags is None or compiler is None:
        return "there is no CUDA source, or no nvcc"
    with tempfile.TemporaryDirectory(prefix="refold_") as folder:
        path = Path(folder, "kernels.cu")
        path.write_text(source)
        command = [compiler, *ast.literal_eval(flags[1]), "-DTORCH_EXTENSION_NAME=kernels"]
        command += [f"-I{sysconfig.get_path('include')}", "-c", "-o", f"{path}.o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line), lines[0])
