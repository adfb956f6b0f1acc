"""Tasks on this machine, each below a supervisor of its own."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from refold.suite import supervisor
from refold.suite.leases import Device, Leases
from refold.suite.rows import Row, failed, row_of
from refold.suite.tasks import Ask, Task

WORK = (sys.executable, "-m", "refold.suite.work")


@dataclass
class Running:
    """A task that runs. began: by the monotonic clock."""

    task: Task
    began: float
    where: str = ""
    step: str = ""


@dataclass
class _Job(Running):
    process: subprocess.Popen[bytes] = field(kw_only=True)
    folder: Path = field(kw_only=True)  # the supervisor's
    device: Device = field(kw_only=True)
    token: str = field(kw_only=True)

    def look(self) -> None:
        with contextlib.suppress(OSError):
            self.step = Path(self.folder, "step").read_text()[:80] or self.step


class Here:
    """Runs tasks on the devices of this machine.

    work: the command that runs one, given a JSON (see `suite/work.py`). files: the folder for the
    files that are written. logs: ... for what tasks print.
    """

    def __init__(
        self,
        ask: Ask,
        devices: Sequence[Device],
        files: Path,
        logs: Path,
        work: Sequence[str] = WORK,
    ) -> None:
        self.ask, self.work = ask, tuple(work)
        self.files, self.logs = files, logs
        self.jobs, self._leases = len(devices), Leases(devices)
        self._jobs: list[_Job] = []
        for folder in (files, logs):
            folder.mkdir(parents=True, exist_ok=True)

    def start(self, task: Task) -> bool:
        """Start a task, if there is a device for it."""
        device = self._leases.take()
        if device is None:
            return False
        token = secrets.token_hex(16)
        folder = Path(tempfile.gettempdir(), f"refold_suite_{token}")
        output = self.files / f"{task.file}.py"
        output.unlink(missing_ok=True)
        spec = {
            "path": str(task.path.resolve()),
            "sets": list(task.sets),
            "options": dict(self.ask.options),
            "secret": int(self.ask.key(task), 16),  # the same draws when it runs again
            "eager_seconds": self.ask.eager_seconds,
            "output": str(output.resolve()),
            "report": str(folder / "report"),
            "step": str(folder / "step"),
        }
        supervised = {
            "command": [*self.work, json.dumps(spec)],
            "environment": {**_path(), **device.environment},
            "processors": list(device.processors),
            "seconds": self.ask.seconds,
            "memory": self.ask.memory,
            "token": token,
            "folder": str(folder),
            "end": str(folder / "end"),
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(supervised)],
            stdin=subprocess.PIPE,  # it closes with this process, however this ends
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        where = ", ".join(device.names) if device.gpu or device.processors else ""
        self._jobs.append(
            _Job(
                task,
                time.monotonic(),
                where,
                process=process,
                folder=folder,
                device=device,
                token=token,
            )
        )
        return True

    def running(self) -> Sequence[Running]:
        """What runs now, and how far it is."""
        for job in self._jobs:
            job.look()
        return self._jobs

    def finished(self) -> Iterator[tuple[Task, Row]]:
        """The rows of tasks that have ended since."""
        for job in list(self._jobs):
            if job.process.poll() is None and not Path(job.folder, "end").exists():
                continue
            job.look()
            row = self._row(job)
            self._jobs.remove(job)
            _close(job.process)
            job.process.wait()  # it removes the folder
            shutil.rmtree(job.folder, ignore_errors=True)  # unless it was killed
            self._leases.give(job.device)
            yield job.task, row

    def _row(self, job: _Job) -> Row:
        try:
            end = json.loads(Path(job.folder, "end").read_text())
        except (OSError, ValueError):  # its supervisor was killed
            _end_bearers(job.token)
            end = {"code": None, "ended": "lost", "seconds": time.monotonic() - job.began}
        (self.logs / f"{job.task.file}.log").write_text(end.pop("said", ""))
        report: dict[str, Any] | None = None
        with contextlib.suppress(OSError, ValueError):
            report = json.loads(Path(job.folder, "report").read_text())
        row = ended_row(end, report, self.ask, self.logs / f"{job.task.file}.log")
        row["measured"] |= {k: end[k] for k in ("seconds", "peak") if k in end}
        row["measured"] |= {"step": job.step, "machine": machine()}
        return row

    def close(self) -> None:
        """End all that runs; what has not ended by itself has no row."""
        for job in self._jobs:
            with contextlib.suppress(OSError):
                job.process.send_signal(signal.SIGTERM)
            _close(job.process)
        for job in self._jobs:
            try:
                job.process.wait(30.0)
            except subprocess.TimeoutExpired:
                job.process.kill()
                _end_bearers(job.token)
            shutil.rmtree(job.folder, ignore_errors=True)
        self._jobs.clear()
        self._leases.close()


def ended_row(end: dict[str, Any], report: dict[str, Any] | None, ask: Ask, log: Path) -> Row:
    """The row of a task, without its name.

    end: what its supervisor said. report: what `suite/work.py` left, if it came so far.
    """
    sets, ended = report["sets"] if report else [], end["ended"]
    if ended == "time":
        found = failed("TIMED OUT", f"no end after {ask.seconds:.0f} s")
    elif ended == "memory":
        found = failed("OUT OF MEMORY", f"took more than {ask.memory / (1 << 30):.3g} GiB")
    elif ended == "lost":
        found = failed("DIED", "its supervisor was killed")
    elif report is not None:
        found = row_of(report["report"], report["code"])
    elif end["code"] is not None and end["code"] < 0:
        name = signal.Signals(-end["code"]).name
        told = ": the system's memory was exhausted, or it did so itself" * (name == "SIGKILL")
        found = failed("DIED", f"the process was ended by {name}{told}")
    else:
        said = _last(log)
        found = failed("DIED", f"the process ended with code {end['code']}{said}")
    return found | {"sizes": " ".join(sets)}


def _last(log: Path) -> str:
    """The last line that was printed."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1].strip()[:200]}" if lines else ""


def _end_bearers(token: str) -> None:
    """End what is left of a task whose supervisor was killed."""
    end = time.monotonic() + 20.0
    while (left := supervisor.bearers(token)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _path() -> dict[str, str]:
    """So that the task imports this refold."""
    own = str(Path(__file__).resolve().parents[2])
    rest = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != own]
    return {"PYTHONPATH": os.pathsep.join([own, *rest])}


def machine() -> dict[str, Any]:
    """What a row was measured on."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    return {"host": platform.node(), "cores": os.cpu_count(), "torch": torch}
