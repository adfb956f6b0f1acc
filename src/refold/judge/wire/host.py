"""The parent's side of a worker: spawn, limits, requests with deadlines, and a sure end."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold.judge.wire import answers, forkserver, frames, memory
from refold.judge.wire.memory import Starved
from refold.judge.wire.meter import METER, size_of
from refold.judge.wire.processes import Waits, send, send_group
from refold.judge.wire.ring import Ring

_GO, _DONE, _END = b"g", b"d", b"e"
_GIVES_OUTPUTS = ("call", "fetch", "live")
_LOOK_AGAIN = 2.0  # seconds after which a process that was a stranger is looked at again
_PATIENT = 3  # times a limit that is added to it at most while a worker waits for a processor
_CROWDED = 4  # a worker that may have less than this part of memory does not answer for the limit


@dataclass(frozen=True)
class Limits:
    """What a worker may use. Seconds are wall time, without those in which it waits for a processor
    that others use; bytes and processes are of its whole group."""

    import_seconds: float = 600.0
    call_seconds: float = 20.0
    memory_bytes: int = 0  # 0: nine tenths of what is free when the worker starts
    processes: int = 64
    cpu_seconds: int = 0  # of each process; 0: an hour for every core
    print_bytes: int = 16 << 20
    disk_bytes: int = 8 << 30  # written to disks; and half of that to one file
    message_bytes: int = 16 << 30

    def __post_init__(self) -> None:
        if min(self.import_seconds, self.call_seconds) <= 0 or self.processes < 1:
            raise ValueError(f"expected positive limits, came {self}; raise them")


class WorkerDied(RuntimeError):
    """The worker is gone: ``why`` is ``crashed``, ``timed out``, ``memory``, ``processes``,
    ``disk``, ``output`` or ``garbled``; the text says more."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(f"{why}: {detail}")
        self.why = why


class Raised(RuntimeError):
    """The candidate's code raised; the worker lives."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.trace = kind, trace


class Host:
    """A spawned worker in its own session. Close it, or use it as a context manager.

    ``under`` is a command that runs the worker's, with ``extra`` added to the environment.
    ``place`` says of so many bytes on which device an output is to be received.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        threads: int = 0,
        under: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
        place: Callable[[int], torch.device] | None = None,
    ) -> None:
        # Takes outputs of timed calls; inherited empty, sized by `seal_arena`.
        self.arena = os.memfd_create("refold-outputs", os.MFD_ALLOW_SEALING)
        self.limits = limits or Limits()
        self._cap = self.limits.memory_bytes or int(memory.available() * 0.9)
        self._crowded = not self.limits.memory_bytes and self._cap < memory.installed() // _CROWDED
        self._killed = memory.killed()
        self.forked = False
        self._reason = ""
        self._why = ""
        self._asked = ""
        self.lost = False  # the device, by an error of a kernel
        self._printed = bytearray()
        self._token = secrets.token_hex(16)
        self._unrelated: dict[str, list[bytes]] = {}
        self._looked = 0.0  # when all of them were looked at
        ours, theirs = socket.socketpair()
        ring = Ring.offer(ours)
        cpu = self.limits.cpu_seconds or 3600 * (os.cpu_count() or 1)
        with METER.span("worker started"):
            self._process = self._start(theirs.fileno(), cpu, threads, under, extra or {})
        theirs.close()
        self._sock, self._place = ours, place
        self._peer = frames.Peer(ours, self.limits.message_bytes, ring)
        self._over = threading.Event()
        self._due = math.inf, 0.0  # when the worker is ended, and the limit that it broke
        self._waited = 0.0  # seconds for a processor, since it was asked
        self._threads = [
            threading.Thread(target=self._drain, daemon=True),
            threading.Thread(target=self._watch, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _start(
        self, sock: int, cpu: int, threads: int, under: Sequence[str], extra: Mapping[str, str]
    ) -> forkserver.Process:
        """Forked where that is clean, else (or with a command or environment of its own) afresh."""
        if not (under or extra):
            server = forkserver.start(threads)
            if server.usable():
                child = server.fork(sock, self.arena, self._token, cpu)
                if child is not None:
                    self.forked = True
                    return child
        env = forkserver.environment(threads, {**extra, forkserver.TOKEN: self._token})
        return forkserver.exec_worker(under, env, sock, self.arena, cpu)

    @property
    def pid(self) -> int:
        """Of the worker's first process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether requests can be made."""
        return not self._over.is_set()

    @property
    def printed(self) -> str:
        """The last of what the worker wrote to its standard streams."""
        return self._printed[-4000:].decode(errors="replace")

    def request(self, do: str, seconds: float | None = None, **arguments: Any) -> Any:
        """Ask and wait.

        Raises:
            Raised: the command raised in the worker.
            Starved: it raised, or was ended, because memory was exhausted.
            WorkerDied: it ended, hung, broke a limit or the protocol; nothing of it is left.
        """
        self.post(do, seconds, **arguments)
        return self.wait(seconds)

    def post(self, do: str, seconds: float | None = None, **arguments: Any) -> None:
        """Ask without waiting; `wait` takes the answer."""
        if not self.alive:
            raise self._death("crashed", "it was ended before")
        self._peer.place = self._place if do in _GIVES_OUTPUTS else None
        self._asked = do
        sending = METER.span(f"to worker: {do}", lambda: size_of(arguments))
        with self._within(seconds or self.limits.call_seconds), self._deadly(), sending:
            self._peer.send({"do": do, **arguments})

    def wait(self, seconds: float | None = None) -> Any:
        """The answer to the last `post`."""
        with self._within(seconds or self.limits.call_seconds), self._deadly():
            came: list[Any] = []
            with METER.span(f"worker: {self._asked}", lambda: size_of(came)):
                came.append(self._peer.receive())
            answer = came[0]
        if isinstance(answer, dict) and "ok" in answer:
            if not answers.fits(self._asked, answer["ok"]):
                self._end("garbled", f"an answer to {self._asked!r} that makes no sense")
                raise WorkerDied("garbled", self._reason)
            return answer["ok"]
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            self._end("garbled", "an answer that is neither a result nor an error")
            raise WorkerDied("garbled", self._reason)
        texts = [str(error.get(k, "")) for k in ("type", "message", "trace")]
        if memory.exhausted(*texts[:2]):
            raise Starved(f"the candidate: {texts[0]}: {texts[1]}")
        self.lost = self.lost or memory.device_lost(texts[1])
        raise Raised(*texts)

    def open_sealed(self, like: list[Any], offset: int, seed: int | None) -> None:
        """The worker waits for sealed calls: see `clock.sealed`."""
        self.post("sealed", like=like, offset=offset, seed=seed)

    def sealed_call(self, seconds: float) -> None:
        """One sealed call: its input lies in the arena, its output does when this returns."""
        self._sock.settimeout(seconds)
        with self._deadly():
            self._sock.sendall(_GO)
            if self._sock.recv(1) != _DONE:
                raise frames.WireError("no end of a sealed call")

    def close_sealed(self, seconds: float) -> None:
        """No more sealed calls."""
        with self._deadly():
            self._sock.sendall(_END)
        self.wait(seconds)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """All of the worker's processes stand still inside the block."""
        pids = self._members()
        for pid in pids:
            send(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                send(pid, signal.SIGCONT)

    def busy_seconds(self) -> float:
        """Time in which threads of the worker's processes ran or waited for a processor, added up:
        on a busy machine who works all the time runs for a part of it."""
        return sum(forkserver.busy_seconds(pid) for pid in self._members())

    def seal_arena(self, size: int) -> None:
        """Give the arena its size for good: a file that shrinks under a reader is an attack."""
        os.ftruncate(self.arena, max(size, 1))
        with contextlib.suppress(PermissionError):
            fcntl.fcntl(self.arena, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)

    def leave(self, seconds: float) -> bool:
        """Hang up; whether the worker ended by itself within ``seconds``."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Ask the system to end the worker, and wait for nothing: `close` does. A worker that
        holds a device's context takes a while to go; several go side by side so."""
        send_group(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the worker and everything it started."""
        with METER.span("worker ended"):
            self._end("closed", "closed")
        self._sock.close()
        if self.arena >= 0:
            os.close(self.arena)
            self.arena = -1
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=2.0)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _within(self, limit: float) -> Iterator[None]:
        """Ends the worker where the block takes longer: each byte of it may come just in time."""
        self._waited = 0.0
        self._due = time.monotonic() + limit, limit
        self._sock.settimeout((1 + _PATIENT) * limit + 5.0)
        try:
            yield
        finally:
            self._due = math.inf, limit

    @contextlib.contextmanager
    def _deadly(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError, frames.WireError, MemoryError) as error:
            # The watcher may have ended it for a reason of its own: that reason wins.
            if not self._why and not isinstance(error, TimeoutError | frames.WireError):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=5.0)  # how it ended
            why, detail = "crashed", self._obituary()
            if self._process.poll() == -signal.SIGKILL and memory.killed() > self._killed:
                why, detail = "starved", "the system ended it: the machine's memory was exhausted"
            if isinstance(error, TimeoutError):
                why, detail = "timed out", "no answer within the limit"
            elif isinstance(error, frames.WireError):
                why, detail = "garbled", str(error)
            self._end(why, detail)
            raise self._death() from None

    def _death(self, why: str = "", detail: str = "") -> WorkerDied | Starved:
        why, detail = self._why or why, self._reason or detail
        return Starved(detail) if why == "starved" else WorkerDied(why, detail)

    def _obituary(self) -> str:
        code = self._process.poll()
        if code is None:
            return "it closed its channel"
        tail = " ".join(self.printed.split())[-200:]
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            return f"ended by {name}" + (f"; it printed: {tail}" if tail else "")
        return f"exit code {code}" + (f"; it printed: {tail}" if tail else "")

    def _end(self, why: str, detail: str) -> None:
        if self._over.is_set():
            return
        if not self._why:
            self._why, self._reason = why, detail
        self._over.set()
        send_group(self._process.pid, signal.SIGKILL)
        for _ in range(20):
            rest = self._members(anew=True)
            for pid in rest:
                send(pid, signal.SIGSTOP)
            for pid in rest:
                send(pid, signal.SIGKILL)
            self._process.poll()
            if not rest:
                break
            time.sleep(0.02)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)

    def _drain(self) -> None:
        total = 0
        stream = self._process.stdout
        assert stream is not None
        while chunk := os.read(stream.fileno(), 65536):
            total += len(chunk)
            self._printed = (self._printed + chunk)[-16384:]
            if total > self.limits.print_bytes:
                self._end("output", f"printed more than {self.limits.print_bytes} bytes")
                break
        stream.close()

    def _watch(self) -> None:
        waits = Waits()
        while not self._over.wait(0.1):
            members = self._members()
            due, limit = self._due
            if due < math.inf:
                self._waited = min(self._waited + waits.more(members), _PATIENT * limit)
            if time.monotonic() > due + self._waited:
                self._end("timed out", f"no answer within {limit:.0f} s")
            if len(members) > self.limits.processes:
                self._end("processes", f"more than {self.limits.processes} processes")
            written = sum(memory.written(pid) for pid in members)
            if written > self.limits.disk_bytes:
                self._end("disk", f"wrote {written >> 20} MiB to disks")
            used = sum(memory.resident(pid) for pid in members)
            if used > self._cap:
                why = "starved" if self._crowded else "memory"
                self._end(why, f"{used >> 20} MiB resident, the limit is {self._cap >> 20}")

    def _members(self, anew: bool = False) -> list[int]:
        """The worker's processes: its session, and whatever left it but carries its token.

        A machine has hundreds of processes, and this is asked many times a second: a process that
        was a stranger is looked at again every two seconds only, unless ``anew``. (Its number may
        pass to another process by then; and a process changes its environment by exec.)
        """
        found, now = [], time.monotonic()
        anew = anew or now - self._looked > _LOOK_AGAIN
        if anew:
            self._looked = now
        needle = f"{forkserver.TOKEN}={self._token}".encode()
        unrelated: dict[str, list[bytes]] = {}
        for entry in os.listdir("/proc"):
            known = self._unrelated.get(entry)
            if known is not None and not anew:
                unrelated[entry] = known
                continue
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] == b"Z":
                    continue
                if int(fields[3]) == self._process.pid:
                    found.append(int(entry))
                    continue
                # Reading an environment is dear. It changes by exec, which moves it (the last two).
                identity = [fields[19], *fields[47:49]]
                if known != identity:
                    with open(f"/proc/{entry}/environ", "rb") as file:
                        if needle in file.read():
                            found.append(int(entry))
                            continue
                unrelated[entry] = identity
            except (OSError, IndexError):
                continue
        self._unrelated = unrelated
        return found
