"""Builds the CUDA test kernels into one library and calls them on torch tensors.

`bench/cuda_matmul.py` uses it too. A build is kept in a folder named by the digest of its sources.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

from refold.codegen.headers import folders
from tests import emulator

from .machine import EMULATED, stream

HERE = Path(__file__).parent
KERNELS = folders("cuda")
SOURCES = ("plain.cu", "direct.cu", "sinks.cu", "systems.cu", "generic.cu", "simt.cu")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-Xptxas=-v",
    "-Xcompiler=-fPIC",
    *(f"-I{folder}" for folder in KERNELS),
    f"-I{HERE}",
)


class Call(ctypes.Structure):
    """`struct Call` of bodies.cuh."""

    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("a", "b", "a_unscale", "b_unscale", "a_plain", "b_plain")),
        *((n, ctypes.c_long) for n in ("rows", "cols", "depth", "lda", "ldb", "batches")),
        ("parts", ctypes.c_void_p),
        ("turns", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p * 4),
        ("outputs", ctypes.c_void_p * 8),
        ("stream", ctypes.c_void_p),
    )


def nvcc() -> str:
    """The compiler's path. Raises RuntimeError if there is none."""
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(found).exists():
        raise RuntimeError("nvcc is not on the PATH: install the CUDA toolkit, 12.4 or later")
    return found


def compile_source(source: Path, out: Path, target: str = "90a") -> str:
    """Compiles one file for sm_`target`; what ptxas reports. Raises RuntimeError.

    out: an object; or, in half the time, a .cubin, without what the host runs.
    """
    architecture = f"-gencode=arch=compute_{target},code=sm_{target}"
    kind = "-cubin" if out.suffix == ".cubin" else "-c"
    command = [nvcc(), *FLAGS, architecture, kind, "-o", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout + done.stderr


def link(objects: Sequence[Path], library: Path) -> None:
    command = [nvcc(), "-shared", "-cudart=static", "-o", str(library)]
    subprocess.run([*command, *map(str, objects)], check=True)


def library(kind: str, texts: Mapping[str, str]) -> ctypes.CDLL:
    """The library of some CUDA files for this machine, built if a source has changed.

    texts: the files' by their names; they may include the kernels and what lies beside this file.
    """
    digest = hashlib.sha256(repr(sorted(texts.items())).encode())
    headers = (p for folder in (*KERNELS, HERE) for p in folder.glob("*.cuh"))
    for path in sorted((*headers, *emulator.SOURCES)):
        digest.update(path.read_bytes())
    folder = Path(os.environ.get("REFOLD_CUDA_BUILD", tempfile.gettempdir()))
    name = f"refold_{'emulated' if EMULATED else 'cuda'}_{kind}_{digest.hexdigest()[:12]}.so"
    if not (folder / name).exists():
        with tempfile.TemporaryDirectory() as work:
            files = [Path(work) / f"{n}.cu" for n in texts]
            objects = [f.with_suffix(".o") for f in files]
            for file, text in zip(files, texts.values(), strict=True):
                file.write_text(text)
            with ThreadPoolExecutor(2 if EMULATED else None) as pool:
                list(
                    pool.map(
                        emulator.compile_source if EMULATED else compile_source, files, objects
                    )
                )
            # under its name once it is whole: another process may look for it meanwhile
            (emulator.link if EMULATED else link)(objects, folder / f"{name}.{os.getpid()}")
            os.replace(folder / f"{name}.{os.getpid()}", folder / name)
    return ctypes.CDLL(str(folder / name))


# the schedules of which the emulator runs small cases; of the others nothing is compiled for it
CHOSEN = (
    *("ieee_tall", "ieee_wide_4", "ieee_small_2", "direct_tall", "ieee_generic_4", "simt"),
    *("tf32_tall", "ieee_small_32", "direct_tall_8", "ieee_generic"),
)
CHOSEN_OF_16_BITS = (
    *("bfloat_tall", "bfloat_small", "bfloat_generic", "bfloat_simt", "half_tall"),
    *("parts_half_wide_4", "parts_bfloat_generic_4"),
)
_ENTRY = re.compile(r"(?m)^RF_(?:BATCH_)?ENTRY\((\w+),.*\n")


def build(name: str | None = None) -> ctypes.CDLL:
    """The library of the test kernels that has an entry, by its name."""
    return _built(EMULATED and (name is None or _is_chosen(name)))


def _is_chosen(name: str) -> bool:
    kind, _, schedule = name.partition("_")
    return name in CHOSEN_OF_16_BITS or (
        kind in ("plain", "operands", "rows", "columns", "both", "batch")
        and schedule in (*CHOSEN, *CHOSEN_OF_16_BITS)
    )


@cache
def _built(chosen: bool) -> ctypes.CDLL:
    texts = {s.removesuffix(".cu"): (HERE / s).read_text() for s in SOURCES}
    if not chosen:
        return library("products", texts)
    some = {n: _ENTRY.sub(lambda e: e[0] * _is_chosen(e[1]), t) for n, t in texts.items()}
    return library("some_products", some)


def _call(function: Any, *args: Any) -> None:
    function.restype = ctypes.c_char_p
    error = function(*args)
    if error is not None:
        raise RuntimeError(error.decode())


def _address(t: torch.Tensor | None) -> int | None:
    return None if t is None else t.data_ptr()


class Split:
    """A matrix [rows, depth] as the tensor cores read it.

    mode: "ieee" or "tf32" split fp32; "half" or "bfloat" take a 16-bit matrix as it is, "simt" an
    fp32 one, "direct" one whose rows start at multiples of 16 bytes. late: left to the product,
    which splits its first side itself.
    """

    def __init__(self, x: torch.Tensor, mode: str, late: bool = False) -> None:
        self.rows, self.depth = x.shape
        self.mode, self.plain, self.pitch = mode, x, x.stride(0)
        self.data: torch.Tensor | None = x
        self.unscale: torch.Tensor | None = None
        if late:
            self.data = None
        if late or mode in ("half", "bfloat", "simt", "direct"):
            return
        padded = (self.depth + 31) // 32 * 32
        width = padded * (2 if mode == "ieee" else 1)
        self.data = torch.empty(self.rows, width, dtype=torch.float16, device=x.device)
        self.unscale = torch.empty(self.rows, dtype=torch.float32, device=x.device)
        self.function = getattr(build(), f"split_{mode}")
        self.renew()

    def renew(self) -> None:
        """Splits what `plain` holds now."""
        assert self.unscale is not None and self.data is not None
        _call(
            self.function,
            *(ctypes.c_void_p(self.plain.data_ptr()), ctypes.c_long(self.rows)),
            *(ctypes.c_long(self.depth), ctypes.c_long(self.pitch)),
            *(ctypes.c_void_p(self.data.data_ptr()), ctypes.c_void_p(self.unscale.data_ptr())),
            ctypes.c_void_p(stream()),
        )


class Product:
    """One product a [rows, depth] x b [cols, depth]^T with its workspace and its operands.

    name: an entry of the library. inputs, outputs: as the entry's body numbers them. library:
    another than the tests'. batches: of a batch of products, how many there are; b has as many
    matrices of `cols` rows.
    """

    def __init__(
        self,
        name: str,
        a: Split,
        b: Split,
        inputs: tuple[torch.Tensor, ...] = (),
        outputs: tuple[torch.Tensor, ...] = (),
        library: ctypes.CDLL | None = None,
        batches: int | None = None,
    ) -> None:
        library = library or build(name)
        self.function = getattr(library, name)
        self.keep = (a, b, inputs, outputs)
        sizes = (ctypes.c_size_t * 2)()
        sizes_of = getattr(library, f"{name}_sizes")
        cols = b.rows // (batches or 1)
        more = ctypes.c_long(batches or (a.depth if a.data is None else 0))
        _call(sizes_of, ctypes.c_long(a.rows), ctypes.c_long(cols), more, sizes)
        device = a.plain.device
        self.parts = torch.empty(max(sizes[0], 1), dtype=torch.uint8, device=device)
        self.parts.fill_(255)  # NaN: nothing may be read that this launch has not written
        self.turns = torch.zeros(max(sizes[1], 4) // 4, dtype=torch.int32, device=device)
        c = self.call = Call(rows=a.rows, cols=cols, depth=a.depth, lda=a.pitch, ldb=b.pitch)
        c.batches = batches or 1
        c.a, c.b = _address(a.data), _address(b.data)
        c.a_unscale, c.b_unscale = _address(a.unscale), _address(b.unscale)
        c.a_plain, c.b_plain = a.plain.data_ptr(), b.plain.data_ptr()
        c.parts, c.turns = self.parts.data_ptr(), self.turns.data_ptr()
        for i, t in enumerate(inputs):
            c.inputs[i] = t.data_ptr()
        for i, t in enumerate(outputs):
            c.outputs[i] = t.data_ptr()

    def __call__(self) -> None:
        self.call.stream = stream()
        _call(self.function, ctypes.byref(self.call))
