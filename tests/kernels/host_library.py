"""CUDA headers that are plain arithmetic, compiled for the host: no GPU and no nvcc is needed."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from refold.kernels import cuda

HOST = Path(__file__).parent / "host"
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC")


def on_host(name: str, folder: Path) -> ctypes.CDLL:
    """The library of `host/NAME.cpp`, built in a folder."""
    out = folder / f"{name}.so"
    include = (f"-I{HOST}", f"-I{Path(cuda.__file__).parent}")
    command = ["g++", *FLAGS, *include, "-o", str(out), str(HOST / f"{name}.cpp")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(out))
