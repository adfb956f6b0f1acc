"""contract: the same parameters and buffers by name, loadable strictly, every one of them used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from refold.judge.draws.trees import inexact
from refold.judge.tests.base import Test
from refold.judge.truth import runs
from refold.judge.verdict.session import Session
from refold.judge.verdict.truths import INITIAL, PERTURBED
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.wire.host import Raised
from refold.judge.worker.leaves import parameters, shape, tied

_DRAWN = 16 << 20  # bytes of a state that is compared as the constructor leaves it
_CLOSE = 1e-3  # of a tensor's size: another order of a decomposition does not make other weights


def run(session: Session) -> Iterator[Failure]:
    """Names, then a perturbed state loaded before any call."""
    yield from names(session)
    if session.frugal:
        return
    _drawn(session)
    inputs = session.inputs()
    truth = session.truth(inputs, PERTURBED)
    if truth.eager is None:
        return
    try:
        reply = session.call(inputs, PERTURBED)
    except Raised as error:
        session.cases += 1
        kind = Status.WRONG_CONTRACT if "state_dict" in str(error) else Status.CRASHED
        yield session.fail(kind, "perturbed state", f"raised {error}")
        return
    yield from stale_or_wrong(session, "perturbed state", reply["outputs"], inputs, PERTURBED)
    before = session.info
    session.info = {**before, **session.worker().request("describe")}
    found = list(names(session))
    if session.info.get("state") != before.get("state"):
        yield from (replace(f, case=f"{f.case} after a call") for f in found)
    session.info = before


def _drawn(session: Session) -> None:
    """Tell where the constructor draws otherwise under one seed: who builds it trains another
    model, and what is built behind it is another one, too."""
    known = "generator" in session.info  # of modules in memory nobody knows how they were built
    if not known or session.oracle.bytes > _DRAWN or not session.pristine:
        return
    came, wanted = session.worker().request("state"), session.state(INITIAL)
    for name, value in wanted.items():
        other = came.get(name)
        if not isinstance(other, torch.Tensor) or other.shape != value.shape or not inexact(value):
            continue
        size = runs.distance(value, torch.zeros_like(value))[0]
        if runs.distance(other, value.cpu())[0] > _CLOSE * size:
            session.assumptions.add("its constructor draws other weights under one seed")
            return
    if session.info["generator"] != session.oracle.generator:
        session.assumptions.add("its constructor draws other random numbers under one seed")


def names(session: Session) -> Iterator[Failure]:
    """Compare the described state with the reference's."""
    session.cases += 1
    described = session.info
    model = session.oracle.model
    wanted: dict[str, dict[str, Any]] = {
        "state": {k: shape(v) for k, v in model.state_dict().items()},
        "parameters": {k: [*shape(v), v.requires_grad] for k, v in parameters(model).items()},
    }
    if described.get("tied") != tied(model):
        detail = f"expected {tied(model)} to be one and the same, came {described.get('tied')}"
        yield session.fail(Status.WRONG_CONTRACT, "tied parameters", detail)
    here = list(described.get("parameters", {}))
    if here != (there := list(wanted["parameters"])) and sorted(here) == sorted(there):
        text = "parameters are declared in another order: an optimizer's saved state is not shared"
        session.assumptions.add(text)
    for kind, expected in wanted.items():
        came = described.get(kind, {})
        missing = sorted(expected.keys() - came.keys())
        extra = sorted(came.keys() - expected.keys())
        if missing or extra:
            yield session.fail(
                Status.WRONG_CONTRACT,
                kind,
                f"missing {missing[:5]}, unexpected {extra[:5]} ({kind} by name)",
            )
        for name in expected.keys() & came.keys():
            if list(came[name]) != expected[name]:
                yield session.fail(
                    Status.WRONG_CONTRACT, name, f"expected {expected[name]}, came {came[name]}"
                )


def stale_or_wrong(
    session: Session, case: str, outputs: Any, inputs: list[Any], state: str, old: str = INITIAL
) -> Iterator[Failure]:
    """Judge outputs under ``state``; what fits the ``old`` state is stale, not merely wrong."""
    truth = session.truth(inputs, state)
    stale = session.truth(inputs, old)
    if truth.eager is None:
        return
    found = list(session.compared(case, outputs, truth))
    if not found:
        return
    is_stale = session.agrees(outputs, stale)
    if not is_stale and stale.eager is not None:
        # Only a part may be stale: then the function is right at the weights it was built with.
        outputs = session.call(inputs, INITIAL)["outputs"]
        is_stale = session.agrees(outputs, session.truth(inputs, INITIAL))
        session.enter(state)
    for failure in found:
        kind = Status.STALE_WEIGHTS if is_stale else failure.status
        yield session.fail(kind, failure.case, failure.detail, failure.worst)


TEST = Test(
    "contract",
    "missing or renamed parameters, order luck, parameters that are not read",
    "The reference's state loads strictly, and every parameter and buffer has its effect.",
    run,
    frugal=True,
)
