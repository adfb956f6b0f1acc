"""Typed verdicts: what was decided, by which test, on which inputs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class Status(enum.Enum):
    ACCEPTED = "accepted"
    WRONG_NUMERICS = "the values are further from float64 than eager's by more than the rule allows"
    WRONG_CONTRACT = "parameters, shapes, dtypes or structure differ"
    STALE_WEIGHTS = "an update of the weights was not followed"
    MUTATES = "inputs or parameters were written"
    NONDETERMINISTIC = "the same call gave different bits"
    WRONG_MODE = "train or eval mode, or the running statistics, differ"
    CRASHED = "the candidate raised or its process died"
    TIMED_OUT = "the candidate did not answer in time"
    CHEATS = "the candidate tampers with what it is judged by"
    INCONCLUSIVE = "the task itself has no power to tell right from wrong"


@dataclass(frozen=True)
class Outcome:
    """One test's outcome.

    ratio: the largest error of the candidate as a multiple of what the rule allows (1 = the limit).
    where: the worst element or the difference, in words. seed: reproduces the inputs.
    """

    test: str
    status: Status
    detail: str = ""
    ratio: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Errors:
    """norm(out - oracle) / norm(oracle) against float64, on the file's own inputs."""

    candidate: float
    eager: float


@dataclass(frozen=True)
class Verdict:
    """The whole judgement; accepted if every test is."""

    status: Status
    outcomes: tuple[Outcome, ...]
    errors: Mapping[str, Errors]
    assumes: str | None = None
    inference_only: bool = False
    seconds: float = 0.0

    @property
    def accepted(self) -> bool:
        return self.status is Status.ACCEPTED

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.status is not Status.ACCEPTED)

    def summary(self) -> str:
        """The verdict in one line."""
        if self.accepted:
            return f"accepted by {len(self.outcomes)} tests"
        first = self.failures[0]
        return f"{self.status.name} by {first.test}: {first.detail}"

    def errors_table(self) -> dict[str, dict[str, float]]:
        return {mode: asdict(e) for mode, e in self.errors.items()}

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON form; see docs/judge.md."""
        return {
            "status": self.status.name,
            "accepted": self.accepted,
            "assumes": self.assumes,
            "inference_only": self.inference_only,
            "seconds": self.seconds,
            "errors": self.errors_table(),
            "tests": [asdict(o) | {"status": o.status.name} for o in self.outcomes],
        }
