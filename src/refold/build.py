"""refold build: kernels of emitted files compiled ahead, for machines without a compiler.

Beside each file lies a folder with the name of its kernels: their libraries, and built.json, which
says what each needs. The file looks there first (runtime/built.py); it is not changed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from refold import __version__
from refold.devices import DEVICES
from refold.emit.cuda import NO_NVCC, nvcc
from refold.emit.load import load_text
from refold.runtime.built import (
    _REFOLD_LIST,
    _refold_digest,
    _refold_here,
    _refold_torch_release,
)
from refold.runtime.nvcc import _refold_compiled_cuda


class BuildError(Exception):
    """A file cannot be built; the text is one line for the user."""


@dataclass(frozen=True)
class Library:
    """One compiled library. needs: by what it must find (see runtime/built.py), what. code: of a
    GPU's, what lies in it."""

    name: str
    content: bytes
    needs: dict[str, str]
    made_by: str
    code: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """As built.json has it."""
        found = {"file": self.name, "sha256": _refold_digest(self.content), "needs": self.needs}
        return {**found, "made_by": self.made_by, **({"code": self.code} if self.code else {})}


@dataclass(frozen=True)
class Built:
    """An emitted file with its libraries. source: the digest of their C++."""

    path: Path
    text: str
    kernels: str
    source: str
    libraries: tuple[Library, ...]

    def files(self, before: Path | None = None) -> dict[str, bytes]:
        """What is to lie in a folder, by relative path. before: a folder that was built earlier,
        whose libraries for other versions stay."""
        rows = [lib.row for lib in self.libraries]
        files = {f"{self.kernels}/{lib.name}": lib.content for lib in self.libraries}
        for row, content in _others(before, self) if before is not None else ():
            rows.append(row)
            files[f"{self.kernels}/{row['file']}"] = content
        listed = {"refold": __version__, "source": self.source, "libraries": rows}
        files[f"{self.kernels}/{_REFOLD_LIST}"] = (json.dumps(listed, indent=1) + "\n").encode()
        return {self.path.name: self.text.encode(), **files}


def _others(before: Path, built: Built) -> Iterable[tuple[dict[str, Any], bytes]]:
    """The whole libraries of an earlier build of the same kernels, for what this one is not for."""
    folder = before / built.kernels
    try:
        listed = json.loads((folder / _REFOLD_LIST).read_text())
        if listed["source"] != built.source:
            return
        for row in listed["libraries"]:
            content = (folder / Path(row["file"]).name).read_bytes()
            other = all(row["needs"] != lib.needs for lib in built.libraries)
            if other and _refold_digest(content) == row["sha256"]:
                yield row, content
    except (OSError, ValueError, KeyError, TypeError):
        return


def build(
    path: Path, targets: Sequence[str] = (), progress: Callable[[str], None] = lambda line: None
) -> Built:
    """Compile the kernels of an emitted file.

    targets: processors, such as "cpu:avx2", or GPUs, such as "cuda:sm_86", to compile for; without
    any, of a file for the CPU AVX2 and AVX-512, of one for a GPU what the file itself asks for.
    Raises BuildError.
    """
    try:
        text = path.read_text()
        module = _imported(text, path)
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from error
    except (Exception, SystemExit) as error:
        raise BuildError(f"{path} cannot be imported ({type(error).__name__}: {error})") from error
    if not hasattr(module, "_refold_library"):
        raise BuildError(
            f"{path} has no kernels to compile: it is not refold's, or keeps the original and runs"
            " as it is"
        )
    if not hasattr(module, "_refold_built"):
        raise BuildError(
            f"{path} is by an older refold, which looks for nothing built: optimize anew"
        )
    compiled = _for_gpu if module._refold_file.kind == "cuda" else _for_cpu
    libraries = tuple(compiled(path, module, targets, progress))
    source = _refold_digest(module._REFOLD_SOURCE.encode())
    return Built(path, text, module._REFOLD_NAME, source, libraries)


def kind_of(path: Path) -> str:
    """For what an emitted file is, "cpu" or "cuda"; empty where that cannot be said."""
    try:
        found = re.search(r'_RefoldFile\("(\w+)", globals\(\)\)', path.read_text())
    except (OSError, UnicodeDecodeError):
        return ""
    return found[1] if found else ""


def _imported(text: str, path: Path = Path("file.py")) -> ModuleType:
    """The file's module, without kernels. path: where the text lies, or would."""
    before = os.environ.get("REFOLD_DISABLE")
    os.environ["REFOLD_DISABLE"] = "1"  # nothing is compiled by the import
    sys.path.append(str(path.resolve().parent))
    try:
        return load_text(text, {"__file__": str(path.resolve())}, keep=False)
    finally:
        sys.path.remove(str(path.resolve().parent))
        if before is None:
            del os.environ["REFOLD_DISABLE"]
        else:
            os.environ["REFOLD_DISABLE"] = before


def cpu_targets() -> dict[str, str]:
    """The kinds of processors that this machine compiles for, by PyTorch's names for them."""
    x86 = os.uname().machine == "x86_64"
    return {"cpu:avx512": "AVX512", "cpu:avx2": "AVX2"} if x86 else {"cpu:any": "DEFAULT"}


def _for_cpu(
    path: Path, module: ModuleType, targets: Sequence[str], progress: Callable[[str], None]
) -> Iterable[Library]:
    known = {**cpu_targets(), "cpu:any": "DEFAULT"}
    asked = list(targets) if targets and list(targets) != ["cpu"] else list(cpu_targets())
    for target in asked:
        if target not in known:
            raise BuildError(
                f"{path} is for the CPU; its targets are {', '.join(known)}, not {target}"
            )
    for level in dict.fromkeys(known[t] for t in asked):
        progress(f"compiling {path.name} for {level}")
        needs = {n: have[0] for n, have in _refold_here(PyTorch=[_refold_torch_release()]).items()}
        with tempfile.TemporaryDirectory(prefix="refold_") as folder:
            try:
                made = module._refold_compiled_for(level, folder)
            except RuntimeError as error:
                raise BuildError(f"{path} does not compile ({_first_error(str(error))})") from error
            content = Path(made).read_bytes()
        by = _said_by(shlex.split(os.environ.get("CXX") or "c++"))
        yield Library(_file_name(level, needs), content, {**needs, "processor": level}, by)


def _for_gpu(
    path: Path, module: ModuleType, targets: Sequence[str], progress: Callable[[str], None]
) -> Iterable[Library]:
    compiler = nvcc()
    if compiler is None:
        raise BuildError(f"{path} is for a GPU, and there is no nvcc: {NO_NVCC}")
    flags = [*module._REFOLD_FLAGS, *_more_code(path, module._REFOLD_FLAGS, targets)]
    code = re.findall(r",code=(\w+)", " ".join(flags))
    progress(f"compiling {path.name} for {', '.join(code)}")
    said = _said_by([compiler])
    release = re.search(r"release (\d+)\.", said)
    if release is None:
        raise BuildError(f"{compiler} does not say its release")
    needs = {"Python": _refold_here()["Python"][0], "driver": f"CUDA {release[1]}"}
    with tempfile.TemporaryDirectory(prefix="refold_") as folder:
        given = module._REFOLD_NAME, module._REFOLD_SOURCE, flags, folder
        try:
            content = Path(_refold_compiled_cuda(compiler, *given)).read_bytes()
        except RuntimeError as error:
            raise BuildError(f"{path} does not compile ({_first_error(str(error))})") from error
    yield Library(_file_name("_".join(code), needs), content, needs, said, tuple(code))


def _more_code(path: Path, flags: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Flags for the machine code of further GPUs, where the file's kernels run on them."""
    virtual = re.search(r"arch=compute_(\d+),code=compute_\d+", " ".join(flags))
    found = []
    for target in targets:
        device = DEVICES.get(target)
        if device is None or device.capability is None:
            known = ", ".join(d.name for d in DEVICES.values() if d.capability)
            raise BuildError(f"{path} is for a GPU; its targets are {known}, not {target}")
        number = device.capability[0] * 10 + device.capability[1]
        if re.search(rf"code=sm_{number}a?\b", " ".join(flags)):
            continue  # it has that
        if virtual is None:
            raise BuildError(f"{path} is for one kind of GPU only; optimize for {target} instead")
        if number < int(virtual[1]):
            raise BuildError(f"{path} is for later GPUs than {target}; optimize for it instead")
        found.append(f"-gencode=arch=compute_{virtual[1]},code=sm_{number}")
    return found


def _file_name(code: str, needs: dict[str, str]) -> str:
    versions = [needs["Python"], *(f"torch-{needs[n]}" for n in needs if n == "PyTorch")]
    return f"{code}.{'.'.join(versions)}.so"


def _said_by(command: Sequence[str]) -> str:
    """What a compiler says of its version, in one line."""
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or [command[0]]
    return next((line for line in lines if "release" in line), lines[0])


def _first_error(said: str) -> str:
    lines = said.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error" in line), lines[0])


def write(built: Built, folder: Path) -> list[Path]:
    """Write a file and its libraries into a folder; the paths. A folder of libraries is replaced
    whole: no process finds half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{built.kernels}.", dir=folder))
    try:
        files = built.files(folder)
        for name, content in files.items():
            draft = new / name
            draft.parent.mkdir(exist_ok=True)
            draft.write_bytes(content)
        old = folder / built.kernels
        if old.exists():
            old.rename(new / "old")
        (new / built.kernels).rename(old)
        if not _is_same(built.path, folder / built.path.name):
            (new / built.path.name).replace(folder / built.path.name)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return [folder / name for name in files]


def _is_same(a: Path, b: Path) -> bool:
    return b.exists() and a.samefile(b)
