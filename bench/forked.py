"""`refold optimize` in processes that are forked from one which has imported all that they need.

What a model needs beside its own work is half a dozen seconds of imports: PyTorch, refold, and
Inductor, which is timed beside it. On two processors the demo's five models took a sixth of its
time for that. The process that is forked runs nothing of a model, and has one thread.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

_FORKED = multiprocessing.get_context("forkserver")
SAYS = ("said", "errors")  # files of what a command prints


def begin() -> None:
    """Starts the process that imports; who calls this need not wait for it."""
    os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")  # as the command does: see refold.entry
    _FORKED.set_forkserver_preload(["imported"])
    forkserver.ensure_running()


def refold(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str, str]:
    """Runs the command line to its end: its exit code, and what it printed.

    environment: what is set beside what was set when the imports began.
    """
    with tempfile.TemporaryDirectory(prefix="refold_demo_") as folder:
        paths = [Path(folder, name) for name in SAYS]
        process = _FORKED.Process(target=_run, args=(arguments, environment, paths))
        process.start()
        process.join()
        said, errors = (p.read_text() if p.exists() else "" for p in paths)
        return process.exitcode, said, errors


def _run(arguments: Sequence[str], environment: Mapping[str, str], paths: Sequence[Path]) -> None:
    """The process of one model."""
    os.environ.update(environment)
    for number, path in enumerate(paths, 1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), number)
    from refold.cli import main

    code: Any = main(arguments)
    raise SystemExit(code)
