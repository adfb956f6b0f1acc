"""What the command `refold optimize` imports sooner or later, for forked.py."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shlex
import subprocess
from typing import Any


def vectors() -> None:
    """Spares Inductor a program for each kind of vectors that this processor has, which it compiles
    and loads to see whether it may: a compiler that knows all their flags compiles them."""
    isa: Any = importlib.import_module("torch._inductor.cpu_vec_isa")
    config: Any = importlib.import_module("torch._inductor.config")
    here = isa.x86_isa_checker()
    kinds = [k for k in isa.supported_vec_isa_list if all(f in here for f in str(k).split())]
    flags = [flag for k in kinds for flag in k.build_arch_flags().split()]
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    command = [*compiler, *flags, "-fsyntax-only", "-x", "c++", os.devnull]
    known = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if known and kinds and config.cpp.vec_isa_ok is None:
        config.cpp.vec_isa_ok = True


gc.disable()  # what is imported lives on
for name in (
    *("refold.cli", "torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.cpp"),
    *("torch._inductor.async_compile", "torch._inductor.codegen.cpp_wrapper_cpu"),
):
    importlib.import_module(name)
for name in (  # a model's first capture or compilation imports these, as far as a PyTorch has them
    *("refold.report.arguments", "refold.report.commands", "sympy.physics", "torch.export._trace"),
    *("torch.utils.cpp_extension", "torch._inductor.codegen.memory_planning"),
    *("torch._inductor.fx_passes.pad_mm", "torch._inductor.codegen.pallas"),
    "torch.distributed.tensor.experimental._func_map",
):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
with contextlib.suppress(AttributeError, OSError):  # another PyTorch, or no compiler
    vectors()
gc.freeze()
gc.enable()
