"""The parent's side of the fork server, and the processes that it makes.

Importing torch takes a second of every worker. The fork server (`wire.forked`) imports it
once, runs nothing of any candidate, starts no thread and forks a clean child for each worker. What
isolates a worker is what isolated it before: its own session, descriptors, limits and memory.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from refold.judge.wire.child import Child

TOKEN = "REFOLD_JUDGE_TOKEN"
# PyTorch reads these when it first compiles or finds a GPU, and sets some by itself: a child gets
# them when it is forked, so that one server goes on serving.
_LATE = (
    *("CUDA_MODULE_LOADING", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
)
# OpenMP's threads sleep at once where they have nothing to do
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}
# The order of sets of texts. Another one for each judge: who needs one of them is right by luck.
HASHES = "PYTHONHASHSEED"
HASH_SEED = os.environ.get(HASHES) or str(secrets.randbelow(1 << 32))
OTHER_HASHES = {HASHES: str((int(HASH_SEED) + 1) % (1 << 32) if HASH_SEED.isdigit() else 1)}
_START_SECONDS = 120.0
_FORK_SECONDS = 20.0  # a fork takes milliseconds
_MESSAGE = 1 << 12


class Process(Protocol):
    """What a worker's host asks of its process, as `subprocess.Popen` answers it."""

    pid: int
    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """The exit code (negative: a signal), or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; `subprocess.TimeoutExpired` after ``timeout`` seconds."""


def environment(threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment: ours, this package's path, passive waiting, ``threads``."""
    found = dict(os.environ)
    path = [str(Path(__file__).resolve().parents[3]), *filter(None, [found.get("PYTHONPATH")])]
    # Passive waiting on both sides: an idle worker must not spin on the other's core.
    found.update(
        {
            "PYTHONPATH": os.pathsep.join(path),
            **PASSIVE,
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            HASHES: HASH_SEED,
            **allocator(),
            **extra,
        }
    )
    if threads:
        found["OMP_NUM_THREADS"] = str(threads)
    return found


def allocator() -> dict[str, str]:
    """Freed memory stays with the process, large blocks too. Else a call whose outputs are kept
    pays for new pages that a call whose outputs are dropped does not: up to three quarters more
    time, more for a candidate with temporaries than for eager. Older C libraries refuse a
    threshold above 32 MiB."""
    found = platform.libc_ver()
    version = tuple(int(n) for n in found[1].split(".")[:2] if n.isdigit())
    least = 1 << 30 if version >= (2, 35) else 1 << 25
    return {
        "MALLOC_MMAP_THRESHOLD_": str(least),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        "MALLOC_TOP_PAD_": str(1 << 26),
    }


def exec_worker(
    command: Sequence[str], env: Mapping[str, str], sock: int, arena: int, cpu_seconds: int
) -> Process:
    """A worker in a fresh interpreter; ``command`` runs the interpreter's command line."""
    numbers = [str(n) for n in (sock, arena, cpu_seconds)]
    return subprocess.Popen(
        [*command, sys.executable, "-m", "refold.judge.worker.serve", *numbers],
        pass_fds=[sock, arena],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=dict(env),
    )


class ForkedProcess:
    """A child of the fork server. The server keeps its body until its end was asked for, so that
    its number is not given to another process before."""

    def __init__(self, server: ForkServer, pid: int, stdout: IO[bytes]) -> None:
        self.server, self.pid = server, pid
        self.stdout: IO[bytes] | None = stdout

    def poll(self) -> int | None:
        """See `Process`."""
        return self.server.code(self.pid, 0.0)

    def wait(self, timeout: float | None = None) -> int:
        """See `Process`."""
        end = time.monotonic() + (3600.0 if timeout is None else timeout)
        while True:
            left = end - time.monotonic()
            code = self.server.code(self.pid, min(max(left, 0.0), 0.02))
            if code is not None:
                return code
            if left <= 0:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)


class ForkServer:
    """A running server; see the module. Not usable (`usable`) where its imports start threads."""

    def __init__(self, threads: int, of: ForkServer | None = None, here: bool = False) -> None:
        self.key = (threads, environment_now())
        self.expected = False  # started before anybody asked for it, with as many threads as usual
        self.wanted = 0  # threads that were asked of it then
        self.retired = False  # its children end as they will, and it has no more
        self._lock = threading.Lock()
        self._codes: dict[int, int] = {}
        self._reaped: set[int] = set()
        self._hello: bool | None = None
        self._has = 0  # threads, as it says itself
        self._gone = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock = ours
        self.pid: int  # of the server's process
        self._process: subprocess.Popen[bytes] | Child | None = None
        if of is not None:
            self.key, self.wanted, self.pid = of.key, of.wanted, of.pid
            with of._lock:
                socket.send_fds(of._sock, [b'{"another": true}'], [theirs.fileno()])
            theirs.close()
            return
        if here:
            from refold.judge.wire import forked

            self.pid = os.fork()
            if not self.pid:
                forked.begin(theirs)
            self._process = Child(self.pid)
            theirs.close()
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", "refold.judge.wire.forked", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(threads, {TOKEN: "0" * 32}),
        )
        self.pid = self._process.pid
        theirs.close()

    def branch(self) -> ForkServer:
        """The same server, for another process that is forked from this one: what the one asks
        and is answered, the other does not see.

        Raises:
            OSError: the server is gone.
        """
        return ForkServer(self.key[0], self)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._gone and (self._process is None or self._process.poll() is None)

    def usable(self) -> bool:
        """Waits for its imports; whether it may fork: it has one thread, and lives."""
        with self._lock:
            end = time.monotonic() + _START_SECONDS
            while self._hello is None and not self._gone and time.monotonic() < end:
                self._read(0.5)
            if self.wanted and self._has != self.wanted:
                self.retired = True  # the next worker starts another
                return False
            return bool(self._hello) and not self._gone

    def fork(self, sock: int, arena: int, token: str, cpu_seconds: int) -> ForkedProcess | None:
        """A worker with these descriptors; None if the server could not."""
        out, into = os.pipe()
        try:
            with self._lock:
                with contextlib.suppress(OSError):  # a candidate may have stopped it
                    os.kill(self.pid, signal.SIGCONT)
                request: dict[str, object] = {"token": token, "cpu_seconds": cpu_seconds}
                request["environment"] = {name: os.environ.get(name) for name in _LATE}
                try:
                    socket.send_fds(self._sock, [json.dumps(request).encode()], [sock, arena, into])
                    pid = self._reply()
                except OSError:
                    self._gone, pid = True, 0
        finally:
            os.close(into)
        if pid <= 0:
            os.close(out)
            return None
        return ForkedProcess(self, pid, os.fdopen(out, "rb", buffering=0))

    def code(self, pid: int, seconds: float) -> int | None:
        """The exit code of a child, waiting at most ``seconds``."""
        with self._lock:
            if pid not in self._codes and not self._gone:
                self._read(seconds)
                while self._ready():
                    self._read(0.0)
            if pid not in self._codes and self._gone:
                return -9  # its children go with it
            code = self._codes.get(pid)
            if code is not None and pid not in self._reaped:
                self._reaped.add(pid)
                with contextlib.suppress(OSError):
                    self._sock.send(json.dumps({"reap": pid}).encode())
            return code

    def close(self) -> None:
        """End it; its children end with it. Of a branch only the connection, and its children."""
        self._gone = True
        self._sock.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _reply(self) -> int:
        end = time.monotonic() + _FORK_SECONDS
        while time.monotonic() < end and not self._gone:
            pid = self._read(0.5)
            if pid is not None:
                return pid
        self._gone = True
        if self._process is not None:
            self._process.kill()
        return 0

    def _ready(self) -> bool:
        return not self._gone and bool(select.select([self._sock], [], [], 0)[0])

    def _read(self, seconds: float) -> int | None:
        """Take one message in; the number of a new child, if it says so."""
        try:
            if not select.select([self._sock], [], [], seconds)[0]:
                return None
            data = self._sock.recv(_MESSAGE)
        except (OSError, ValueError):
            data = b""
        if not data:
            self._gone = True
            return None
        message = json.loads(data)
        if "ended" in message:
            self._codes[int(message["ended"])] = int(message["code"])
        if "single" in message:
            self._hello, self._has = bool(message["single"]), int(message["threads"])
        if "forked" not in message:
            return None
        pid = int(message["forked"])
        self._codes.pop(pid, None)  # of an earlier bearer of the number
        self._reaped.discard(pid)
        return pid


_servers: list[ForkServer] = []
_guard = threading.Lock()


def environment_now() -> dict[str, str]:
    """The environment that a process is started under. pytest's variable changes with each test and
    means nothing to a library; any other may be read when one is loaded."""
    ignored = ("PYTEST_CURRENT_TEST", *_LATE)
    return {k: v for k, v in os.environ.items() if k not in ignored}


def scheduling(pid: int) -> tuple[object, ...]:
    """On which processors, how nicely and by which rule a process runs; empty if it is gone."""
    try:
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        return sorted(os.sched_getaffinity(pid)), nice, os.sched_getscheduler(pid)
    except OSError:
        return ()


def busy_seconds(pid: int) -> float:
    """Time in which a process's threads ran or waited for a processor; 0 if it is gone."""
    found = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                    ran, waited, *_ = file.read().split()
                found += int(ran) + int(waited)
    return found / 1e9


def schedule(wanted: dict[int, tuple[object, ...]]) -> None:
    """Let processes run so, in the form of `scheduling`, as far as this user may."""
    for pid, how in wanted.items():
        if not how or how == scheduling(pid):
            continue
        processors, nice, _ = how
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, processors)  # type: ignore[arg-type]
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, nice)  # type: ignore[arg-type]


def retire() -> None:
    """Fork no more from the present servers."""
    with _guard:
        for server in _servers:
            server.retired = True


def start(threads: int = 0) -> ForkServer:
    """The server for workers of ``threads`` in the present environment, started if need be."""
    with _guard:
        key = (threads, environment_now())
        for server in list(_servers):
            if not server.alive:
                _servers.remove(server)
            elif server.key == key and not server.retired:
                return server
            elif server.expected and server.key[1] == key[1]:
                server.expected, server.key, server.wanted = False, key, threads
                return server
            elif server.expected:  # for another environment
                _servers.remove(server)
                server.close()
        _servers.append(ForkServer(threads))
        return _servers[-1]


def expect() -> None:
    """Start the server that a judgement will ask for, before torch is imported here: both imports
    run side by side then. It serves if the number of threads turns out as usual."""
    with _guard:
        _servers.append(ForkServer(0))
        _servers[-1].expected = True


def here() -> None:
    """The same, forked from this process, which has imported what the server imports, under a
    worker's environment: PyTorch is imported once for both. Nothing where this process has threads
    (NumPy's own end before a fork): then a server is started when it is asked for."""
    with _guard:
        server = ForkServer(0, here=True)
        if len(os.listdir("/proc/self/task")) > 1:
            server.close()
            return
        server.expected = True
        _servers.append(server)


def only(server: ForkServer) -> None:
    """In a process that was just forked: this is its server; the others are its parent's."""
    for other in _servers:
        other._sock.close()
    _servers[:] = [server]


@atexit.register
def stop() -> None:
    """End all servers."""
    while _servers:
        with contextlib.suppress(OSError):
            _servers.pop().close()
