"""Where the C++ and CUDA headers are: those of a family in its folder, shared ones in kernels/.

A header is known by its target's folder and its name, such as "cuda/rows.cuh"; headers include one
another by name alone. So each name stands once among the folders of a target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from posixpath import normpath

COMMON = ("call.h", "contents.h", "entries.h", "look.h", "watch.h")  # what every file begins with
_ROOT = Path(str(resources.files("refold")))


@cache
def folders(target: str) -> tuple[Path, ...]:
    """The folders with headers of a target, "cpu" or "cuda"; what compiles them looks there."""
    families = (p / target for p in sorted(_ROOT.joinpath("families").iterdir()))
    return (_ROOT / "kernels" / target, *(p for p in families if p.is_dir()))


def names() -> list[str]:
    """All headers that emitted files may hold."""
    found = [p.name for p in _ROOT.joinpath("kernels").glob("*.h")]
    for target in ("cpu", "cuda"):
        files = (p for folder in folders(target) for p in folder.iterdir())
        found += [f"{target}/{p.name}" for p in files if p.suffix in (".h", ".cuh")]
    return sorted(found)


@cache
def path(name: str) -> Path:
    """The file of a header. Raises ValueError where there is not one of that name."""
    target, _, file = normpath(name).rpartition("/")
    places = folders(target) if target else (_ROOT / "kernels",)
    found = [folder / file for folder in places if (folder / file).is_file()]
    if len(found) != 1:
        where = ", ".join(str(p.relative_to(_ROOT)) for p in places)
        raise ValueError(f"expected one header {name} in {where}, found {len(found)}")
    return found[0]


@cache
def header(name: str) -> str:
    """A header's text without its includes of the others: emitted files hold them in order."""
    return re.sub(r'(?m)^(#pragma once|#include "[^"]*")\n', "", path(name).read_text())


@cache
def _includes(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r'(?m)^#include "([^"]*)"', path(name).read_text()))


def included(folder: str, names: Iterable[str]) -> list[str]:
    """The headers `names` of a target and all that they include, each after what it includes."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for inner in _includes(f"{folder}/{name}"):
            if inner.removeprefix("../") not in COMMON:  # what every file begins with
                visit(inner)
        found.setdefault(name)

    for name in names:
        visit(name)
    return list(found)
