"""recorded inputs: calls that were saved by the user, each under two states."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from refold.contract import ContractError
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL
from refold.judge.verdict.verdict import Failure

_MOST = 32


def read(path: Path) -> list[list[Any]]:
    """Lists of arguments.

    Raises:
        ContractError: the file holds something else.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)  # tensors and plain values
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ContractError(
            f"{path}: expected a file that torch.save wrote of tensors and plain values, came "
            f"{type(error).__name__}: {said}; save a list of lists of arguments"
        ) from error
    if not isinstance(found, list) or not all(isinstance(one, list | tuple) for one in found):
        raise ContractError(
            f"{path}: expected a list of lists of arguments, came {type(found).__name__}; "
            "save [[x], [x2]]"
        )
    return [list(one) for one in found]


def run(session: Session) -> Iterator[Failure]:
    """Each recorded call, under moved weights and as the constructor leaves them."""
    if session.request.inputs is None:
        raise Skip("no --inputs FILE")
    calls = session.recorded
    for i, given in enumerate(calls[:_MOST]):
        for state in dict.fromkeys((session.base_state, INITIAL)):
            truth = session.truth(given, state)
            if truth.eager is None:
                session.notes.append(f"recorded call {i}: the reference raises, {truth.raised}")
                break
            yield from session.check(f"recorded call {i}, {state} weights", given, state=state)
    if len(calls) > _MOST:
        session.notes.append(f"{len(calls) - _MOST} recorded calls were left out")


TEST = Test(
    "recorded inputs",
    "errors on inputs that programs really have",
    "Calls that were recorded (--inputs FILE) come out as eager's.",
    run,
    frugal=True,
)
