"""Kernels that `refold build` compiled ahead: in a folder beside the file, which has their name.

built.json lists the libraries: of each its digest and what it needs. One that was changed, or that
is for another Python, PyTorch, processor or driver, is not loaded.
"""

import ctypes
import hashlib
import importlib.machinery
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

_REFOLD_LIST = "built.json"


def _refold_here(**more: Sequence[str]) -> dict[str, Sequence[str]]:
    """What libraries may need, and of each what there is here, the best first."""
    python = importlib.machinery.EXTENSION_SUFFIXES[0].strip(".").removesuffix(".so")
    return {"Python": [python], **more}


def _refold_torch_release() -> str:
    """Whose functions kernels for the CPU call: those of another release may be others."""
    return ".".join(torch.__version__.split(".")[:2])


def _refold_drivers() -> list[str]:
    """The releases of CUDA that the driver runs. A library has CUDA's runtime in it, which asks for
    a driver of its release or a later one."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return []
    return [f"CUDA {release}" for release in range(version.value // 1000, 0, -1)]


def _refold_digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _refold_built(name: str, source: str, file: str | None, here: Mapping[str, Any]) -> Any:
    """The best library that fits; as text, why none is loaded; None where none was built.

    file: the path of the emitted file, if it lies in one. here: see `_refold_here`.
    """
    folder = os.path.join(os.path.dirname(os.path.abspath(file)), name) if file else ""
    if not os.path.isdir(folder):
        return None
    try:
        with open(os.path.join(folder, _REFOLD_LIST)) as listed:
            made = json.load(listed)
        rows = [(row["file"], row["sha256"], dict(row["needs"])) for row in made["libraries"]]
        if made["source"] != _refold_digest(source.encode()):
            return f"the kernels in the file are others than those that were built in {folder}"
        lacking = [[n for n in needs if needs[n] not in here.get(n, ())] for _, _, needs in rows]
        if not all(lacking):
            fitting = [row for row, lacks in zip(rows, lacking, strict=True) if not lacks]
            best = min(fitting, key=lambda row: [here[n].index(row[2][n]) for n in sorted(row[2])])
            path, digest = os.path.join(folder, os.path.basename(best[0])), best[1]
            with open(path, "rb") as library:
                whole = _refold_digest(library.read()) == digest
            return _refold_loaded(name, path) if whole else f"{path} was changed after it was built"
        _, _, needs = rows[lacking.index(min(lacking, key=len))]
        wanted = " and ".join(
            f"{n} {needs[n]} (here: {', '.join(here.get(n, ())) or 'none'})"
            for n in min(lacking, key=len)
        )
        return f"the kernels in {folder} were built for {wanted}"
    except OSError as error:
        what = os.path.basename(error.filename or folder)
        return f"the kernels built in {folder} are not all there ({what}: {error.strerror})"
    except ImportError as error:
        return f"the kernels built in {folder} cannot be loaded ({str(error).splitlines()[0]})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the kernels built in {folder} are not all there ({_REFOLD_LIST} is cut or changed)"


def _refold_loaded(name: str, path: str) -> Any:
    """The module in a library. Raises ImportError, or OSError."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no library")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
