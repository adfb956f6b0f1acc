"""A process that was forked from this one, without a program of its own."""

from __future__ import annotations

import os
import signal


class Child:
    """As `subprocess.Popen` answers of its process, but for how it ended."""

    def __init__(self, pid: int) -> None:
        self.pid, self._code = pid, list[int]()

    def poll(self) -> int | None:
        """0 when it has ended, or None while it runs."""
        if not self._code and os.waitpid(self.pid, os.WNOHANG)[0]:
            self._code.append(0)
        return self._code[0] if self._code else None

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Until it has ended."""
        if self.poll() is None:
            os.waitpid(self.pid, 0)
            self._code.append(0)
