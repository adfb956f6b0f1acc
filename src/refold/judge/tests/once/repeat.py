"""repeat: races. Runs may differ only within the error rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.truth.copies import digest
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status


def run(session: Session) -> Iterator[Failure]:
    """Twenty runs on one input; every distinct output must pass by itself."""
    inputs = session.inputs()
    truth = session.truth(inputs)
    if truth.eager is None:
        raise Skip("the reference does not take its inputs")
    first: Any = None
    changes = bool(truth.eager.changed)  # what it is given, so that it has to be given it again
    seen: dict[tuple[str, ...], list[Failure]] = {}
    for i in range(20):
        outputs = session.call(inputs, slot="r", put=i == 0 or changes)["outputs"]
        if first is not None and _same_bits(outputs, first):
            continue
        key = tuple(digest(t) for t in tensors(outputs))
        if key not in seen:
            seen[key] = list(session.compared(f"run {i + 1} of 20", outputs, truth))
        first = outputs if first is None else first
    wrong = next((found for found in seen.values() if found), [])
    for failure in wrong:
        # wrong now and right then is a race, whichever came first
        status = failure.status if all(seen.values()) else Status.NONDETERMINISTIC
        yield session.fail(status, failure.case, failure.detail, failure.worst)
    if wrong:
        return
    if len(seen) > 1:
        session.notes.append(
            f"not bitwise repeatable: {len(seen)} different outputs in 20 runs, all within the rule"
        )


def _same_bits(a: Any, b: Any) -> bool:
    pairs = zip(tensors(a), tensors(b), strict=False)
    return len(tensors(a)) == len(tensors(b)) and all(
        x.shape == y.shape and torch.equal(_bits(x), _bits(y.to(x.device))) for x, y in pairs
    )


def _bits(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous().reshape(-1).view(torch.uint8)


TEST = Test(
    "repeat",
    "races, launches that fail now and then",
    "Twenty runs on one input: each passes, and how many differ bitwise is reported.",
    run,
)
