"""Emitted modules of the CUDA target on the emulator: their text, changed to run on CPU tensors."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import torch

from tests.emulator.translate import compile_source, link

# what an emitted module says of its GPU -> the same of the emulator
_CHANGES = (
    (
        "_refold_library(_REFOLD_NAME, _REFOLD_SOURCE, _REFOLD_FLAGS, compiled, file, here)",
        'compiled(""), None',
    ),
    ("from torch.utils.cpp_extension import load_inline", f"from {__name__} import load_inline"),
    ("torch.cuda.", "_emulated_cuda."),
    ('torch.device("cuda", ', '_emulated_cuda.device("cuda", '),
    (".is_cuda", ".is_cpu"),
    ('getattr(torch._C, "_cuda_getCurrentRawStream", None)', "_emulated_cuda.raw_stream"),
    ('getattr(torch._C, "_cuda_getDevice", None)', "_emulated_cuda.current"),
    ("_empty_strided_cuda", "_empty_strided_cpu"),
)

# where the tables begin: the original, the folds and the fast forward before them need no change
_FACTS = "_REFOLD_MODULES = ("


class Cuda:
    """What emitted modules ask of torch.cuda, for a device whose number is -1: the CPU's."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_current_stream_capturing() -> bool:
        return False

    @staticmethod
    def get_device_capability(device: int) -> tuple[int, int]:
        return (9, 0)

    @staticmethod
    def device(kind: str, number: int) -> torch.device:
        return torch.device("cpu")

    @staticmethod
    def current() -> int:
        return -1

    @staticmethod
    def raw_stream(device: int) -> int:
        return 0

    @staticmethod
    def current_stream(device: int) -> None:
        return None

    class Generator:
        """As PyTorch's of a GPU: a seed, and how many numbers were drawn."""

        def __init__(self, seed: int = 0, offset: int = 0) -> None:
            self.seed, self.offset = seed, offset

        def initial_seed(self) -> int:
            return self.seed

        def get_offset(self) -> int:
            return self.offset

        def set_offset(self, offset: int) -> None:
            self.offset = offset

    default_generators: ClassVar = {-1: Generator()}

    class Event:
        def record(self, stream: None) -> None:
            pass


def emulated(text: str) -> str:
    """An emitted module's text for the emulator. Raises ValueError if it is not one for CUDA."""
    head, mark, rest = text.partition(_FACTS)
    if not mark or "cuda_sources" not in rest:
        raise ValueError("the text has no CUDA source")
    return f"{head}from {__name__} import Cuda as _emulated_cuda\n{mark}{_changed(rest)}"


def _changed(text: str) -> str:
    python = re.split(r'(r""".*?""")', text, flags=re.DOTALL)  # what is odd is C++
    for i in range(0, len(python), 2):
        for old, new in _CHANGES:
            python[i] = python[i].replace(old, new)
    return "".join(python)


def emulated_graph(text: str) -> ModuleType:
    """A graph's text that the backend has written, as a module on the emulator."""
    module = ModuleType("emulated_graph")
    head = f"from {__name__} import Cuda as _emulated_cuda\n"
    exec(compile(head + _changed(text), "<emulated graph>", "exec"), module.__dict__)
    return module


def load_inline(
    name: str, cuda_sources: Sequence[str], extra_cuda_cflags: Sequence[str], **others: object
) -> ModuleType:
    """Instead of torch.utils.cpp_extension's: the extension for the emulator."""
    found = re.search(r"compute_(\d+)", " ".join(extra_cuda_cflags))
    assert found is not None, extra_cuda_cflags
    flags = [f"-I{sysconfig.get_path('include')}", f"-DTORCH_EXTENSION_NAME={name}"]
    with tempfile.TemporaryDirectory(prefix="refold_emulated_") as folder:
        source, built = Path(folder, "kernels.cu"), Path(folder, "kernels.o")
        source.write_text("\n".join(cuda_sources))
        compile_source(source, built, int(found[1]) * 10, flags)
        link([built], Path(folder, f"{name}.so"))
        return _imported(name, Path(folder, f"{name}.so"))


def _imported(name: str, library: Path) -> ModuleType:
    loader = ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    launches = ctypes.c_long.in_dll(ctypes.CDLL(str(library)), "emulator_launches")
    module.launches = lambda: launches.value  # type: ignore[attr-defined]
    return module
