"""The judge's side of a worker: starts it, asks it, and ends it with everything it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from refold.judge import wire
from refold.judge.wire import Layout


class Failed(Exception):
    """The candidate raised; the text is its error."""


class Crashed(Exception):
    """The worker's process is gone, or answers what no worker would."""


class TimedOut(Exception):
    """No answer in time; the worker has been ended."""


class Worker:
    """A process that holds the candidate. Use it in a `with` statement."""

    def __init__(self, call_seconds: float, load_seconds: float) -> None:
        self.call_seconds = call_seconds
        self.load_seconds = load_seconds
        self._folder = tempfile.TemporaryDirectory(prefix="refold_judge_")
        self.folder = Path(self._folder.name)
        self._sent = 0
        self.layouts: dict[int, Layout] = {}

    def __enter__(self) -> Worker:
        read_theirs, write_mine = os.pipe()
        read_mine, write_theirs = os.pipe()
        environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE")
        self._log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "refold.judge.worker",
                str(self.folder),
                str(read_theirs),
                str(write_theirs),
            ],
            pass_fds=(read_theirs, write_theirs),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._commands = os.fdopen(write_mine, "wb")
        self._answers = os.fdopen(read_mine, "rb", buffering=0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        for stream in (self._commands, self._answers, self._log):
            with contextlib.suppress(OSError):
                stream.close()
        self._folder.cleanup()

    def end(self) -> None:
        """Kill the worker and every process of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(
        self, do: str, values: Any = None, *, seconds: float | None = None, **message: Any
    ) -> tuple[dict[str, Any], Any]:
        """One command and its answer.

        Raises Failed if the candidate raised, TimedOut, or Crashed.
        """
        self._sent += 1
        try:
            wire.write(
                self._commands, {"do": do, **message}, values, self.folder, f"ask{self._sent % 2}"
            )
        except BrokenPipeError as error:
            raise Crashed(self._last_words()) from error
        limit = seconds if seconds is not None else self.call_seconds
        self._wait(limit)
        self.layouts = {}
        try:
            reply, result = wire.read(self._answers, self.folder, self._note)
        except (EOFError, wire.WireError) as error:
            self.end()
            raise Crashed(self._last_words() or str(error)) from error
        if "error" in reply:
            raise Failed(str(reply["error"]))
        return reply, result

    def _note(self, tensor: torch.Tensor, layout: Layout) -> None:
        self.layouts[id(tensor)] = layout

    def _wait(self, limit: float) -> None:
        end = time.monotonic() + limit
        while True:
            left = end - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0.0, min(left, 0.5)))
            if ready:
                return
            if self.process.poll() is not None and not select.select([self._answers], [], [], 0)[0]:
                raise Crashed(self._last_words())
            if left <= 0:
                self.end()
                raise TimedOut(f"no answer within {limit:.0f} s")

    def _last_words(self) -> str:
        code = self.process.poll()
        try:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 2000))
            lines = self._log.read().decode(errors="replace").strip().splitlines()
        except (OSError, ValueError):
            lines = []
        return f"the worker ended with {code}" + (f": {lines[-1][:300]}" if lines else "")
