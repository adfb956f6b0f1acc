"""aliasing: an output that a later call overwrites, or that is one of the inputs or parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from refold.judge import draws
from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test, others
from refold.judge.truth.copies import duplicate
from refold.judge.truth.truth import Truth
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status

_KEPT_BYTES = 256 << 20


def run(session: Session) -> Iterator[Failure]:
    """Keep y1, call on other inputs, look at y1 again: after two calls, and after many more whose
    outputs are kept too, so that an honest allocator has no memory to give again."""
    first, second = session.inputs(0), session.inputs(1)
    truth = session.truth(first)
    if truth.eager is None:
        raise Skip("the reference does not take its inputs")
    session.call(first, keep="y1", slot="x1")
    session.call(second, slot="x2", keep="y2")
    session.call(session.inputs(2), slot="x3", keep="y3")
    again = session.worker().request("fetch", keep="y1")
    yield from session.compared("y1 after two more calls", again, truth, Status.MUTATES)
    many = max(2, min(16 if session.quick else 80, _KEPT_BYTES // max(_bytes(truth), 1)))
    session.worker().request("calls", slot="x2", count=many, keep="more")
    again = session.worker().request("fetch", keep="y1")
    yield from session.compared(f"y1 after {many + 2} calls", again, truth, Status.MUTATES)
    session.call(first, keep="v1", slot="x1")
    session.worker().request("views", keep="v1")
    session.worker().request("calls", slot="x2", count=3, keep="more")
    again = session.worker().request("fetch", keep="v1")
    case = "a view of an output that is gone"
    yield from session.compared(case, again, truth, Status.MUTATES)
    if not truth.eager.changed:
        # An output that is a view of the input changes with it.
        host = session.worker()
        host.request("write", slot="x1", inputs=others(session))
        after = host.request("fetch", keep="y1")
        if not _reference_aliases(session, first):
            found = session.compared("y1 after x1 was overwritten", after, truth, Status.MUTATES)
            yield from found
    yield from _overwritten(session, first)
    session.worker().request("drop")
    yield from _elsewhere(session)
    one = draws.twice(first)
    if one and not truth.eager.changed:
        yield from session.check("one tensor for several inputs", one, shared=True)
        for case, some in draws.pairs(first):
            yield from session.check(case, some, shared=True)


def _elsewhere(session: Session) -> Iterator[Failure]:
    """In the other mode, and of one sample: paths of their own have buffers of their own."""
    pair, own = (session.inputs(0), session.inputs(1)), session.oracle.training
    alone = _first_sample(pair[0]), _first_sample(pair[1])
    for case, (first, second), mode in (
        (f"in {'eval' if own else 'train'} mode", pair, not own),
        ("of one sample", alone, own),
        (f"of one sample in {'eval' if own else 'train'} mode", alone, not own),
    ):
        truth = session.truth(first, training=mode)
        if truth.eager is None or session.truth(second, training=mode).eager is None:
            continue
        session.call(first, training=mode, keep="y5", slot="x6")
        session.call(second, training=mode, keep="y6", slot="x7")
        again = session.worker().request("fetch", keep="y5")
        case = f"y1 after another call {case}"
        yield from session.compared(case, again, truth, Status.MUTATES)
    session.worker().request("drop")


def _first_sample(inputs: list[object]) -> list[object]:
    held = tensors(inputs)
    batch = held[0].shape[0] if held and held[0].dim() else 0
    found: list[object] = draws.every(
        inputs, lambda t: t[:1].clone() if t.dim() and t.shape[0] == batch else t
    )
    return found


def _overwritten(session: Session, inputs: list[object]) -> Iterator[Failure]:
    """What the caller writes into an output changes no other output, and nothing of later calls."""
    groups = _reference_groups(session, inputs)
    if groups is None:
        return
    session.call(inputs, slot="x4", keep="y4")
    for i, j in session.worker().request("spoil", keep="y4"):
        if groups[i] != groups[j]:
            detail = f"to write into output {i} changed output {j}"
            yield session.fail(Status.MUTATES, f"output {i}", detail)
    case = "after the caller wrote into its outputs"
    yield from session.check(case, inputs, Status.MUTATES, slot="x5")
    session.entered("")  # whatever was written: the state is loaded again


def _reference_groups(session: Session, inputs: list[object]) -> list[int] | None:
    """Of each of the reference's outputs, whose memory it is; None where that outlives the call."""
    model = session.oracle.model
    given = [duplicate(inputs, session.device) for _ in range(2)]
    with torch.no_grad(), session.oracle.kept():
        outputs = [tensors(model(*one)) for one in given]
    held = (*model.parameters(), *model.buffers(), *tensors(given), *outputs[1])
    mine = [t.untyped_storage().data_ptr() for t in outputs[0]]
    lasting = {t.untyped_storage().data_ptr() for t in held if t.numel()}
    return None if lasting & set(mine) else mine


def _bytes(truth: Truth) -> int:
    assert truth.eager is not None
    return sum(t.numel() * t.element_size() for t in tensors(truth.eager.outputs))


def _reference_aliases(session: Session, first: list[object]) -> bool:
    """Whether the reference's own output shares memory with its input."""
    model = session.oracle.model
    given = duplicate(first, session.device)
    with torch.no_grad(), session.oracle.kept():
        outputs = model(*given)
    inside = {t.untyped_storage().data_ptr() for t in tensors(given)}
    return any(t.untyped_storage().data_ptr() in inside for t in tensors(outputs))


TEST = Test(
    "aliasing",
    "one persistent output buffer, outputs that are views of inputs or of one another",
    "An output keeps its values when the module is called again, of one sample and in either mode, "
    "too, and is the caller's to write; one tensor may be several inputs, or two of three.",
    run,
)
