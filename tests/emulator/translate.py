"""CUDA C++ as C++ for the host: each PTX instruction becomes a call of the emulator's function.

The preprocessor of the host's compiler runs first, with the emulator's headers in the place of
CUDA's; what is left of CUDA's language then are `asm` statements and `__shared__` variables.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from threading import Lock

from refold.codegen.headers import folders
from tests.compiler import FOLDER

HERE = Path(__file__).parent
HEADERS = sorted((HERE / "include").iterdir())
CORE = sorted((HERE / "core").iterdir())
SOURCES = (Path(__file__), *HEADERS, *CORE)
INCLUDES = [f"-I{p}" for p in (HERE / "include", *folders("cuda"), HERE.parent / "gpu")]
# -fno-strict-aliasing: kernels read floats as float4, which nvcc lets them.
# -fno-gnu-unique: what is static in a library is its own, its device and threads.
# -U_FORTIFY_SOURCE: Ubuntu's g++ defines it, and glibc then ends a process that jumps to another
# stack.
FLAGS = (
    "-std=c++17",
    "-U_FORTIFY_SOURCE",
    "-Og",
    "-march=native",
    "-fPIC",
    "-fno-gnu-unique",
    "-w",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
)

# PTX, of which everything up to the operands counts -> the emulator's function of its operands in
# order. None: nothing to do here.
INSTRUCTIONS: dict[str, str | None] = {
    "": None,
    "griddepcontrol.wait;": None,
    "griddepcontrol.launch_dependents;": None,
    "fence.mbarrier_init.release.cluster;": None,
    "fence.proxy.async.shared::cta;": None,
    "prefetch.tensormap": None,
    "setmaxnreg.dec.sync.aligned.u32": None,
    "setmaxnreg.inc.sync.aligned.u32": None,
    "wgmma.fence.sync.aligned;": "product_fence",
    "max.NaN.f32": "max_or_nan",
    "min.NaN.f32": "min_or_nan",
    "rcp.approx.f32": "reciprocal",
    "ex2.approx.ftz.f32": "power_of_two_of",
    "cvt.rn.f16x2.f32": "half_pair",
    "cvt.rn.bf16x2.f32": "bfloat_pair",
    ".reg .b16 lower, upper; mov.b32": "floats_of_halves",
    ".reg .f16 a, b; .reg .f32 x, y, p, q; mul.f32 x,": "split_pair",
    "st.global.v4.f32": "store<float4>",
    "st.global.v2.f64": "store<double2>",
    "st.global.v2.f32": "store<float2>",
    "st.global.v2.b32": "store<uint2>",
    "ld.global.L1::no_allocate.v4.f32": "load_float4",
    "ld.global.L1::no_allocate.v2.b32": "load_uint2",
    "ld.global.L1::no_allocate.f32": "load_float",
    "ld.acquire.gpu.global.u32": "acquire",
    "ld.shared.v4.f32": "load_shared",
    "st.shared.v4.b32": "store_shared",
    "bar.sync": "bar_sync",
    "bar.arrive": "bar_arrive",
    "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;": "cluster_sync",
    "mapa.shared::cluster.u32": "map_shared",
    "st.shared::cluster.u32": "store_shared_word",
    "mbarrier.init.shared::cta.b64": "barrier_init",
    "mbarrier.arrive.expect_tx.shared::cta.b64": "barrier_expect",
    "mbarrier.arrive.shared::cta.b64": "barrier_arrive",
    "mbarrier.arrive.shared::cluster.b64": "barrier_arrive",
    ".reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done,": "barrier_wait",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes": "copy_tile",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster": "copy_tile_to_all",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes": "copy_bytes",
    "cp.async.bulk.global.shared::cta.bulk_group": "store_bytes",
    "cp.async.bulk.commit_group;": "bulk_commit",
    "cp.async.bulk.wait_group.read": "bulk_wait",
    "cp.async.bulk.wait_group": "bulk_wait",
    "cp.async.cg.shared.global": "copy_async",
    "cp.async.ca.shared.global": "copy_word_async",
    "cp.async.commit_group;": "copy_commit",
    "cp.async.wait_group": "copy_wait",
    "wgmma.commit_group.sync.aligned;": "product_commit",
    "wgmma.wait_group.sync.aligned": "product_wait",
    ".reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16": (
        "product<false>"
    ),
    ".reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16": (
        "product<true>"
    ),
    ".reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": (
        "product<false, 64>"
    ),
    ".reg .pred p; setp.ne.b32 p, %22, 0; wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16": (
        "product<false, 40>"
    ),
    ".reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16": (
        "product_of_registers<false, 128>"
    ),
    ".reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16": (
        "product_of_registers<false, 64>"
    ),
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16": "load_tiles",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "warp_product<false>",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": "warp_product<true>",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "warp_product_of_tf32",
    "cvt.rna.tf32.f32": "nearest_tf32",
}
_SHARED = re.compile(r"(extern\s+)?__shared__\s+(?:alignas\(\d+\)\s+)?([^;]*?);")
_DECLARATOR = r"\w+(?:\[[^\]]*\])*"
_DECLARATION = re.compile(
    rf"(?P<type>.*?[\s>])(?P<variables>{_DECLARATOR}(?:\s*,\s*{_DECLARATOR})*)", re.S
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Unknown(ValueError):
    """CUDA that the emulator does not know."""


def translate(text: str) -> str:
    """Preprocessed CUDA C++ as C++. Raises Unknown for PTX that is not in the table."""
    return _SHARED.sub(_shared, "".join(_pieces(text)))


def compile_source(
    source: Path, out: Path, architecture: int = 900, flags: Sequence[str] = ()
) -> None:
    """Compiles a CUDA file to an object for the host.

    architecture: what __CUDA_ARCH__ says. Raises RuntimeError with the compiler's words.
    """
    header = _precompiled(architecture)
    # with -fpch-preprocess the text names the precompiled header instead of holding what it holds
    preprocess = ["-E", "-P", "-fpch-preprocess", "-include", str(header)]
    options = [*FLAGS, *_defines(architecture), *flags, *INCLUDES]
    text = _run(["g++", *preprocess, "-x", "c++", *options, str(source)])
    translated = out.with_suffix(".ii")
    translated.write_text(translate(text))
    _run(["g++", "-x", "c++", "-fpreprocessed", *FLAGS, "-c", "-o", str(out), str(translated)])


_OWN = tempfile.TemporaryDirectory(prefix="refold_emulator_")


def _precompiled(architecture: int) -> Path:
    """The emulator's headers, compiled once."""
    text = "".join(f'#include "{p.name}"\n' for p in HEADERS)
    options = [*FLAGS, *_defines(architecture), *INCLUDES]

    def make(header: Path) -> None:
        header.write_text(text)
        _run(["g++", "-x", "c++-header", *options, "-o", f"{header}.gch", str(header)])

    return _once(f"emulator_{architecture}.h", make)


def _core() -> list[Path]:
    """What is behind the emulator's headers: objects for each library, optimized."""
    options = [*FLAGS, "-O2", *_defines(900), *INCLUDES]

    def make(out: Path) -> None:
        _run(["g++", *options, "-c", "-o", str(out), str(HERE / "core" / f"{out.stem}.cpp")])

    return [_once(f"{p.stem}.o", make) for p in CORE if p.suffix == ".cpp"]


_ONE_AT_A_TIME = Lock()


@cache
def _folder() -> Path:
    """Of the processes of `make test` together, for this state of the emulator's files."""
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in SOURCES)).hexdigest()[:12]
    folder = Path(os.environ.get(FOLDER) or _OWN.name, f"emulator_{digest}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """A file of that folder, made by the first who asks for it."""
    path = _folder() / name
    done = path.with_suffix(f"{path.suffix}.done")
    if not done.exists():
        with _ONE_AT_A_TIME, path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(path)
                done.touch()
    return path


def _defines(architecture: int) -> list[str]:
    return [f"-D__CUDA_ARCH__={architecture}", f"-D__CUDA_ARCH_LIST__={architecture}"]


def link(objects: Sequence[Path], library: Path) -> None:
    both = map(str, (*objects, *_core()))
    _run(["g++", "-shared", "-Wl,-Bsymbolic", "-o", str(library), *both])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[:4000]}")
    return done.stdout


def _shared(found: re.Match[str]) -> str:
    declaration = found[2].strip()
    if found[1]:
        name = re.fullmatch(r"unsigned char (\w+)\[\]", declaration)
        if name is None:
            raise Unknown(f"shared memory declared as {declaration!r}")
        return f"unsigned char* {name[1]} = emulator::dynamic_shared();"
    found_all = _DECLARATION.fullmatch(declaration)
    if found_all is None:
        raise Unknown(f"shared memory declared as {declaration!r}")
    texts = []
    for variable in re.split(r"\s*,\s*", found_all["variables"]):
        name, bracket, rest = variable.partition("[")
        sizes = bracket + rest
        site = f"emulator::shared_variable<{found_all['type']}{sizes}>([] {{}})"
        texts.append(f"auto& {name} = {site};")
    return " ".join(texts)


def _pieces(text: str) -> Iterator[str]:
    """The text, `asm` statements replaced."""
    at = 0
    for found in re.finditer(r"\basm\b\s*(?:volatile\s*)?\(", text):
        if found.start() < at:
            continue
        sections, end = _sections(text, found.end())
        yield text[at : found.start()]
        yield _call(sections)
        at = end
    yield text[at:]


def _sections(text: str, start: int) -> tuple[list[str], int]:
    """What stands between the colons of an asm statement's parentheses, and where these end."""
    sections, depth, begin, i = [], 0, start, start
    while True:
        if text[i] == '"':
            string = _STRING.match(text, i)
            assert string is not None
            i = string.end()
            continue
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            if depth == 0:
                return [*sections, text[begin:i]], i + 1
            depth -= 1
        elif text[i] == ":" and depth == 0:
            sections.append(text[begin:i])
            begin = i + 1
        i += 1


def _call(sections: list[str]) -> str:
    """The emulator's call for an asm statement: template, outputs, inputs, clobbers."""
    ptx = "".join(_STRING.findall(sections[0])).replace("\\n", " ").replace("\\t", " ")
    ptx = re.sub(r"\s+", " ", ptx).strip()
    ptx = ptx[1:-1].strip() if ptx.startswith("{") and ptx.endswith("}") else ptx
    function = _function(ptx)
    if function is None:
        return "((void)0)"
    if ptx.startswith("mov.u32 %0, %%"):
        register = ptx.removeprefix("mov.u32 %0, %%").rstrip(";")
        return f"({_operands(sections[1])[0]} = emulator::{function})" if register else ""
    operands = [o for s in sections[1:3] for o in _operands(s)]
    if function.startswith(("product<", "product_of_registers<")):
        if function.startswith("product_of_registers<") and ptx.endswith("p, 1, 1, 1;"):
            function = function.replace("_registers<", "_registers_across<")  # b along columns
        columns = re.search(r", (\d+)>", function)
        sums = int(columns[1]) // 2 if columns is not None else 64
        operands = [f"&({operands[0]})", *operands[sums:]]  # an array's elements in order
    return f"emulator::{function}({', '.join(operands)})"


def _function(ptx: str) -> str | None:
    if ptx == "mov.u32 %0, %%tid.x;":
        return "thread_x()"
    if ptx == "mov.u32 %0, %%ctaid.x;":
        return "block_x()"
    if ptx in INSTRUCTIONS:
        return INSTRUCTIONS[ptx]
    for key, function in INSTRUCTIONS.items():
        if key and re.match(re.escape(key) + r" [%\[{_]", ptx):
            return function
    raise Unknown(f"no function of the emulator for {ptx!r}")


def _operands(section: str) -> list[str]:
    """The expressions of an asm statement's operands, each after its constraint."""
    found, i = [], 0
    while (constraint := _STRING.search(section, i)) is not None:
        begin = section.index("(", constraint.end()) + 1
        depth, i = 1, begin
        while depth:
            depth += {"(": 1, ")": -1}.get(section[i], 0)
            i += 1
        found.append(section[begin : i - 1])
    return found
