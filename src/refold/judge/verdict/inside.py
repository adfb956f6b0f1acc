"""A worker in this process, for modules in memory: nothing is isolated, and the verdict says so."""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn

from refold.judge.wire import frames
from refold.judge.wire.host import Host, Raised
from refold.judge.worker.commands import Worker

NOTE = "both modules ran in this process: nothing was isolated, and nothing hostile is found"


class Inside:
    """Answers as `wire.host.Host` does. Tensors are copied on their way, as between processes."""

    def __init__(self, make: Callable[[], nn.Module], device: torch.device) -> None:
        self.arena = os.memfd_create("refold-outputs", os.MFD_ALLOW_SEALING)
        guard = types.SimpleNamespace(canary=torch.empty(0), complaints=list)
        peer = types.SimpleNamespace(place=None, sock=None)
        self.worker = Worker(cast(Any, peer), self.arena, cast(Any, guard))
        self.worker.take(make, device)
        self.alive, self.lost, self.forked, self.pid = True, False, False, os.getpid()

    def request(self, do: str, seconds: float | None = None, **arguments: Any) -> Any:
        """See `Host.request`; there is no limit of time.

        Raises:
            Raised: the command raised.
        """
        handler = getattr(self.worker, "do_" + do)
        try:
            return _passed(handler(**_passed(arguments)))
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())[:500]
            raise Raised(type(error).__name__, said, "") from error

    def post(self, do: str, seconds: float | None = None, **arguments: Any) -> None:
        """See `Host.post`. Nothing runs beside anything here: `wait` does what was asked."""
        self._asked = do, arguments

    def wait(self, seconds: float | None = None) -> Any:
        """See `Host.wait`."""
        do, arguments = self._asked
        return self.request(do, seconds, **arguments)

    def seal_arena(self, size: int) -> None:
        """See `Host.seal_arena`."""
        os.ftruncate(self.arena, max(size, 1))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing stands still here."""
        yield

    def close(self) -> None:
        """Let go of the module."""
        if self.alive:
            os.close(self.arena)
        self.alive = False

    def host(self) -> Host:
        """As what sessions hold."""
        return cast(Host, self)


def _passed(value: Any) -> Any:
    blobs: list[torch.Tensor] = []
    header = frames.encode(value, blobs)
    return frames.decode(header, [b.cpu().clone() for b in blobs])
