"""What a worker was asked, and has not been waited for."""

from __future__ import annotations

from typing import Any

from refold.judge.wire.host import Host, Raised, WorkerDied
from refold.judge.wire.memory import Starved


class Asked:
    """Waited for once, at the latest when the worker is next used."""

    def __init__(self, host: Host, seconds: float) -> None:
        self._host, self._seconds = host, seconds
        self._answer: Any = None
        self._error: Exception | None = None
        self._waited = False

    def collect(self) -> None:
        """Wait, if nobody has."""
        if not self._waited:
            self._waited = True
            try:
                self._answer = self._host.wait(self._seconds)
            except (Raised, WorkerDied, Starved) as error:
                self._error = error

    def answer(self) -> Any:
        """The answer; raises as `Host.request` does."""
        self.collect()
        if self._error is not None:
            raise self._error
        return self._answer
