"""The source of an extension: the headers that it holds, and the Python module that it makes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from refold.codegen.kernel import GroupKernel
from refold.plan import Group


@dataclass(frozen=True)
class Source:
    """The C++ of an extension, in the parts that an emitted file shows apart.

    headers: what kernels are made of, the same in every file with the same kinds of kernels.
    kernels: this model's own, and the functions by which Python calls them.
    """

    headers: str
    kernels: str

    @property
    def text(self) -> str:
        """What the compiler reads."""
        return "".join(f"\n{part}\n" for part in (self.headers, self.kernels))


# the parts as emitted files name them
_NAMES = ("_REFOLD_HEADERS", "_REFOLD_KERNELS")


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


def real_text(groups: Iterable[Group]) -> list[str]:
    """C++ that names the kernels' arithmetic, where it is not float32."""
    double = any(g.real == torch.float64 for g in groups)
    return ["#define RF_REAL double"] if double else []


def own_text(kernels: Iterable[GroupKernel], functions: Iterable[str]) -> str:
    """The kernels' bodies and the functions by which Python calls them, among their headers."""
    bodies = [k.struct() for k in kernels]
    called = [text.rstrip("\n") for text in functions if text]
    head = (
        ["// How Python calls them: a name, what is given in order, and what runs."]
        if called
        else []
    )
    return "\n".join(["namespace rf {", *bodies, *head, *called, "}  // namespace rf"])
