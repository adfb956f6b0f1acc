"""What a call shows beside the values of its outputs: what it wrote, classes, strides, switches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from refold.judge.draws.layouts import CHANNELS_LAST
from refold.judge.draws.trees import tensors
from refold.judge.truth.truth import Truth
from refold.judge.verdict.verdict import Failure, Status

if TYPE_CHECKING:
    from refold.judge.verdict.session import Session

PARAMETER, PLAIN = "torch.nn.parameter.Parameter", "torch.Tensor"
OWN = {"memory of inputs", "memory of the module"}  # who writes to such an output writes there
STRIDED = "outputs lie otherwise in memory than the reference's: a view that merges axes may raise"
FORMATTED = "outputs of images in channels last lie otherwise in memory than the reference's"
_DENSE = ("shapes", "modes")  # tests whose inputs lie as the file's do


def seen(session: Session, case: str, reply: dict[str, Any], truth: Truth) -> Iterator[Failure]:
    """Whatever test asks for a call: it changes the inputs that eager changes, and gives plain
    tensors in memory of their own, where eager's have that; of plain inputs they are contiguous
    where eager's are."""
    assert truth.plain is not None
    for index in sorted(set(reply["changed"]) - set(truth.plain.changed)):
        detail = f"the call changed its input {index}"
        yield session.fail(session.named(Status.MUTATES), case, detail)
    for what in sorted(set(reply["shared"]) - set(truth.plain.shared)):
        yield session.fail(session.named(Status.MUTATES), case, f"the output has {what}")
    for what in sorted(OWN & set(truth.plain.shared) - set(reply["shared"])):
        session.assumptions.add(f"outputs do not lie in {what} where the reference's do")
    came, theirs = [m for m in reply["meta"] if "shape" in m], tensors(truth.plain.outputs)
    if len(came) != len(theirs) or len(theirs) != len(truth.plain.meta):
        return  # another structure, which is told elsewhere
    for i, (meta, tensor, kind) in enumerate(zip(came, theirs, truth.plain.meta, strict=True)):
        wanted = PARAMETER if kind.parameter else PLAIN
        if meta["class"] not in {PLAIN, wanted}:
            detail = f"output {i}: expected {wanted}, came {meta['class']}"
            own = meta["class"].startswith("torch.")
            yield session.fail(Status.WRONG_CONTRACT if own else Status.CHEATS, case, detail)
        strided = session.test in _DENSE and meta["shape"] == list(tensor.shape)
        if (
            strided
            and dense(meta["shape"], kind.stride)
            and not dense(meta["shape"], meta["stride"])
            and not lies_otherwise(session)
        ):
            detail = f"output {i}: expected strides {list(kind.stride)}, came {meta['stride']}"
            yield session.fail(Status.WRONG_CONTRACT, case, detail)
        last = session.test == "layout" and case.startswith(CHANNELS_LAST)
        laid = last and unlike(meta["shape"], meta["stride"], kind.stride)
        if laid and not lies_otherwise(session):
            session.assumptions.add(FORMATTED)


def lies_otherwise(session: Session) -> bool:
    """Whether outputs on the usual inputs have other strides than eager's, which is told. Who lays
    them alike there does so in every other call, too: nobody looks for a change."""
    if session.strided is None:
        inputs = session.inputs()
        truth = session.truth(inputs)
        assert truth.eager is not None
        came = [m for m in session.call(inputs, slot="laid")["meta"] if "shape" in m]
        pairs = list(zip(came, truth.eager.meta, strict=False))
        session.strided = any(unlike(m["shape"], m["stride"], kind.stride) for m, kind in pairs)
    if session.strided:
        session.assumptions.add(STRIDED)
    return session.strided


def unlike(shape: Any, strides: Any, others: Any) -> bool:
    """Whether two layouts of this shape differ. Strides of axes of one element mean nothing."""
    if 0 in shape or len(strides) != len(others):
        return False
    return any(s > 1 and a != b for s, a, b in zip(shape, strides, others, strict=True))


def dense(shape: Any, strides: Any) -> bool:
    """Whether a tensor of this shape is contiguous."""
    if 0 in shape:
        return True
    step = 1
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


def switches(session: Session, reply: dict[str, Any]) -> None:
    """Take down switches that a call left changed, whatever test asked for it."""
    if session.test == "flags" or session.request.in_memory:
        return
    for text in reply["flags"]:
        case = f"a call of {session.test}"
        one = Failure("flags", Status.MUTATES, case, f"left changed: {text}", session.seed)
        if not any(f.test == one.test and f.detail == one.detail for f in session.found):
            session.found.append(one)
