"""Room on a device that judges share: leases of memory, of the clock, and what is done without.

Memory that is exhausted says nothing of a candidate. It is waited for and asked for again; in the
end the verdict is INCONCLUSIVE, with the reason.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from refold.judge.wire.lease import NoRoom, Pool
from refold.judge.wire.memory import Starved, available, exhausted, installed

T = TypeVar("T")
TRIES = 3  # of whatever ran out of memory
_PATIENCE = 3600.0  # seconds to wait for a lease of memory: the others finish, slowly
_CLOCK_PATIENCE = 1800.0
_BREATH = 60.0  # seconds to wait for another to end, before what failed is tried again
_USABLE = 0.9  # of a device, that leases may take together
_FIXED = 512 << 20  # bytes beside whatever has the size of outputs
_CONTEXTS = {"cuda": 5 * (450 << 20), "cpu": 4 * (150 << 20)}  # of parent and workers


@dataclass
class Room:
    """Of one judgement on one device."""

    device: torch.device
    say: Callable[[str], None] = lambda word: None
    notes: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def memory(self, size: int) -> Iterator[None]:
        """A lease of so many bytes inside the block.

        Raises:
            Starved: others held the memory too long.
        """
        with self._lease("memory", size, self._fits(size), _PATIENCE):
            yield

    @contextlib.contextmanager
    def clock(self, threads: int) -> Iterator[None]:
        """The device for timing inside the block; of a CPU so many processors.

        Raises:
            Starved: others timed too long.
        """
        processors = len(os.sched_getaffinity(0))
        cpu = self.device.type == "cpu"
        want = min(threads, processors) if cpu else 1
        most = processors if cpu else 1
        with self._lease("clock", want, lambda held, _: held + want <= most, _CLOCK_PATIENCE):
            yield

    @contextlib.contextmanager
    def _lease(
        self, kind: str, amount: int, fits: Callable[[int, int], bool], seconds: float
    ) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                pool = self._pool(kind)
                stack.enter_context(
                    pool.take(amount, fits, seconds, lambda: self.say(f"waiting for {kind}"))
                )
            except NoRoom as error:
                raise Starved(f"no room: {error}; end other judgements, or try later") from error
            except OSError as error:  # no folder for leases: judged alone or not, nobody knows
                self.notes.append(f"no lease of the {kind}: {error}")
            yield

    def _pool(self, kind: str) -> Pool:
        return Pool(f"{kind}-{identity(self.device)}")

    def _fits(self, size: int) -> Callable[[int, int], bool]:
        def fits(held: int, _: int) -> bool:
            free, total = extent(self.device)
            return held + size <= _USABLE * total and size <= free

        return fits

    def breathe(self) -> None:
        """After memory was exhausted: wait for another judgement to end, a minute at most; without
        others a moment."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        end, before = time.monotonic() + _BREATH, self._others()
        time.sleep(0.5)
        while before > 1 and self._others() >= before and time.monotonic() < end:
            time.sleep(0.5)

    def _others(self) -> int:
        with contextlib.suppress(OSError):
            return len(self._pool("memory").holders())
        return 0

    def patiently(self, work: Callable[[], T], relieve: Callable[[], None] = lambda: None) -> T:
        """What a piece of work gives; where memory is exhausted, it is tried again.

        Raises:
            Starved: it was exhausted each time.
        """
        for left in reversed(range(TRIES)):
            try:
                return work()
            except Exception as error:
                if not starving(error):
                    raise
                said = " ".join(str(error).split())[:200]
            relieve()
            if left:
                self.breathe()
        free = extent(self.device)[0] >> 20
        raise Starved(
            f"{self.device.type} memory was exhausted {TRIES} times ({said}); {free} MiB are free: "
            "free memory, or give smaller sizes"
        )


def starving(error: BaseException) -> bool:
    """Whether an error says that memory is exhausted."""
    return isinstance(error, Starved) or exhausted(type(error).__name__, str(error))


def identity(device: torch.device) -> str:
    """A device's name, alike in every process of the machine."""
    if device.type != "cuda":
        return "cpu"
    found = torch.cuda.get_device_properties(device)
    return str(getattr(found, "uuid", f"cuda{device.index or 0}"))


def extent(device: torch.device) -> tuple[int, int]:
    """Bytes that are free on a device, and all of its bytes."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return int(free), int(total)
    return available(), installed()


def wanted(device: torch.device, forward: int, results: int, state: int) -> int:
    """Bytes that a judgement takes, by estimate.

    forward: of one call of the reference beside its results; results: of its inputs and outputs;
    state: of its parameters and buffers. Both sides hold a state; one is widened.
    """
    return _CONTEXTS[device.type] + 3 * forward + 6 * results + 6 * state + _FIXED
