"""`refold doctor`: what is at hand and what is missing; `refold cache`: what is kept."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from refold import __version__, pipeline
from refold.devices import DEVICES
from refold.emit.cuda import NO_NVCC, nvcc
from refold.runtime.library import (
    _REFOLD_BYTES,
    _REFOLD_STAMP,
    _refold_forget,
    _refold_home,
    _refold_ninja_on_path,
    _refold_roots,
)
from refold.runtime.nvrtc import _refold_nvrtc
from refold.tune import cache_path


@dataclass(frozen=True)
class Check:
    """One line. cure: what to do; empty where nothing is missing. needed: whether files for the
    device at hand cannot be made or run without it."""

    name: str
    said: str
    cure: str = ""
    needed: bool = False


def doctor(args: argparse.Namespace) -> int:
    """Print the checks; 1 where something that is needed is missing."""
    found = checks()
    if args.json:
        print(json.dumps([asdict(c) for c in found]))
    else:
        wide = max(len(c.name) for c in found)
        for c in found:
            print(f"{c.name:{wide}}  {c.said}" + (f": {c.cure}" if c.cure else ""))
    return int(any(c.needed and c.cure for c in found))


def checks() -> list[Check]:
    """In the order of what builds on what."""
    target = pipeline.default_target()
    return [
        _platform(),
        Check(
            "versions", f"refold {__version__}, Python {platform.python_version()}, {_pytorch()}"
        ),
        *_devices(),
        _cpp(),
        _cuda(target),
        _ninja(target),
        *_folders(),
        Check("used", f"files are made for {target} unless --target names another"),
    ]


def _platform() -> Check:
    said = f"{platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        cure = "refold is tested on Linux only; Windows, macOS and ROCm are not supported"
        return Check("system", said, cure, needed=True)
    return Check("system", said)


def _pytorch() -> str:
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    threads = f"{torch.get_num_threads()} threads"
    return f"PyTorch {torch.__version__} ({built}, {threads})"


def _devices() -> list[Check]:
    level = torch.backends.cpu.get_cpu_capability()
    found = [Check("processor", f"{os.cpu_count()} cores, {level}")]
    if torch.version.hip:
        return [*found, Check("GPU", "ROCm", "refold has no kernels for it; the CPU's are made")]
    if not torch.cuda.is_available():
        cure = "" if torch.version.cuda is None else "PyTorch finds none; nvidia-smi says why"
        return [*found, Check("GPU", "none", cure)]
    for i in range(torch.cuda.device_count()):
        capability = torch.cuda.get_device_capability(i)
        memory = torch.cuda.get_device_properties(i).total_memory / 2**30
        said = (
            f"{torch.cuda.get_device_name(i)}, sm_{capability[0]}{capability[1]}, {memory:.0f} GiB"
        )
        able = [d for d in DEVICES.values() if d.capability and d.runs_on(capability)]
        cure = "" if able else "no kernels for it: compute capability 8.0 is the least"
        if able and not any(d.run_on for d in able):
            cure = f"kernels for {able[-1].name} compile and were never run; judge what they make"
        found.append(Check(f"GPU {i}", said, cure))
    return found


def _version(*command: str) -> str:
    """What a compiler says of itself, in one line."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"does not run ({error.strerror})"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    release = next((line for line in lines if "release" in line), None)
    return (release or (lines or ["says nothing"])[0]).strip()


def _cpp() -> Check:
    name, *more = shlex.split(os.environ.get("CXX") or "c++") or [""]
    path = shutil.which(name)
    if path is None:
        cure = "install g++ or clang++ (C++20), or name one in CXX"
        return Check("C++ compiler", f"no {name} on PATH", cure, needed=True)
    return Check("C++ compiler", f"{path}, {_version(path, *more)}")


def _cuda(target: str) -> Check:
    path, needed, nvrtc = nvcc(), target != "cpu", _refold_nvrtc()
    if path is None and nvrtc is not None:
        return Check("nvcc", f"none; NVRTC compiles kernels: {nvrtc[0]}")
    if path is None:
        cure = NO_NVCC if needed else ""
        return Check("nvcc", "none, nor NVRTC", cure, needed)
    said = _version(path)
    ours = torch.version.cuda
    if needed and ours is not None and f"release {ours.split('.')[0]}." not in said:
        return Check("nvcc", f"{path}, {said}", f"PyTorch is built with CUDA {ours}; take its nvcc")
    return Check("nvcc", f"{path}, {said}")


def _ninja(target: str) -> Check:
    with _refold_ninja_on_path():
        path = shutil.which("ninja")
    if path is None:
        needed = target != "cpu"  # PyTorch calls it where kernels for a GPU are compiled
        return Check("ninja", "none", "pip install ninja" if needed else "", needed)
    return Check("ninja", f"{path}, {_version(path)}")


def _folders() -> list[Check]:
    roots = _refold_roots()
    used = next((r for r in roots if os.access(r, os.W_OK | os.X_OK)), roots[0])
    found = []
    asked = _asked()
    if asked is None:
        cure = "set HOME, or REFOLD_CACHE to a folder of your own that stays"
        found.append(Check("cache", "none: this user has no home", cure))
    elif used != roots[0] or not Path(roots[0]).is_relative_to(asked):
        cure = "set REFOLD_CACHE to a folder that can be written to, or kernels are compiled anew"
        found.append(Check("cache", f"{asked} cannot be written to", cure))
    libraries = [lib for root in roots for lib in _libraries(root)]
    held = sum(size for _, size in libraries)
    said = f"{used}, {len(libraries)} libraries, {held / 2**20:.1f} of {_REFOLD_BYTES >> 20} MiB"
    found.append(Check("libraries", said))
    tuned = cache_path()
    found.append(Check("schedules", f"{tuned}" if tuned.exists() else f"none in {tuned.parent}"))
    return found


def _asked() -> str | None:
    return os.environ.get("TORCH_EXTENSIONS_DIR") or _refold_home()


def _libraries(root: str) -> list[tuple[Path, int]]:
    """Folders of compiled kernels, and their bytes."""
    found = []
    for stamp in Path(root).glob(f"refold_*/{_REFOLD_STAMP}"):
        files = [f for f in stamp.parent.iterdir() if f.is_file()]
        found.append((stamp.parent, sum(f.stat().st_size for f in files)))
    return sorted(found)


def cache(args: argparse.Namespace) -> int:
    """Print what is kept from one process to the next, or remove it."""
    roots, tuned = _refold_roots(), cache_path()
    if args.clear:
        gone = sum(_refold_forget(root, 0) for root in roots)
        if tuned.exists():
            gone += tuned.stat().st_size
            tuned.unlink()
        print(f"{gone / 2**20:.1f} MiB removed")
        return 0
    kept = [found for root in roots for found in _libraries(root)]
    if tuned.exists():
        kept.append((tuned, tuned.stat().st_size))
    for path, size in kept:
        print(f"{size / 2**10:8.0f} KiB  {path}")
    if not kept:
        print(f"nothing is kept in {' or '.join(dict.fromkeys([*roots, str(tuned.parent)]))}")
    return 0
