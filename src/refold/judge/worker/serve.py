"""The process that holds a candidate (or, for the clock, the reference): it receives only tensors.

Run as ``python -m refold.judge.worker.serve FD ARENA CPU_SECONDS``, or forked (see `forkserver`).
Its answers are claims of an untrusted process; the parent decides by what it computes itself.
"""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
import sys

from refold.judge.wire import frames, ring
from refold.judge.worker.commands import Worker

_FILE = 4 << 30  # bytes of one file that is written


def _limit(kind: int, most: int) -> None:
    """A limit of each process; an own one that is lower stays."""
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY or hard > most:
        resource.setrlimit(kind, (most, most))


def serve(channel: int, arena: int, cpu_seconds: int) -> None:
    """Answer on the inherited socket; ``arena`` is the shared file that takes timed outputs."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive the judge
    # a shell ignores interrupts for what runs behind it, nohup hang-ups: a candidate that ignores
    # them would change nothing. A worker has a session of its own: no terminal sends it any.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit(resource.RLIMIT_FSIZE, _FILE)
    _limit(resource.RLIMIT_CPU, cpu_seconds)
    sock = socket.socket(fileno=channel)
    Worker(frames.Peer(sock, shared=ring.Ring.accept(sock)), arena).serve()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:4]))
