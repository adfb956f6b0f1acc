"""Compiled kernels: found again, never loaded unless they are whole, compiled once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from refold import tune
from refold.runtime import library
from refold.runtime.library import _refold_forget, _refold_library
from test_models import written

SOURCE = """
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "refold_small", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_refold_small() { return PyModule_Create(&module); }
"""


class Compiler:
    """Compiles the source above, and counts how often."""

    def __init__(self, works: bool = True) -> None:
        self.works, self.calls = works, 0

    def __call__(self, folder: str) -> Any:
        self.calls += 1
        source = Path(folder, "small.cpp")
        source.write_text(SOURCE if self.works else "no C++")
        made = Path(folder, "refold_small.so")
        headers = f"-I{sysconfig.get_path('include')}"
        command = ["c++", "-shared", "-fPIC", headers, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return library._refold_loaded("refold_small", str(made))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library.tempfile, "tempdir", str(tmp_path))
    return tmp_path / "cache" / "libraries"


def made(compiler: Compiler, made_for: object = "this") -> Any:
    found, problem = _refold_library("refold_small", SOURCE, made_for, compiler)
    assert problem is None, problem
    assert found.answer() == 42
    return found


def lies_in(cache: Path) -> Path:
    (one,) = cache.glob("refold_small_*/*.so")
    return one


def test_a_library_is_compiled_once_for_what_it_is_made_for(cache: Path) -> None:
    compiler = Compiler()
    made(compiler), made(compiler)
    assert compiler.calls == 1
    made(compiler, "other flags")
    assert compiler.calls == 2
    assert {f.name for f in cache.glob("*/*")} == {"refold_small.so", "stamp"}
    assert not list(cache.glob("*.lock"))


@pytest.mark.parametrize("length", [0, 100, -1])
def test_what_is_cut_short_is_never_loaded(cache: Path, length: int) -> None:
    compiler = Compiler()
    made(compiler)
    whole = lies_in(cache).read_bytes()
    # not in place: this process has it loaded
    cut = lies_in(cache).with_name("cut")
    cut.write_bytes(whole[:length])
    cut.replace(lies_in(cache))
    made(compiler)
    assert compiler.calls == 2 and lies_in(cache).read_bytes()[:4] == whole[:4]


def test_without_a_stamp_nothing_is_loaded(cache: Path) -> None:
    compiler = Compiler()
    made(compiler)
    (lies_in(cache).parent / "stamp").unlink()
    made(compiler)
    assert compiler.calls == 2


def test_what_cannot_be_compiled_is_said_and_leaves_nothing(cache: Path) -> None:
    found, problem = _refold_library("refold_small", SOURCE, "this", Compiler(works=False))
    assert found is None and problem is not None
    assert problem.startswith("the kernels could not be compiled (") and "error" in problem
    assert not list(cache.iterdir())


def test_the_line_that_says_why_is_told_not_that_the_linker_failed(cache: Path) -> None:
    def compiled(folder: str) -> Any:
        raise RuntimeError(
            "ld: final link failed: No space left on device\n"
            "collect2: error: ld returned 1 exit status\n"
        )

    _, problem = _refold_library("refold_small", SOURCE, "this", compiled)
    said = "ld: final link failed: No space left on device"
    assert problem == f"the kernels could not be compiled ({said})"


def test_where_the_cache_cannot_be_made_temporary_files_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path / "file" / "below"))
    compiler = Compiler()
    made(compiler), made(compiler)
    own = tmp_path / f"refold_{os.getuid()}"
    assert compiler.calls == 1 and lies_in(own) and own.stat().st_mode & 0o077 == 0
    # one where others may write is not trusted
    own.chmod(0o777)
    made(compiler)
    assert compiler.calls == 2


def test_without_a_home_nothing_is_made_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a number that no user has, `~` stays as it is: it was taken for a folder's name."""
    for name in ("REFOLD_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    compiler = Compiler()
    made(compiler), made(compiler)
    assert compiler.calls == 1 and lies_in(tmp_path / f"refold_{os.getuid()}")
    assert not (tmp_path / "~").exists()
    kept = tune.Table("a device")
    kept.keep("a product", {"seconds": 1})
    assert kept.row("a product") and kept.path.parent == tmp_path / f"refold_{os.getuid()}"


def test_others_who_share_the_cache_may_read_it(cache: Path) -> None:
    before = os.umask(0o022)
    try:
        made(Compiler())
    finally:
        os.umask(before)
    found = lies_in(cache)
    for path in (cache, found.parent, found, found.parent / "stamp"):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_what_cannot_be_removed_does_not_count_as_gone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's library stays; then the next oldest goes."""
    for age, name in enumerate(("new", "mine", "theirs")):
        folder = cache / f"refold_{name}"
        folder.mkdir(parents=True)
        (folder / "one.so").write_bytes(bytes(1000))
        (folder / "stamp").touch()
        os.utime(folder / "stamp", (time.time() - 1000 * age,) * 2)
    real = library.shutil.rmtree
    monkeypatch.setattr(
        library.shutil, "rmtree", lambda path, **k: "theirs" in path or real(path, **k)
    )
    assert _refold_forget(str(cache), 2500) == 1000
    assert {f.name for f in cache.iterdir()} == {"refold_new", "refold_theirs"}


def test_a_cache_that_cannot_be_written_to_is_read(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler()
    made(compiler)
    monkeypatch.setattr(library.os, "access", lambda path, mode: not path.startswith(str(cache)))
    made(compiler)
    assert compiler.calls == 1
    made(compiler, "other flags")
    assert compiler.calls == 2 and len(list(cache.iterdir())) == 1


def test_those_that_were_not_used_for_longest_go_first(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "somebody's").mkdir()
    for age, name in enumerate(("new", "old", "oldest", "0.killed", "theirs", "0.fresh")):
        folder = cache / f"refold_{name}"
        folder.mkdir()
        (folder / "one.so").write_bytes(bytes(1000))
        then = time.time() - 100000 * age
        if name in ("0.killed", "theirs", "0.fresh"):  # unfinished, or somebody's: no stamp
            os.utime(folder, None if name == "0.fresh" else (then, then))
        else:
            (folder / "stamp").touch()
            os.utime(folder / "stamp", (then, then))
    assert _refold_forget(str(cache), 2500) == 2000
    left = {f.name for f in cache.iterdir()}
    assert left == {"somebody's", "refold_theirs", "refold_new", "refold_old", "refold_0.fresh"}


def test_ninja_is_found_beside_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = tmp_path / "ninja"
    beside.touch(mode=0o755)
    monkeypatch.setattr(library.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with library._refold_ninja_on_path():
        assert library.shutil.which("ninja") == str(beside)
    assert os.environ["PATH"] == str(tmp_path / "nowhere")


def test_processes_compile_one_after_another_whoever_was_killed(tmp_path: Path) -> None:
    """Three at once, and one that was killed while it compiled: the compiler runs once more."""
    _, result = written(torch.nn.Linear(40, 8).eval(), [torch.randn(4, 40)])
    assert result.text is not None
    name = re.findall(r'_REFOLD_NAME = "(\w+)"', result.text)[0]
    emitted = tmp_path / "emitted.py"
    model = "class Model(__import__('torch').nn.Module): pass"
    emitted.write_text(f"{model}\n{result.text}\nassert _refold_problem is None, _refold_problem\n")
    log, slow = tmp_path / "log", tmp_path / "c++"
    slow.write_text(f'#!/bin/sh\necho >> "{log}"\nsleep 1\nexec c++ "$@" -O0\n')
    slow.chmod(0o755)
    environment = os.environ | {"CXX": str(slow), "REFOLD_CACHE": str(tmp_path / "kept")}
    run = [sys.executable, str(emitted)]
    with subprocess.Popen(run, env=environment, start_new_session=True) as killed:
        while not log.exists():
            time.sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
    log.write_text("")
    several = [subprocess.Popen(run, env=environment) for _ in range(3)]
    try:
        assert [process.wait(300) for process in several] == [0, 0, 0]
    finally:
        for process in several:
            process.kill()
    calls = len(log.read_text().splitlines())
    (folder,) = (f for f in (tmp_path / "kept" / "libraries").iterdir() if (f / "stamp").exists())
    assert folder.name.startswith(name)
    # found again, where there is no compiler
    nowhere = environment | {"PATH": str(tmp_path / "nowhere")}
    subprocess.run(run, env=nowhere, check=True)
    assert len(log.read_text().splitlines()) == calls
    # and with a library that is cut short there is one line, and no bus error
    (cut,) = folder.glob("*.so")
    cut.write_bytes(cut.read_bytes()[:5000])
    done = subprocess.run(run, env=nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the kernels could not be compiled" in done.stderr
