"""CUDA headers that are plain arithmetic, compiled for the host: no GPU and no nvcc is needed."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tests.emulator import compile_source, link

HOST = Path(__file__).parent / "host"


def on_host(name: str, folder: Path) -> ctypes.CDLL:
    """The library of `host/NAME.cpp`, built in a folder."""
    compile_source(HOST / f"{name}.cpp", folder / f"{name}.o")
    link([folder / f"{name}.o"], folder / f"{name}.so")
    return ctypes.CDLL(str(folder / f"{name}.so"))
