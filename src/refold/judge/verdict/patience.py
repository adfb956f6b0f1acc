"""How long a reference may take before anything is known of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from refold.contract import ContractError


class _Hung(BaseException):
    """Past every handler of the reference's own errors."""


@contextlib.contextmanager
def within(seconds: float, reference: Path) -> Iterator[None]:
    """Import and first calls of a reference, which runs in this process.

    Only the main thread can be interrupted, and only Python's code; elsewhere there is no limit.

    Raises:
        ContractError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Hung

    before = signal.signal(signal.SIGALRM, interrupt)
    left, every = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Hung:
        raise ContractError(
            f"{reference}: expected a reference that imports and runs, came no answer within "
            f"{seconds:.0f} s; fix the reference, or give smaller sizes"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, every)
        signal.signal(signal.SIGALRM, before)
