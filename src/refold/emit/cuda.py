"""The CUDA target: groups as the same functors over the headers in kernels/cuda, one source file
for nvcc, and the Python that builds it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from refold.codegen.cuda import CudaKernel
from refold.codegen.headers import COMMON, header, included
from refold.codegen.launch import Launch
from refold.devices import Device
from refold.emit.alike import Member, kernels_of
from refold.emit.guards import Refusal
from refold.emit.source import (
    Source,
    digest,
    own_text,
    real_text,
    source_of,
)
from refold.emit.template import render
from refold.families import BY_NAME, FAMILIES
from refold.plan import Group
from refold.plan.convolution import CONVOLUTION, TURNED, ConvolutionKernel
from refold.plan.product import PACKED, TRANSPOSED
from refold.runtime.nvcc import _refold_other_nvcc, _refold_pip_nvcc
from refold.runtime.nvrtc import _refold_compiled_apart, _refold_nvrtc

# what to do where there is neither nvcc nor NVRTC
NO_CUDA = "neither nvcc (on PATH, under CUDA_HOME, or pip's) nor NVRTC, which comes with PyTorch"
NO_NVCC = (
    "pip install nvidia-cuda-nvcc (for CUDA 13), or install the CUDA toolkit and set CUDA_HOME"
)

# hidden: two modules may have functions of one name, and the loader would take one for both
FLAGS = ("-std=c++17", "-O3", "-split-compile=0", "-Xcompiler=-fvisibility=hidden")


class CudaTarget:
    """Kernels for an NVIDIA GPU, by nvcc.

    gpu: which one. float32: "ieee" for products as accurate as fp32's, "tf32" for products as
    accurate as TF32's, which emitted modules use only while PyTorch's flags allow it.
    """

    device = "cuda"
    empty = "rf_empty"

    def __init__(self, gpu: Device, float32: str = "ieee") -> None:
        self.gpu = gpu
        self.float32 = float32
        self.name = gpu.name

    def launch(self, group: Group, name: str) -> Launch:
        return self.kernel(group, name).call

    def kernel(self, group: Group, name: str) -> CudaKernel:
        """The kernel of a group."""
        family = BY_NAME[group.family]
        if family.cuda is None:
            raise ValueError(f"{family.name} has no kernels for GPUs, but claims {group.nodes}")
        return family.cuda(group, name)

    def prologue(self, prepared: bool, allocates: bool, alone: bool, device: str) -> list[str]:
        lines = [f"rf_device = {device}", "rf_stream = _refold_stream(rf_device)"]
        if prepared:
            lines += ["if rf_stream != rf_cache.stream:", "    _refold_wait(rf_cache, rf_device)"]
        if alone:  # each of our kernels looks in passing: runtime/look.py
            lines.append("_refold_kernels.look_alone(rf_stream, rf_device)")
        if allocates:
            lines.append(
                "rf_empty = _refold_empty if _refold_current() == rf_device"
                " else _refold_empty_on(rf_device)"
            )
        return lines

    def guards(self, names: Sequence[str]) -> list[Refusal]:
        first, *rest = names
        reason = f'"{{}} is on another device than {first}"'
        return [(f"{n}.get_device() != {first}.get_device()", reason.format(n)) for n in rest]

    def flags(self, groups: Sequence[Group]) -> list[Refusal]:
        reason = '"PyTorch\'s flags do not allow TF32, which the kernels use"'
        found = [("not _refold_tf32_allowed()", reason)] if self.float32 == "tf32" else []
        if _convolves_in_tf32(groups):
            own = '"PyTorch\'s flag does not allow TF32 for convolutions, where the kernels use it"'
            found.append(("not _refold_tf32_allowed_in_convolutions()", own))
        return found

    def text(self, group: Group, name: str) -> str:
        k = self.kernel(group, name)
        return "\n".join([*k.headers(), k.struct(), k.needs(), k.entry()])

    def build(self, groups: Sequence[Member], source: Source) -> str:
        forms = forms_of(m.group for m in groups)
        capability = self.gpu.capability
        assert capability is not None
        later = " or later" if self.gpu.runs_later else ""
        return render(
            "cuda.py.jinja",
            extension=f"refold_{self.gpu.architecture}_{digest(source.text + self.name)}",
            flags=repr([*FLAGS, *self.gpu.flags]),
            packs=PACKED in forms,
            transposes=TRANSPOSED in forms,
            convolutions=sorted(f for f in forms if f.startswith(CONVOLUTION)),
            turned=TURNED,
            asks=_convolves_in_tf32(m.group for m in groups),
            hi_lo=sorted(f"_refold_{f}" for f in forms if f.startswith("hi_lo")),
            capability=capability,
            only="<" if later else "!=",
            words=f"{capability[0]}.{capability[1]}{later}",
        )

    def source(self, groups: Sequence[Member], looks: bool) -> Source:
        kernels = kernels_of(groups, self.kernel)
        own = ["run.cuh", "look_alone.cuh"] if looks else ["run.cuh"]
        some = own if kernels or looks else []
        needed = included("cuda", [*some, *(h for k in kernels for h in k.headers())])
        headers = [
            "#define PY_SSIZE_T_CLEAN",
            *real_text(m.group for m in groups),
            *map(header, COMMON),
        ]
        headers += [header(f"cuda/{h}") for h in needed]
        functions: list[str] = []
        for family in FAMILIES:
            own_groups = [m.group for m in groups if m.group.family == family.name]
            functions += family.entries(own_groups, self.float32)
        functions += [text for k in kernels for text in (k.needs(), k.entry())]
        return Source("\n".join(headers).rstrip("\n"), own_text(kernels, functions))


def _convolves_in_tf32(groups: Iterable[Group]) -> bool:
    kernels = (g.kernel for g in groups)
    return any(k.kind == "tf32" for k in kernels if isinstance(k, ConvolutionKernel))


def forms_of(groups: Iterable[Group]) -> set[str]:
    """The forms in which products read their sides."""
    return {form for g in groups if g.kernel is not None for _, form in g.kernel.packs}


def nvcc() -> str | None:
    """The CUDA compiler's path: on PATH, where CUDA_HOME and the usual place have it, or pip's."""
    return _refold_other_nvcc() or _refold_pip_nvcc()


def compile_emitted(text: str, said: list[str] | None = None) -> str | None:
    """Compile the CUDA source of an emitted file without running it; the first error, or None.

    said: gets what the assembler says of registers and of memory.
    """
    source = source_of(text)
    flags = re.search(r"_REFOLD_FLAGS = (\[[^\]]*\])", text)
    compiler, nvrtc = nvcc(), _refold_nvrtc()
    if source is None or flags is None or (compiler is None and nvrtc is None):
        return f"there is no CUDA source, or {NO_CUDA}"
    if compiler is None:
        assert nvrtc is not None
        with tempfile.TemporaryDirectory(prefix="refold_") as folder:
            given = "kernels", source.text, ast.literal_eval(flags[1]), folder
            try:
                _refold_compiled_apart(nvrtc, *given)
            except RuntimeError as error:
                return _first_error(str(error))
        return None
    with tempfile.TemporaryDirectory(prefix="refold_") as folder:
        path = Path(folder, "kernels.cu")
        path.write_text(source.text)
        command = [compiler, *ast.literal_eval(flags[1]), "-DTORCH_EXTENSION_NAME=kernels"]
        command += [f"-I{sysconfig.get_path('include')}", "-c", "-o", f"{path}.o", str(path)]
        command += ["-Xptxas=-v"] if said is not None else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        if said is not None:
            said.append(done.stderr)
        return None
    return _first_error(done.stderr)


def _first_error(said: str) -> str:
    lines = said.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line), lines[0])
