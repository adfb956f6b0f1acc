"""What the judge answers: typed, immutable, and the same as stable JSON (docs/judge.md)."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


class Status(str, enum.Enum):
    """The judgement, or of one finding what it amounts to. Earlier members outrank later ones."""

    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED_OUT"
    CHEATS = "CHEATS"
    WRONG_CONTRACT = "WRONG_CONTRACT"
    STALE_WEIGHTS = "STALE_WEIGHTS"
    MUTATES = "MUTATES"
    WRONG_MODE = "WRONG_MODE"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    WRONG_NUMERICS = "WRONG_NUMERICS"
    INCONCLUSIVE = "INCONCLUSIVE"
    ACCEPTED = "ACCEPTED"


class Speed(str, enum.Enum):
    """How the candidate's time compares with eager's, by the interval of the paired ratio.

    INCONCLUSIVE: times on this machine, at this moment, or of this candidate cannot be believed.
    """

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Worst:
    """The element that misses its bar by the largest factor."""

    output: str
    index: tuple[int, ...]
    got: float
    eager: float
    exact: float
    bar: float


@dataclass(frozen=True)
class ErrorStats:
    """Errors against the float64 oracle, for one output of one case.

    ``ratio`` is the candidate's RMSE over eager's (the floor added to both), ``histogram`` counts
    of log2(|error| / row scale) for candidate and eager, from 2^-40 to 2^8 in steps of two.
    """

    case: str
    output: str
    rmse: float
    rmse_eager: float
    max: float
    max_eager: float
    ratio: float
    histogram: tuple[int, ...] = ()
    histogram_eager: tuple[int, ...] = ()


@dataclass(frozen=True)
class Failure:
    """One disagreement: which test, on which input, and how to see it again."""

    test: str
    status: Status
    case: str
    detail: str
    seed: int
    worst: Worst | None = None


@dataclass(frozen=True)
class TestReport:
    """One test's outcome: ``passed``, ``failed`` or ``skipped`` (with the reason in ``note``)."""

    name: str
    catches: str
    outcome: str
    seconds: float
    cases: int
    note: str = ""

    __test__ = False


@dataclass(frozen=True)
class Quartiles:
    """Seconds per call: median, lower and upper quartile, number of samples."""

    median: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class Timing:
    """Candidate beside eager, alternating in one run. Ratios are eager's time over the candidate's.

    ``ratio`` with its interval is the headline, of ``sealed`` calls or of ``warm`` laps; both are
    here with their intervals. ``control``: the interval of eager against eager. ``clock``: the
    parent's time over the worker's own claim, at the candidate.
    """

    speed: Speed
    ratio: float
    ratio_low: float
    ratio_high: float
    eager: Quartiles
    candidate: Quartiles
    eager_cold: Quartiles | None
    candidate_cold: Quartiles | None
    clock: float
    roofline_seconds: float
    compiled: dict[str, Quartiles] = field(default_factory=dict)
    compiled_notes: dict[str, str] = field(default_factory=dict)
    first_call_seconds: float = 0.0
    break_even_calls: float = math.nan
    samples_eager: tuple[float, ...] = ()
    samples_candidate: tuple[float, ...] = ()
    note: str = ""
    headline: str = "warm"
    warm: tuple[float, float, float] = (math.nan, 0.0, math.inf)
    sealed: tuple[float, float, float] = (math.nan, 0.0, math.inf)
    control: tuple[float, float] = (1.0, 1.0)
    rounds: int = 0


@dataclass(frozen=True)
class Task:
    """What the reference is: ``ordinary``; ``foldable`` (affine in its input through several
    operations); ``degenerate`` (independent of its input, or with reductions over one element).
    Only the first may be counted among the rest; see `task_kinds`."""

    kind: str = "ordinary"
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The whole judgement."""

    status: Status
    reference: str
    candidate: str
    device: str
    seed: int
    quick: bool
    sets: dict[str, Any]
    tests: tuple[TestReport, ...]
    failures: tuple[Failure, ...]
    errors: tuple[ErrorStats, ...]
    timing: Timing | None
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    environment: dict[str, Any]
    seconds: float
    secret: int = 0
    task: Task = Task()
    hints: tuple[str, ...] = ()  # of the candidate's text: for a reader, never a reason

    @property
    def accepted(self) -> bool:
        """No disagreement found under the named tests."""
        return self.status is Status.ACCEPTED

    @property
    def speed(self) -> Speed | None:
        """How fast, apart from whether it is right; None if nothing was timed."""
        return None if self.timing is None else self.timing.speed

    @property
    def summary(self) -> str:
        """One line."""
        head = self.status.value
        if self.failures:
            first = self.failures[0]
            head += f" by {first.test} ({first.case}): {first.detail}"
            return head
        if self.status is Status.INCONCLUSIVE:
            why = "; ".join(self.task.reasons) or "a trivial answer would pass"
            head += f": no input tells right from wrong ({why})"
        if self.timing is not None:
            t = self.timing
            head += f", {t.speed.value} {t.ratio:.2f}x [{t.ratio_low:.2f}, {t.ratio_high:.2f}]"
        return head

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON; non-finite numbers become strings ("nan", "inf", "-inf")."""
        body: dict[str, Any] = _plain(self)
        speed = None if self.speed is None else self.speed.value
        return {"schema": SCHEMA, "accepted": self.accepted, "speed": speed, **body}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if value is None or isinstance(value, str | int):
        return value
    return str(value)


def headline(failures: tuple[Failure, ...], powered: bool) -> Status:
    """The status of a judgement with these failures; ``powered``: some case could have failed."""
    if failures:
        order = list(Status)
        return min((f.status for f in failures), key=order.index)
    return Status.ACCEPTED if powered else Status.INCONCLUSIVE
