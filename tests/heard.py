"""What is logged during a test that asks for it, in the place of pytest's own `caplog`.

pytest's listens in every step of every test, which takes longer than a small test does: `make test`
runs without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


class Heard(logging.Handler):
    """The records that reach the root logger, and levels that are put back behind the test."""

    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []
        self._levels = ExitStack()

    def emit(self, record: logging.LogRecord) -> None:
        record.message = record.getMessage()  # as a formatter leaves it
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [r.message for r in self.records]

    @property
    def text(self) -> str:
        return "".join(f"{m}\n" for m in self.messages)

    def clear(self) -> None:
        self.records = []

    @contextmanager
    def at_level(self, level: int | str, logger: str | None = None) -> Iterator[None]:
        """Inside, a logger lets records of that level and above through."""
        asked = logging.getLogger(logger)
        before = asked.level
        asked.setLevel(level)
        try:
            yield
        finally:
            asked.setLevel(before)

    def set_level(self, level: int | str, logger: str | None = None) -> None:
        """The same until the test ends."""
        self._levels.enter_context(self.at_level(level, logger))

    @contextmanager
    def listening(self) -> Iterator[Heard]:
        root = logging.getLogger()
        root.addHandler(self)
        try:
            with self._levels:
                yield self
        finally:
            root.removeHandler(self)
