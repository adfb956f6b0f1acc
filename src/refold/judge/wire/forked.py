"""``python -m refold.judge.wire.forked FD``: imports what a worker needs, forks one per request.

It never runs a line of a candidate. It says whether it has a single thread: a fork keeps only the
thread that calls it, and whatever lock another held would stay locked in the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import NoReturn

gc.disable()  # what is imported lives on: to look for garbage among it takes a fifth of the time

import torch  # noqa: E402

from refold.judge.wire.forkserver import TOKEN, allocator  # noqa: E402
from refold.judge.worker import serve  # noqa: E402

# Where there is one, lives make an optimizer of torch.optim's, which imports torch._dynamo: seconds
# that the server spends when nobody asks for anything.
_GPUS = "/dev/nvidiactl"
_IDLE = 0.05  # seconds


class _Environment:
    """The token where /proc shows it: the memory that the environment came in."""

    def __init__(self) -> None:
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_void_p
        self._address = getenv(TOKEN.encode())

    def mark(self, token: str) -> None:
        ctypes.memmove(self._address, token.encode(), 32)
        os.environ[TOKEN] = token


def _single() -> bool:
    """Whether children may use what was imported: all threads, and CUDA if there is one."""
    # NumPy's BLAS starts threads at import and ends them in a handler of its own at the first
    # fork; it starts them again at its first product.
    pid = os.fork()
    if pid == 0:
        os._exit(1 if torch.cuda._is_in_bad_fork() else 0)
    _, status = os.waitpid(pid, 0)
    return status == 0 and len(os.listdir("/proc/self/task")) == 1


def _request(
    sock: socket.socket, environment: _Environment, single: bool
) -> int | socket.socket | None:
    """One request: reap a child, fork one, which never returns from here, or serve another process
    of the judge, too. The child's number, 0 if it would not be whole (then the parent starts an
    interpreter instead); or the other process's connection."""
    data, descriptors, _, _ = socket.recv_fds(sock, 1 << 12, 3)
    if not data:
        raise EOFError
    request = json.loads(data)
    if "reap" in request:
        os.waitpid(int(request["reap"]), 0)
        return None
    if "another" in request:
        return socket.socket(fileno=descriptors[0])
    channel, arena, printed = descriptors
    pid = os.fork() if single else 0
    if pid or not single:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        keep = {0, 1, 2, channel, arena}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in keep:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        environment.mark(str(request["token"]))
        for name, value in request["environment"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        serve.serve(channel, arena, int(request["cpu_seconds"]))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _share() -> None:
    """Let children share the pages of all objects as long as nobody writes to them."""
    gc.collect()
    gc.freeze()
    gc.enable()


# glibc's numbers of what the variables of its allocator set
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2, "MALLOC_MMAP_THRESHOLD_": -3}


def begin(sock: socket.socket) -> NoReturn:
    """In a process that was forked from one that has imported all of this: be the server."""
    code = 1
    with contextlib.suppress(BaseException):
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != sock.fileno():
                with contextlib.suppress(OSError):
                    os.close(int(name))
        os.environ.update(allocator())
        for name, value in allocator().items():
            ctypes.CDLL(None).mallopt(_ALLOCATOR[name], int(value))
        main(sock)
        code = 0
    os._exit(code)


def main(first: socket.socket) -> None:
    """Serve until the first of those that ask hangs up."""
    asking = {first.fileno(): first}
    environment = _Environment()
    single = _single()
    _share()
    ahead = single and os.path.exists(_GPUS)
    wake, into = os.pipe()
    os.set_blocking(into, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(into)
    children: dict[int, socket.socket] = {}  # and who asked for them
    _hello(first, single)
    while True:
        ready, _, _ = select.select([*asking, wake], [], [], _IDLE if ahead else None)
        if not ready:
            ahead = False
            importlib.import_module("torch._dynamo")
            single = _single()
            _share()
        if wake in ready:
            os.read(wake, 1 << 12)
        for pid, sock in list(children.items()):
            # Not reaped: its number stays taken until the parent knows of its end.
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                del children[pid]
                died = ended.si_code != os.CLD_EXITED
                code = -ended.si_status if died else ended.si_status
                if sock.fileno() in asking:
                    sock.send(json.dumps({"ended": pid, "code": code}).encode())
                else:
                    os.waitpid(pid, 0)  # nobody asks for it any more
        for sock in [asking[number] for number in ready if number in asking]:
            try:
                made = _request(sock, environment, single)
                if isinstance(made, socket.socket):
                    asking[made.fileno()] = made
                    _hello(made, single)
                elif made is not None:
                    children |= {made: sock} if made else {}
                    sock.send(json.dumps({"forked": made}).encode())
            except (EOFError, OSError):
                if sock is first:
                    raise
                del asking[sock.fileno()]
                for pid in [pid for pid, by in children.items() if by is sock]:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                sock.close()


def _hello(sock: socket.socket, single: bool) -> None:
    sock.send(json.dumps({"single": single, "threads": torch.get_num_threads()}).encode())


if __name__ == "__main__":
    with contextlib.suppress(EOFError, OSError):
        main(socket.socket(fileno=int(sys.argv[1])))
