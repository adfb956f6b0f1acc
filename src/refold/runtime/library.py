"""Compiled kernels: found where they were compiled before, else compiled, by one process at a time.

A library stands in a folder of its own, with a stamp: the digest of its bytes. One that is cut
short, by a full disk or a process that was killed, would end every process that loads it; without
its true stamp it is compiled anew. A folder gets its name when all of it is there.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from refold.runtime.built import _refold_built, _refold_digest, _refold_here, _refold_loaded
from refold.runtime.calls import _refold_cache_log, _refold_log

_REFOLD_BYTES = 4 << 30  # of libraries that are kept; those that were not used for longest go first
_REFOLD_STAMP = "stamp"


def _refold_library(
    name: str,
    source: str,
    made_for: Any,
    compiled: Callable[[str], Any],
    file: str | None = None,
    here: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Any, str | None]:
    """The compiled module, and None; or None, and why there is none.

    name: the module's. made_for: all but the source that its machine code depends on. compiled:
    compiles and loads it in a folder. file, here: of what may have been built beside a file, see
    `_refold_built`.
    """
    if os.environ.get("REFOLD_DISABLE", "0") not in ("", "0"):
        return None, "REFOLD_DISABLE is set"
    built = _refold_built(name, source, file, here or _refold_here())
    if built is not None and not isinstance(built, str):
        _refold_cache_log.info("refold: %s was built ahead: found beside %s", name, file)
        return built, None
    module, problem = _refold_kept(name, (source, made_for), compiled)
    if built is None:
        return module, problem
    if problem is None:
        _refold_log.warning("refold: %s; others were compiled, or found compiled", built)
    return module, problem and f"{built}; {problem}"


def _refold_kept(name: str, made_of: Any, compiled: Callable[[str], Any]) -> tuple[Any, str | None]:
    """The same, from the cache, or compiled into it."""
    versions = torch.__version__, _refold_here(), os.environ.get("CXX")
    key = _refold_digest(repr((*versions, made_of)).encode())[:12]
    try:
        roots = _refold_roots()
        for root in roots:
            found = _refold_stamped(os.path.join(root, f"{name}_{key}"))
            if found is not None:
                _refold_cache_log.info("refold: %s: found in %s", name, root)
                return found, None
        root = next((r for r in roots if os.access(r, os.W_OK | os.X_OK)), roots[-1])
        folder = os.path.join(root, f"{name}_{key}")
        with _refold_alone(f"{folder}.lock"):
            begun = time.perf_counter()
            found = _refold_stamped(folder)
            if found is not None:
                _refold_cache_log.info("refold: %s: compiled by another process", name)
                return found, None
            found = _refold_compiled(folder, compiled)
            spent = time.perf_counter() - begun
            _refold_cache_log.info("refold: %s: compiled in %.1f s into %s", name, spent, root)
            return found, None
    except (RuntimeError, OSError, ImportError, subprocess.SubprocessError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        said = (x for x in lines if "error" in x and not x.startswith("collect2"))
        line = next(said, lines[0])  # collect2 only says that the linker, which said why, failed
        return None, f"the kernels could not be compiled ({line})"


def _refold_home() -> str | None:
    """The folder of all that is kept from one process to the next; REFOLD_CACHE names another.
    None where the user has no home, as in a container under a number that no user has."""
    home = os.path.expanduser("~")
    own = os.path.join(home, ".cache") if os.path.isabs(home) else ""
    base = os.environ.get("XDG_CACHE_HOME") or own
    return os.environ.get("REFOLD_CACHE") or (os.path.join(base, "refold") if base else None)


def _refold_roots() -> list[str]:
    """Where libraries may lie, those that cannot be written to among them: TORCH_EXTENSIONS_DIR, if
    it is set, else the folder above; then one of this user's own among temporary files."""
    home = _refold_home()
    asked = os.environ.get("TORCH_EXTENSIONS_DIR") or (home and os.path.join(home, "libraries"))
    user = os.getuid() if hasattr(os, "getuid") else 0
    own = os.path.join(tempfile.gettempdir(), f"refold_{user}")
    found = []
    for root, mode in ((asked, 0o777), (own, 0o700)):
        if root is None:
            continue
        with contextlib.suppress(OSError):
            os.makedirs(root, mode, exist_ok=True)
        if os.path.isdir(root) and (root == asked or _refold_is_own(root, user)):
            found.append(root)
        if found and os.access(found[-1], os.W_OK | os.X_OK):
            return found
    return [*found, tempfile.mkdtemp(prefix="refold_")]


def _refold_is_own(folder: str, user: int) -> bool:
    """Whether nobody else can write to a folder where everybody can make one."""
    held = os.lstat(folder)
    return stat.S_ISDIR(held.st_mode) and held.st_uid == user and not held.st_mode & 0o022


def _refold_stamped(folder: str) -> Any:
    """The module that lies in a folder, if it is whole and can be loaded; else None."""
    stamp = os.path.join(folder, _REFOLD_STAMP)
    try:
        with open(stamp) as file:
            digest = file.read()
        (library,) = (n for n in os.listdir(folder) if n.endswith(".so"))
        path = os.path.join(folder, library)
        with open(path, "rb") as library_file:
            if _refold_digest(library_file.read()) != digest:
                return None
    except (OSError, ValueError):
        return None
    try:
        module = _refold_loaded(library.removesuffix(".so"), path)
    except ImportError:  # made for another build of PyTorch
        return None
    with contextlib.suppress(OSError):
        os.utime(stamp)
    return module


def _refold_compiled(folder: str, compiled: Callable[[str], Any]) -> Any:
    """Compile into a folder that gets its name when all is there."""
    # others who share the cache may read it, as far as the umask lets them: no `mkdtemp`
    made = f"{folder}.{secrets.token_hex(4)}"
    os.mkdir(made)
    try:
        with _refold_ninja_on_path():
            module = compiled(made)
        library = next((n for n in os.listdir(made) if n.endswith(".so")), "a library")
        for other in list(os.scandir(made)):
            if other.name != library and not other.is_dir():
                os.remove(other.path)
        with open(os.path.join(made, library), "rb") as library_file:
            digest = _refold_digest(library_file.read())
        with open(os.path.join(made, _REFOLD_STAMP), "w") as file:
            file.write(digest)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was as fast
            os.rename(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    with contextlib.suppress(OSError):
        _refold_forget(os.path.dirname(folder), _REFOLD_BYTES, folder)
    return module


def _refold_compiled_cpp(
    name: str, source: str, flags: Sequence[str], folder: str, parts: int = 1
) -> str:
    """Compile C++ for this Python and PyTorch into a folder; the path of the library. Raises
    RuntimeError with what the compiler said.

    parts: in how many parts the source may be compiled side by side; RF_UNIT names one in it.
    Where there is one processor, all is compiled at once: it is less work.
    """
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if not compiler or shutil.which(compiler[0]) is None:
        raise RuntimeError(f"there is no {' '.join(compiler) or 'C++ compiler'}")
    own = os.path.dirname(torch.__file__)
    text, made = (os.path.join(folder, f"{name}{end}") for end in (".cpp", ".so"))
    with open(text, "w") as file:
        file.write(source)
    headers = (os.path.join(own, "include"), sysconfig.get_path("include"))
    told = [f"-DTORCH_EXTENSION_NAME={name}", *flags, "-fPIC", *(f"-isystem{h}" for h in headers)]
    alone = parts == 1 or len(os.sched_getaffinity(0)) < parts
    defined = [()] if alone else [(f"-DRF_UNIT={i}",) for i in range(parts)]
    objects = [os.path.join(folder, f"{name}_{i}.o") for i in range(len(defined))]
    _refold_ran(
        [
            [*compiler, *told, *part, "-c", text, "-o", made_of]
            for part, made_of in zip(defined, objects, strict=True)
        ]
    )
    linked = ["-shared", f"-L{os.path.join(own, 'lib')}", "-ltorch_cpu", "-lc10"]
    _refold_ran([[*compiler, *objects, *linked, "-o", made]])
    return made


def _refold_ran(commands: Sequence[Sequence[str]]) -> None:
    """Runs commands side by side to their ends. Raises RuntimeError with what the first said that
    failed."""
    with contextlib.ExitStack() as stack:
        running = []
        for command in commands:
            said = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
            running.append((stack.enter_context(process), said))
        for process, said in running:
            if process.wait():
                said.seek(0)
                raise RuntimeError(said.read())


@contextlib.contextmanager
def _refold_ninja_on_path() -> Iterator[None]:
    """PyTorch calls ninja by its name. pip installs it beside Python, in a folder that PATH lacks
    where Python is started by its own path."""
    beside = os.path.dirname(sys.executable)
    before = os.environ.get("PATH")
    if shutil.which("ninja") is not None or shutil.which("ninja", path=beside) is None:
        yield
        return
    os.environ["PATH"] = os.pathsep.join(filter(None, (before, beside)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


def _refold_forget(root: str, most: int, but: str = "") -> int:
    """Remove libraries, those that were not used for longest first, until the others take at most
    so many bytes, and what processes left that were killed; says how many bytes went. The folder
    may hold what others have compiled: theirs has no stamp."""
    kept, gone = [], 0
    for entry in os.scandir(root):
        if not entry.name.startswith("refold_") or not entry.is_dir() or entry.path == but:
            continue
        stamp = os.path.join(entry.path, _REFOLD_STAMP)
        whole, unfinished = os.path.isfile(stamp), "." in entry.name
        if not whole and not (unfinished and time.time() - entry.stat().st_mtime > 86400):
            continue
        size = sum(f.stat().st_size for f in os.scandir(entry.path) if f.is_file())
        kept.append((os.stat(stamp).st_mtime if whole else 0.0, size, entry.path))
    total = sum(size for _, size, _ in kept)
    for used, size, path in sorted(kept):
        if used and total - gone <= most:
            break
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.exists(path):  # another user's may have stayed
            gone += size
    return gone


@contextlib.contextmanager
def _refold_alone(lock: str) -> Iterator[None]:
    """One process at a time; one that is killed holds the lock no more."""
    try:
        import fcntl

        held = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    except (ImportError, OSError):
        yield  # there are no such locks here
        return
    try:
        with contextlib.suppress(OSError):  # none on this file system
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
        with contextlib.suppress(OSError):
            os.remove(lock)
