"""The source of an extension: the headers that it holds, and the Python module that it makes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

import torch

from refold.plan import Group


@cache
def header(name: str) -> str:
    """A template's text without its includes of the others: emitted files hold them in order."""
    text = resources.files("refold.kernels").joinpath(name).read_text()
    return re.sub(r'(?m)^(#pragma once|#include "[^"]*")\n', "", text)


@cache
def _includes(name: str) -> tuple[str, ...]:
    text = resources.files("refold.kernels").joinpath(name).read_text()
    return tuple(re.findall(r'(?m)^#include "([^"]*)"', text))


def included(folder: str, names: Iterable[str]) -> list[str]:
    """The headers `names` of a folder and all that they include, each after what it includes."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for inner in _includes(f"{folder}/{name}"):
            if inner.removeprefix("../") not in COMMON:  # what every file begins with
                visit(inner)
        found.setdefault(name)

    for name in names:
        visit(name)
    return list(found)


def digest(text: str) -> str:
    """Names an extension by its text, so that PyTorch's cache of extensions never mixes two up."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


COMMON = ("call.h", "look.h", "watch.h")  # what every file begins with
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


def real_text(groups: Iterable[tuple[str, Group]]) -> list[str]:
    """C++ that names the kernels' arithmetic, where it is not float32."""
    double = any(g.real == torch.float64 for _, g in groups)
    return ["#define RF_REAL double"] if double else []
