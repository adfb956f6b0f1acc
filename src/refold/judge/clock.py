"""Fair timing (placeholder until the protocol is in)."""

from __future__ import annotations

from refold.judge.session import Session
from refold.judge.verdict import Failure, TestReport, Timing


def arena() -> int:
    return 0


def measure(
    session: Session, failures: list[Failure], reports: list[TestReport], compiled: bool
) -> Timing | None:
    return None
