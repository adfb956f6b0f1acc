"""Kernels of rows and columns with the bodies that the emitter writes, called on torch tensors.

A model of `row_models.py` is captured, rewritten and planned; each of its groups of rows or columns
becomes an entry of a library. A group's reference is the op table itself, in float64, on the same
operands.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import torch

from refold.codegen.cuda import CudaKernel
from refold.derive import Options, derive
from refold.devices import DeviceModel
from refold.emit.source import real_text
from refold.families import BY_NAME
from refold.ir import OPS, Node, Sym
from refold.ir.evaluate import concrete
from refold.ir.shapes import RANK
from refold.plan import Group

from .library import library
from .machine import DEVICE, EMULATED, stream
from .row_models import BY_DTYPE, MODELS

TEMPLATES = {"rows": "rows", "pointwise": "rows", "columns": "columns"}  # by family
DTYPES = (torch.float16, torch.bfloat16, torch.float64)  # beside float32

ENTRY = """
extern "C" rf::Error {name}_workspace_size(const long* n, size_t* out) {{
  rf::WorkspaceSize size;
  RF_TRY(rf::{template}_workspace_size<rf::{struct}>(size, {sizes}));
  out[0] = size.scratch, out[1] = size.arrivals;
  return nullptr;
}}
extern "C" rf::Error {name}(void* const* p, const double* c, const long* n, void* scratch,
                            unsigned* arrivals, cudaStream_t stream) {{
  const rf::{struct} body{{{members}}};
  const bool aligned = rf::aligned({along});
  return rf::{template}(body, {sizes}, aligned, rf::Workspace{{scratch, arrivals}}, stream);
}}
"""


@dataclass(frozen=True)
class Emitted:
    """One group as an entry: its C++ and how a call's arguments are filled."""

    name: str
    group: Group
    kernel: CudaKernel
    file: str

    @property
    def template(self) -> str:
        return TEMPLATES[self.group.family]

    def text(self) -> str:
        k, sizes = self.kernel, self.kernel.sizes()
        operands, numbers, named = k.body.pointers(), k.body.numbers(), k.body.named_sizes()
        index = {n: f"n[{i}]" for i, n in enumerate([*(n for n, _ in sizes), *named])}
        values = [*(o.node for o in operands), *self.group.outputs]
        address = [f"static_cast<rf::{k.body.element(v)}*>(p[{i}])" for i, v in enumerate(values)]
        address = [re.sub(r"rf::(float|double|bool)", r"\1", text) for text in address]
        members = ["{}"] if k.form.base else []  # of what the functor is unless it says otherwise
        members += address[: len(operands)]
        members += [f"static_cast<{k.real}>(c[{i}])" for i in range(len(numbers))]
        members += [index[n] for n in named]
        members += address[len(operands) :]
        members += [index[n] for n in ("width", "count") if n in index]
        along = [address[i] for i, o in enumerate(operands) if k.body.is_along_width(o)]
        if self.template == "rows":
            full = [o for o in self.group.outputs if o.shape == self.group.dims]
            along += [address[len(operands) + self.group.outputs.index(o)] for o in full]
        return f"namespace rf {{\n{k.struct()}}}  // namespace rf\n" + ENTRY.format(
            name=self.name,
            template=self.template,
            struct=k.struct_name(),
            members=", ".join(members),
            along=", ".join(along),
            sizes=", ".join(index[n] for n, _ in sizes),
        )


@cache
def emitted(model: str, dtype: torch.dtype = torch.float32) -> tuple[Emitted, ...]:
    """The groups of rows and columns of a model's training mode. Raises AssertionError if none."""
    module = MODELS[model]()
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in module.inputs()]
    first = derive(module, inputs, DeviceModel.of("cpu"), Options())[0]
    assert first.mode.plan is not None, first.mode.kept
    plan = first.mode.plan
    of_gpu = [
        BY_NAME[g.family].schedule(g, DeviceModel.of("cuda:sm_90"), None) for g in plan.groups
    ]
    groups = [g for g in of_gpu if g.family in TEMPLATES]
    assert groups, f"{model} has neither rows nor columns"
    file = file_of(model, dtype)
    kernels = [BY_NAME[g.family].cuda(g, f"{file}_{i}") for i, g in enumerate(groups)]
    return tuple(Emitted(k.name, k.group, k, file) for k in kernels)


@cache
def source(model: str, dtype: torch.dtype = torch.float32) -> str:
    """The CUDA file with a model's entries."""
    found = emitted(model, dtype)
    needed = ["narrow"] if any(e.group.has_narrow for e in found) else []
    needed += dict.fromkeys(e.template for e in found)
    lines = real_text(e.group for e in found)
    lines += [f'#include "{t}.cuh"' for t in needed] + [e.text() for e in found]
    return "\n".join(lines)


def file_of(model: str, dtype: torch.dtype = torch.float32) -> str:
    return model if dtype == torch.float32 else f"{model}_{str(dtype).removeprefix('torch.')}"


FILES = {file_of(m, d): (m, d) for m in MODELS for d in (torch.float32, *DTYPES * (m in BY_DTYPE))}


@cache
def build(files: tuple[str, ...]) -> ctypes.CDLL:
    """The library of some files, built if a source has changed."""
    return library("rows", {f: source(*FILES[f]) for f in files})


def build_beforehand(files: Iterable[str]) -> None:
    """Builds each file's library, two at a time; captures are made one after another."""
    texts = {f: source(*FILES[f]) for f in files}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda f: library("rows", {f: texts[f]}), texts))


def library_of(e: Emitted) -> ctypes.CDLL:
    """The library that holds an entry: on a GPU that of all files, else its own file's alone."""
    return build((e.file,) if EMULATED else tuple(FILES))


def sizes_of(e: Emitted, sizes: Mapping[str, int]) -> list[int]:
    named = [sizes[n] for n in e.kernel.body.named_sizes()]
    return [concrete(d, sizes) for _, d in e.kernel.sizes()] + named


class Kernel:
    """One entry with operands, outputs full of NaN and a workspace.

    sizes: the value of every named size. shift: by how many elements operands and outputs are off
    an address that is a multiple of 16 bytes. library: another than the tests'.
    """

    def __init__(
        self,
        e: Emitted,
        sizes: Mapping[str, int],
        operands: Mapping[Node, torch.Tensor],
        shift: int = 0,
        library: ctypes.CDLL | None = None,
    ) -> None:
        self.e, self.sizes, k = e, sizes, e.kernel
        library = library or library_of(e)
        self.function, needs = (
            getattr(library, e.name),
            getattr(library, f"{e.name}_workspace_size"),
        )
        self.operands = {n: shifted(t, shift) for n, t in operands.items()}
        shapes = [tuple(concrete(d, sizes) for d in o.shape) for o in e.group.outputs]
        kinds = [e.group.stored(o) for o in e.group.outputs]
        nans = (
            torch.full(s, float("nan"), device=DEVICE, dtype=d)
            for s, d in zip(shapes, kinds, strict=True)
        )
        self.outputs = [shifted(t, shift) for t in nans]
        numbers = [float(concrete(o.node["value"], sizes)) for o in k.body.numbers()]
        pointers = [self.operands[o.node] for o in k.body.pointers()] + self.outputs
        self.p = (ctypes.c_void_p * max(len(pointers), 1))(*(t.data_ptr() for t in pointers))
        self.c = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        n = sizes_of(e, sizes)
        self.n = (ctypes.c_long * len(n))(*n)
        found = (ctypes.c_size_t * 2)()
        call(needs, self.n, found)
        self.parts = torch.empty(max(found[0], 1), dtype=torch.uint8, device=DEVICE)
        self.parts.fill_(255)  # NaN: nothing may be read that this launch has not written
        self.turns = torch.zeros(max(found[1], 4) // 4, dtype=torch.int32, device=DEVICE)

    def __call__(self) -> list[torch.Tensor]:
        parts, turns = (ctypes.c_void_p(t.data_ptr()) for t in (self.parts, self.turns))
        call(self.function, self.p, self.c, self.n, parts, turns, ctypes.c_void_p(stream()))
        return self.outputs

    def evaluate(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """What the op table says of the group's own nodes, all of it in `dtype`."""
        done = {n: t.to(dtype) for n, t in self.operands.items()}
        for n in self.e.group.inputs:
            if n.op == "scalar":
                value = concrete(n["value"], self.sizes)
                done[n] = torch.full((1,) * RANK, value, dtype=dtype, device=DEVICE)
        for n in self.e.group.nodes:
            attrs = {k: concrete(v, self.sizes) for k, v in n.attrs}
            if n.op == "cast":
                done[n] = done[n.inputs[0]]
                continue
            done[n] = OPS[n.op].run(*(done[i] for i in n.inputs), **attrs)
        return [done[o] for o in self.e.group.outputs]


def shifted(t: torch.Tensor, by: int) -> torch.Tensor:
    """The same tensor, contiguous, `by` elements after an aligned address."""
    flat = torch.empty(t.numel() + by, dtype=t.dtype, device=t.device)
    out = flat[by:].view(t.shape)
    out.copy_(t)
    return out


def call(function: ctypes._NamedFuncPointer, *args: object) -> None:
    function.restype = ctypes.c_char_p
    error = function(*args)
    if error is not None:
        raise RuntimeError(error.decode())


def draw(e: Emitted, sizes: Mapping[str, int], seed: int = 0) -> dict[Node, torch.Tensor]:
    """Operands for a group: positive where a domain asks for it, none of them tiny."""
    g = torch.Generator(DEVICE).manual_seed(seed)
    found = {}
    for node in e.group.inputs:
        if node.op == "scalar":
            continue
        shape = [concrete(d, sizes) for d in node.shape]
        t = torch.randn(shape, generator=g, device=DEVICE)
        if e.group.stored(node) == torch.bool:
            found[node] = t > 0
            continue
        t = t.to(e.group.stored(node))
        positive = node.op in ("var", "exp") or "positive" in str(dict(node.attrs).get("name", ""))
        found[node] = t.abs() + 0.5 if positive else t
    return found


def free(e: Emitted) -> list[str]:
    """The sizes of a group's space that are free, in the order of its axes."""
    return [next(iter(d.names())) for d in e.group.dims if isinstance(d, Sym)]


def named(e: Emitted, *sizes: int) -> dict[str, int]:
    """Values for the free sizes of a group's space."""
    names = free(e)
    assert len(names) == len(sizes), (
        f"{e.name} has the free sizes {names}, not {len(sizes)} of them"
    )
    return dict(zip(names, sizes, strict=True))


def spaces(model: str, sizes: int, dtype: torch.dtype = torch.float32) -> list[Emitted]:
    """The groups of a model whose space has that many free sizes: at least one."""
    found = [e for e in emitted(model, dtype) if len(free(e)) == sizes]
    assert found, f"no group of {model} has {sizes} free sizes"
    return found
