"""Devices for tasks: each running task has one by itself, among all suites on the machine.

The leases are the judge's (`judge/wire/lease.py`): files that their holder keeps locked, so that a
lease ends with its holder. A suite on a CPU shares out its processors, one on GPUs the GPUs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from refold.judge.wire.lease import NoRoom, Pool
from refold.suite.tasks import SuiteError


@dataclass(frozen=True)
class Device:
    """What one task runs on. names: what is leased. gpu: by which CUDA finds it; empty for a CPU.
    processors: those of a CPU that the task may use; none for all."""

    names: tuple[str, ...]
    gpu: str = ""
    processors: tuple[int, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        if self.gpu:
            return {"CUDA_VISIBLE_DEVICES": self.gpu}
        if self.processors and "OMP_NUM_THREADS" not in os.environ:
            return {"OMP_NUM_THREADS": str(len(self.processors))}
        return {}


def processors(jobs: int) -> list[Device]:
    """The processors that this process may use, in `jobs` equal parts.

    Raises:
        SuiteError: there are not so many.
    """
    every = sorted(os.sched_getaffinity(0))
    each = len(every) // jobs
    if not each:
        raise SuiteError(f"--jobs: expected {len(every)} at most, the processors, came {jobs}")
    parts = [tuple(every[i * each : (i + 1) * each]) for i in range(jobs)]
    return [
        Device(tuple(f"processor{n}" for n in part), processors=part if jobs > 1 else ())
        for part in parts
    ]


def gpus(jobs: int | None) -> list[Device]:
    """The GPUs that CUDA shows this process, `jobs` of them at most.

    Raises:
        SuiteError: there is none, or there are not so many.
    """
    known = _listed()
    listed = list(known.values())
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        chosen = [name.strip() for name in shown.split(",") if name.strip()]
        listed = [known.get(name, name) for name in chosen]
    if not listed:
        raise SuiteError("expected a GPU for this target; nvidia-smi lists none")
    if jobs is not None and jobs > len(listed):
        raise SuiteError(f"--jobs: expected {len(listed)} at most, the GPUs, came {jobs}")
    return [Device((f"gpu-{name}",), gpu=name) for name in listed[: jobs or len(listed)]]


def _listed() -> dict[str, str]:
    """The unique name of each GPU by its number."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.split(", ") for line in done.stdout.splitlines() if ", " in line)
    return {number: name.strip() for number, name in pairs}


@dataclass
class Leases:
    """The devices of one suite, each leased while a task runs on it."""

    devices: Sequence[Device]
    _held: dict[Device, contextlib.ExitStack] = field(default_factory=dict)

    def take(self) -> Device | None:
        """A device that nobody uses; None where there is none now."""
        for device in self.devices:
            if device in self._held:
                continue
            with contextlib.ExitStack() as stack:
                try:
                    for name in device.names:
                        pool = Pool(f"suite-{name}")
                        stack.enter_context(pool.take(1, lambda held, count: False, -1.0))
                except NoRoom:
                    continue
                except OSError as error:
                    raise SuiteError(f"no leases of devices: {error}") from error
                self._held[device] = stack.pop_all()
                return device
        return None

    def give(self, device: Device) -> None:
        """The task on a device has ended."""
        self._held.pop(device).close()

    def close(self) -> None:
        """All tasks have ended."""
        while self._held:
            self.give(next(iter(self._held)))
