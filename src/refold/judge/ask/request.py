"""What is asked of the judge: the question (`Request`) and the effort (`How`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from refold.contract import ContractError, Sets
from refold.judge.tests.registry import names
from refold.judge.wire.host import Limits

_QUICK_SECONDS, _SECONDS = 8.0, 90.0
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """Two files, and everything that the verdict depends on.

    sets: overrides of module-level constants, applied to the reference and, where it has them, to
    the candidate. small: sizes for the tests of many calls, where one call at ``sets`` takes more
    than a quarter second. device: ``cpu`` or ``cuda``; by default CUDA where there is one. seed:
    reproduces everything drawn. secret: seed of what no candidate may foresee (some inputs, the
    sampled timed calls); the system draws it unless given. only: names of the tests to run.
    finite_only: accept differences on NaN and infinite inputs; by default as the candidate
    declares by a module-level ``REFOLD_ASSUMES = "finite"``. inputs: a file that ``torch.save``
    wrote, a list of lists of arguments as they were recorded. sandbox: the kernel keeps the
    candidate's workers to a folder of their own, as far as it can. in_memory: two modules, no
    files.
    """

    reference: Path
    candidate: Path
    sets: Sets = ()
    small: Sets | None = None
    device: str | None = None
    seed: int = 0
    secret: int | None = None
    only: tuple[str, ...] | None = None
    finite_only: bool | None = None
    inputs: Path | None = None
    sandbox: bool = False
    in_memory: bool = False

    def __post_init__(self) -> None:
        if not self.in_memory and not self.candidate.is_file():
            raise ContractError(
                f"{self.candidate}: expected a candidate file, came none; check the path"
            )
        unknown = [n for n in self.only or () if n not in names()]
        if unknown:
            raise ContractError(
                f"expected the name of a test, came {unknown[0]!r}; tests: {', '.join(names())}"
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ContractError(
                f"expected a CUDA device for device={self.device!r}, came none; use cpu"
            )

    @property
    def place(self) -> torch.device:
        """The device to judge on."""
        return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def chosen(self) -> list[str]:
        """Names of the tests that are asked for."""
        return names() if self.only is None else list(self.only)


@dataclass(frozen=True)
class How:
    """The effort: ``quick`` is the documented subset, with a short timing without torch.compile;
    ``full`` has no budget: nothing is left out because it takes long.

    timing: whether to measure at all. compile_baseline: time torch.compile as well (never if
    ``quick``). limits: of the workers. progress: called with a word before each step.
    """

    quick: bool = False
    full: bool = False
    timing: bool = True
    compile_baseline: bool = True
    limits: Limits = field(default_factory=Limits)
    progress: Progress | None = None

    @property
    def budget(self) -> float:
        """Seconds for the tests that state their cost; those for which nothing is left of it are
        left out, and the verdict says so."""
        return math.inf if self.full else _QUICK_SECONDS if self.quick else _SECONDS

    def say(self, word: str) -> None:
        """Tell the caller what comes next."""
        if self.progress is not None:
            self.progress(word)


def asked(
    ref_path: str | Path,
    cand_path: str | Path,
    *,
    only: str | Sequence[str] | None = None,
    semantic_sets: Sets | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> tuple[Request, How]:
    """The records of a call ``judge(ref_path, cand_path, **options)``.

    Raises:
        ContractError: no such file, test or device.
        TypeError: no such option.
    """
    named = (only,) if isinstance(only, str) else only if only is None else tuple(only)
    effort = {k: options.pop(k) for k in list(options) if k in How.__dataclass_fields__}
    how = How(limits=limits or Limits(), **effort)
    paths = (Path(ref_path), Path(cand_path))
    if options.get("inputs") is not None:
        options["inputs"] = Path(options["inputs"])
    return Request(*paths, only=named, small=semantic_sets, **options), how
