"""The source of an extension: the headers that it holds, and the Python module that it makes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from refold.plan import Group


@dataclass(frozen=True)
class Source:
    """The C++ of an extension, in the parts that an emitted file shows apart.

    headers: what kernels are made of, the same in every file with the same kinds of kernels.
    kernels: this model's own. entries: the functions through which Python calls them.
    """

    headers: str
    kernels: str
    entries: str

    @property
    def text(self) -> str:
        """What the compiler reads."""
        return "".join(f"\n{part}\n" for part in (self.headers, self.kernels, self.entries))


# the parts as emitted files name them
_NAMES = ("_REFOLD_HEADERS", "_REFOLD_KERNELS", "_REFOLD_ENTRIES")


def source_of(text: str) -> Source | None:
    """The C++ of an emitted file; None where there is none."""
    found = {}
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _NAMES:
                found[name] = str(ast.literal_eval(value)).strip("\n")
    return Source(*(found[name] for name in _NAMES)) if len(found) == len(_NAMES) else None


def digest(text: str) -> str:
    """Names an extension by its text, so that PyTorch's cache of extensions never mixes two up."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


WATCH = ("watch", "unchanged", "look", "altered", "differing")  # of watch.h


def module_text(names: Iterable[str]) -> str:
    """C++ that makes the entries a Python module."""
    rows = "".join(
        f'    {{"{name}", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>({function})),'
        " METH_FASTCALL, nullptr},\n"
        for name, function in [*((n, f"rf_watch::{n}") for n in WATCH), *((n, n) for n in names)]
    )
    return _MODULE.replace("@ROWS@", rows)


_MODULE = """\
static PyMethodDef rf_methods[] = {
@ROWS@    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef rf_module = {PyModuleDef_HEAD_INIT, "kernels", nullptr, -1, rf_methods,
                                nullptr, nullptr, nullptr, nullptr};
#define RF_INIT_(name) PyInit_##name
#define RF_INIT(name) RF_INIT_(name)
PyMODINIT_FUNC RF_INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&rf_module); }
"""


def real_text(groups: Iterable[Group]) -> list[str]:
    """C++ that names the kernels' arithmetic, where it is not float32."""
    double = any(g.real == torch.float64 for g in groups)
    return ["#define RF_REAL double"] if double else []


def bodies_text(structs: Iterable[str]) -> str:
    """The kernels' bodies in the namespace of their headers."""
    return "\n".join(["namespace rf {", *structs, "}  // namespace rf"])
