"""A judgement in a process of its own, beside one that measures or compiles.

While OpenMP's threads have nothing to do they spin for milliseconds, unless the environment says
otherwise when PyTorch is imported. Who times on the CPU must leave that as users have it. A judge
alternates with its worker hundreds of times, and each would wait for a processor on which the
other's threads spin: of S2's judgement on two processors that was half of the processors' time.
So `optimize` starts this process when it begins, where PyTorch is imported while the model is
captured, and says later what is to be judged.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any

from refold.contract import ContractError
from refold.judge.wire import forkserver

if TYPE_CHECKING:
    from refold.judge.verdict.verdict import Verdict

# without Python's search for garbage among what is imported, all of which lives on
_MAIN = "import gc; gc.disable(); from refold.judge.aside import main; main()"
# of freed memory so much stays for the next tensors: new pages cost as much as what is done there
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 29)}


class Aside:
    """The process, from its side that asks. It ends with `close`, or with who started it."""

    def __init__(self, threads: int) -> None:
        self._pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=_environment(threads),
        )
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._pipe.closed and self._process.poll() is None

    def judge(
        self,
        reference: Any,
        candidate: Any,
        progress: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Verdict:
        """See `run.judge`. It waits while ``progress`` runs.

        Raises:
            ContractError: as there; or the process has ended.
        """
        asked = {"paths": [str(reference), str(candidate)], "options": options, "path": sys.path}
        try:
            kind, told = self._answer(asked, progress or (lambda _: None))
        except (EOFError, OSError) as error:
            code = self._process.wait()
            raise ContractError(
                f"{reference}: the judge's process ended with code {code}: its memory may have "
                "been exhausted, or the reference ended it; try smaller sizes"
            ) from error
        except BaseException:
            self.close()  # it is in the middle of something that nobody waits for any more
            raise
        if kind == "refused":
            raise ContractError(told)
        if kind == "failed":
            raise RuntimeError(f"the judge failed: {told}")
        verdict: Verdict = told
        return verdict

    def _answer(self, asked: Any, progress: Callable[[str], None]) -> tuple[str, Any]:
        self._pipe.send(asked)
        while True:
            kind, told = self._pipe.recv()
            if kind != "step":
                return kind, told
            progress(told)
            self._pipe.send("go on")

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


def _environment(threads: int) -> dict[str, str]:
    """A worker's, but that less memory is kept; a worker's token has its place in it."""
    found = forkserver.environment(threads, {forkserver.TOKEN: "0" * 32})
    return {k: v for k, v in found.items() if not k.startswith("MALLOC_TOP_PAD")} | _ALLOCATOR


_kept: list[tuple[Any, Aside]] = []  # at most one, for the next judgement


@contextlib.contextmanager
def begun(device: str, threads: int) -> Iterator[Callable[..., Verdict]]:
    """What judges inside of the block. On a GPU that is this process: another would need a context
    of the device, and memory there, of its own."""
    if device != "cpu":
        from refold.judge.run import judge

        forkserver.start(threads)
        yield judge
        return
    key = threads, forkserver.environment_now()
    if not (_kept and _kept[0][0] == key and _kept[0][1].alive):
        stop()
        _kept.append((key, Aside(threads)))
    yield _kept[0][1].judge


@atexit.register
def stop() -> None:
    """End the process, if there is one."""
    while _kept:
        _kept.pop()[1].close()


def main() -> None:
    """The process itself: one judgement after another, until nobody asks any more."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive who asks
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(EOFError, OSError), Connection(int(sys.argv[1])) as pipe:
        from refold.judge.run import judge
        from refold.judge.wire import forked  # noqa: F401  # what the server imports

        forkserver.here()
        gc.freeze()
        gc.enable()
        while True:
            asked: Mapping[str, Any] = pipe.recv()
            sys.path[:] = asked["path"]

            def progress(word: str) -> None:
                pipe.send(("step", word))
                pipe.recv()

            answer: tuple[str, Any]
            try:
                answer = "verdict", judge(*asked["paths"], progress=progress, **asked["options"])
            except ContractError as error:
                answer = "refused", str(error)
            except (EOFError, OSError):
                raise
            except Exception as error:
                answer = "failed", f"{type(error).__name__}: {error}"
            pipe.send(answer)
