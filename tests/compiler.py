"""A C++ compiler for extensions that parses the headers which many of them include only once.

    CXX=... python -m pytest      the compiler that is asked for, untouched
    python tests/compiler.py ...  c++ with these arguments

Most of what a small extension takes to compile is PyTorch's and the standard library's headers. The
first sources of a kind are compiled as they are. From the fifth on that includes the same headers
under the same flags, these are read from a precompiled header: of what each source includes itself
and nothing else, so that one which forgets a header fails here, too.

An optimizing compiler takes three times as long as one that does not optimize. Tests that ask what
a kernel computes, not how fast, do without (`OPTIMIZE` in the environment), with the fastest linker
that there is, which does not read PyTorch's libraries: whatever they lack is missed when the result
is loaded, too. And they read a file that is compiled as two units as one: side by side they are
there sooner, and cost half as much again (`PARTS` keeps them).

What torch.compile compiles beside ours goes the same way. It takes this for GCC by its name, else
it would precompile headers as Clang does, and never read them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = "REFOLD_TEST_HEADERS"
OPTIMIZE = "REFOLD_TEST_OPTIMIZE"  # takes the place of -O3; empty: nothing is replaced
PARTS = "REFOLD_TEST_PARTS"  # set: two units stay two
WORTH_IT = 3  # precompiling takes as long as reading them two or three times
REAL = "c++"
# headers that a source reads only if it defines one of these, or where it cannot do without
SELDOM: dict[str, tuple[str, ...]] = {
    "#include <ATen/cpu/vec/vec.h>": ("#define RF_REAL double", "#define RF_VECTORS"),
    "#include <ATen/Parallel.h>": (),
}
INDUCTOR = "TORCH_INDUCTOR_CPP_WRAPPER"  # each file that torch.compile writes is compiled with it
LINKERS = ("mold", "gold")  # faster than the usual one, which takes a fifth of such a compilation


def install(folder: Path) -> None:
    """Makes this the compiler of extensions, also in processes that are started from this one."""
    script, draft = folder / "g++", folder / f"g++.{os.getpid()}"
    draft.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{Path(__file__)}" "$@"\n')
    draft.chmod(0o755)
    draft.rename(script)  # processes that share the folder may be at work with theirs
    os.environ[FOLDER] = str(folder)
    os.environ["CXX"] = str(script)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    # it compiles and runs a program for each kind of vectors that the processor says it has
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


def includes(source: str) -> str:
    """The headers of the system that a source includes and that take long, each once, in its
    order."""
    found = re.findall(r"(?m)^#(?:include <[^>]*>|define PY_SSIZE_T_CLEAN)$", source)
    lines = [f for f in dict.fromkeys(found) if any(d in source for d in SELDOM.get(f, ("",)))]
    return "".join(f"{line}\n" for line in lines if not line.endswith("intrin.h>"))


def source_of(arguments: Sequence[str]) -> Path | None:
    """The extension's source that is to be compiled; None if it is anything else."""
    own = any(a.startswith("-DTORCH_EXTENSION_NAME=") for a in arguments)
    if not own or "-c" not in arguments[:-1] or "-include" in arguments:
        return None
    return Path(arguments[arguments.index("-c") + 1])


def flags_of(arguments: Sequence[str]) -> list[str]:
    """What a precompiled header has to be compiled with, too: all but names of files."""
    rest = iter(arguments)
    found = []
    for a in rest:
        if a in ("-c", "-o", "-MF"):
            next(rest)
        elif a != "-MMD" and not a.startswith(("-DTORCH_EXTENSION_NAME=", "-DRF_UNIT=")):
            found.append(a)
    return found


def precompiled(text: str, flags: Sequence[str], folder: Path) -> Path | None:
    """The header of a text, precompiled; None where it is not worth it yet."""
    name = hashlib.sha256(repr((text, flags)).encode()).hexdigest()[:12]
    header, uses = folder / f"{name}.h", folder / f"{name}.uses"
    with uses.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(".")
        file.flush()
        if uses.stat().st_size < WORTH_IT:
            return None
        if not header.exists():
            draft = folder / f"{name}.draft.h"
            draft.write_text(text)
            command = [REAL, *flags, "-x", "c++-header", str(draft), "-o", f"{header}.gch"]
            subprocess.run(command, check=True)
            draft.rename(header)
    return header


def whole(source: Path, arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """All of a source in the place of its first unit, and nothing in that of another."""
    unit = next((a for a in arguments if a.startswith("-DRF_UNIT=")), None)
    rest = [a for a in arguments if a != unit]
    if unit in (None, "-DRF_UNIT=0"):
        return source, rest
    return None, [*("-x", "c++"), *(os.devnull if a == str(source) else a for a in rest)]


def stubs(arguments: Sequence[str], folder: Path) -> list[str]:
    """Where the linker finds, before PyTorch's libraries, empty ones of their names."""
    own = next((a.removeprefix("-L") for a in arguments if a.endswith("/torch/lib")), "")
    names = [f"lib{a.removeprefix('-l')}.so" for a in arguments if a.startswith("-l")]
    made = folder / "stubs"
    for name in names if own else []:
        if Path(own, name).exists() and not (made / name).exists():
            made.mkdir(exist_ok=True)
            draft = made / f"{name}.{os.getpid()}"
            command = [REAL, "-shared", "-x", "c++", os.devnull, f"-Wl,-soname,{name}"]
            subprocess.run([*command, "-o", str(draft)], check=True)
            draft.rename(made / name)
    # some compilers ask the linker to leave out what no symbol was found in
    return ["-Wl,--no-as-needed", f"-L{made}"] if own else []


def main(arguments: Sequence[str]) -> None:
    source = source_of(arguments)
    if source is not None or INDUCTOR in arguments:
        instead = os.environ.get(OPTIMIZE) or "-O3"
        arguments = [instead if a == "-O3" else a for a in arguments]
    if source is not None and os.environ.get(OPTIMIZE) and not os.environ.get(PARTS):
        source, arguments = whole(source, arguments)
    header = None
    if source is not None:
        text = includes(source.read_text())
        header = precompiled(text, flags_of(arguments), Path(os.environ[FOLDER]))
    more = [] if header is None else ["-Winvalid-pch", "-include", str(header)]
    if "-shared" in arguments and os.environ.get(OPTIMIZE):
        more += [f"-fuse-ld={name}" for name in LINKERS if shutil.which(f"ld.{name}")][:1]
        more += stubs(arguments, Path(os.environ[FOLDER]))
    os.execvp(REAL, [REAL, *more, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
