"""What emitted kernels are called by compiles against each Python that is at hand.

A line that one release of Python takes may be none for the next: macros become functions there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from refold.codegen.headers import COMMON, header

OLDEST = (3, 10)  # that the package supports


def includes() -> dict[str, str]:
    """The folders of headers, by release: of this Python, of the system, and of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [Path(sysconfig.get_path("include"))]
    places += sorted(Path("/usr/include").glob("python3.*"))
    places += sorted(pyenv.glob("versions/*/include/python3.*"))
    found = {}
    for place in places:
        release = re.fullmatch(r"python3\.(\d+)", place.name)
        if release and (3, int(release[1])) >= OLDEST and (place / "Python.h").is_file():
            found.setdefault(place.name, str(place))
    return found


def said_of(text: str, folder: str, place: Path) -> str:
    """What the compiler says of C++ with a Python's headers."""
    place.write_text(text)
    flags = ["-std=c++17", "-fsyntax-only", "-w", "-DTORCH_EXTENSION_NAME=kernels", f"-I{folder}"]
    command = [shutil.which("g++") or "c++", *flags, str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_each_python_takes_the_headers(tmp_path: Path) -> None:
    here = includes()
    if not here:
        pytest.skip("no Python is here with its headers")
    text = "\n".join(["#define PY_SSIZE_T_CLEAN", *map(header, COMMON), ""])
    place = tmp_path / "headers.cpp"
    assert {r: said for r, folder in here.items() if (said := said_of(text, folder, place))} == {}
    wrong = f"{text}double* rf_at(PyObject* o) {{ return &(PyFloat_AS_DOUBLE(o) + 0.0); }}\n"
    assert all(said_of(wrong, folder, place) for folder in here.values())
