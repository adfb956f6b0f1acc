"""The same tasks over a Ray cluster: one at a time on each node's processors, or on each GPU.

A task travels with its file's text and comes back with its row and with what was written, so nodes
need no common file system; they need refold, of the same source. On its node a task runs as on this
machine, below a supervisor. Ray runs a task anew whose worker or node is lost; a row is kept when
its answer is here, once.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refold.suite.here import WORK, Here, Running
from refold.suite.leases import Device
from refold.suite.rows import LOST, Row, failed
from refold.suite.tasks import Ask, SuiteError, Task, source_digest

RETRIES = 5  # of a task whose worker was lost
_CONNECT = 5.0  # seconds for the address to answer


@dataclass(frozen=True)
class Answer:
    """What comes back from a node."""

    row: Row
    written: str
    said: str


def perform(task: Task, text: str, ask: Ask, source: str, work: Sequence[str]) -> Answer:
    """One task, on a node. source: the digest of refold's files where the suite runs."""
    own = source_digest()
    if own != source:
        reason = f"the node {socket.gethostname()} has another refold: {own}, not {source}"
        return Answer(failed(LOST, reason), "", "")
    with tempfile.TemporaryDirectory(prefix="refold_ray_") as name:
        folder = Path(name)
        path = folder / task.path.name
        path.write_text(text, encoding="utf-8")
        place = Here(ask, [Device(())], folder / "files", folder / "logs", work)
        try:
            place.start(Task(task.name, path, task.sets))
            while not (ended := list(place.finished())):
                time.sleep(0.05)
        finally:
            place.close()
        ((_, row),) = ended
        return Answer(row, _read(folder / "files" / f"{task.file}.py"), _read(folder / "logs"))


def _read(path: Path) -> str:
    """A file's text, or that of the one file in a folder; empty where there is none."""
    with contextlib.suppress(OSError, StopIteration):
        return (next(path.iterdir()) if path.is_dir() else path).read_text(errors="replace")
    return ""


class Cluster:
    """Runs tasks on the nodes of a cluster.

    address: as `ray.init` takes it. jobs: how many side by side; None for one on each node with
    the least processors, or on each GPU. gpus: whether tasks are for GPUs; None: where there are
    any. Raises SuiteError where there is no Ray or no cluster.
    """

    def __init__(
        self,
        ask: Ask,
        address: str,
        files: Path,
        logs: Path,
        jobs: int | None = None,
        gpus: bool | None = None,
        work: Sequence[str] = WORK,
    ) -> None:
        self.ask, self.work, self.files, self.logs = ask, tuple(work), files, logs
        self._ray = _connected(address)
        nodes = [n["Resources"] for n in self._ray.nodes() if n["Alive"]]
        processors = [int(n.get("CPU", 0)) for n in nodes if n.get("CPU", 0) >= 1]
        cards = int(sum(n.get("GPU", 0) for n in nodes))
        on_cards = cards > 0 if gpus is None else gpus
        if not processors or (on_cards and not cards):
            raise SuiteError(
                f"{address}: expected a cluster with processors or GPUs for the target"
            )
        each = min(processors) if jobs is None else max(1, sum(processors) // jobs)
        self.jobs = cards if on_cards else sum(n // each for n in processors)
        if jobs is not None:
            self.jobs = min(self.jobs, jobs)
        options = {"num_gpus": 1, "num_cpus": 1} if on_cards else {"num_cpus": each}
        self._perform = self._ray.remote(max_retries=RETRIES, **options)(perform)
        self._jobs: dict[Any, Running] = {}
        for folder in (files, logs):
            folder.mkdir(parents=True, exist_ok=True)

    def start(self, task: Task) -> bool:
        """Hand a task to the cluster, if it has room."""
        if len(self._jobs) >= self.jobs:
            return False
        (self.files / f"{task.file}.py").unlink(missing_ok=True)
        ref = self._perform.remote(task, task.text(), self.ask, source_digest(), self.work)
        self._jobs[ref] = Running(task, time.monotonic(), "the cluster")
        return True

    def running(self) -> Sequence[Running]:
        """What was handed out and is not back."""
        return list(self._jobs.values())

    def finished(self) -> Iterator[tuple[Task, Row]]:
        """The rows that have come back since."""
        refs = list(self._jobs)
        if not refs:
            return
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=0)[0]:
            job = self._jobs.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                said = (str(error).strip().splitlines() or [""])[0]
                kind = type(error).__name__
                yield job.task, failed(LOST, f"{kind} after {RETRIES} retries: {said}"[:300])
                continue
            if answer.written:
                (self.files / f"{job.task.file}.py").write_text(answer.written)
            (self.logs / f"{job.task.file}.log").write_text(answer.said)
            yield job.task, answer.row

    def close(self) -> None:
        """End all that runs."""
        for ref in self._jobs:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._ray.cancel(ref, force=True)
        self._jobs.clear()
        self._ray.shutdown()


def _connected(address: str) -> Any:
    """Ray, connected to a cluster."""
    try:
        import ray
    except ImportError:
        raise SuiteError("--ray: expected Ray; pip install 'refold[ray]'") from None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():  # Ray itself waits for minutes
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
        except OSError as error:
            raise SuiteError(f"--ray {address}: nobody answers there ({error})") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of classes of its own and of Python's
        said = " ".join(str(error).split())[:200]
        raise SuiteError(f"--ray {address}: no cluster ({said})") from None
    return ray
