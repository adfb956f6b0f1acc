"""plain output: real tensors, finished, of the right kind; no lazy objects, no subclasses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict import facts
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status
from refold.judge.worker.leaves import leaves

_PARAMETER = "torch.nn.parameter.Parameter"


def run(session: Session) -> Iterator[Failure]:
    """Exact class, dtype, device, shape of every output; other strides are told."""
    inputs = session.inputs()
    truth = session.truth(inputs)
    if truth.eager is None:
        raise Skip("the reference does not take its inputs")
    reply = session.call(inputs)
    session.cases += 1
    expected = tensors(truth.eager.outputs)
    came = [m for m in reply["meta"] if "shape" in m]
    yield from _beside(session, truth.eager.outputs, reply)
    if _keys(truth.eager.outputs) != _keys(reply["outputs"]):
        detail = f"expected the names {_keys(truth.eager.outputs)}, came {_keys(reply['outputs'])}"
        yield session.fail(Status.WRONG_CONTRACT, "names of the output", detail)
    if len(came) != len(expected):
        yield session.fail(
            Status.WRONG_CONTRACT,
            "structure",
            f"expected {len(expected)} tensors, came {len(came)}",
        )
        return
    for i, (meta, tensor, kind) in enumerate(zip(came, expected, truth.eager.meta, strict=True)):
        stride = kind.stride
        wanted_class = _PARAMETER if kind.parameter else "torch.Tensor"
        if meta["class"] not in {"torch.Tensor", wanted_class}:
            yield session.fail(
                Status.CHEATS,
                "class",
                f"output {i}: expected {wanted_class}, came {meta['class']}",
            )
            continue
        if meta["inference"]:
            yield session.fail(
                Status.WRONG_CONTRACT,
                "inference tensor",
                f"output {i} was made under torch.inference_mode: autograd refuses it later",
            )
        wanted = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "device": session.device.type,
            "shape": list(tensor.shape),
        }
        for key, value in wanted.items():
            if meta[key] != value:
                yield session.fail(
                    Status.WRONG_CONTRACT, key, f"output {i}: expected {value}, came {meta[key]}"
                )
        alike = meta["shape"] == wanted["shape"]
        if alike and facts.unlike(meta["shape"], meta["stride"], stride):
            facts.lies_otherwise(session)


def _beside(session: Session, eager: Any, reply: dict[str, Any]) -> Iterator[Failure]:
    """What is no tensor has eager's value; an object in a tensor's place is a lazy one."""
    theirs, mine = leaves(eager), leaves(reply["outputs"])
    if not len(theirs) == len(mine) == len(reply["meta"]):
        return  # another structure, which is told elsewhere
    for i, (value, got, meta) in enumerate(zip(theirs, mine, reply["meta"], strict=True)):
        own = "shape" not in meta and meta["class"].split(".")[0] != "builtins"
        if isinstance(value, torch.Tensor):
            if own:
                detail = f"output {i}: expected a torch.Tensor, came {meta['class']}"
                yield session.fail(Status.CHEATS, "class", detail)
        elif isinstance(got, torch.Tensor) or not _equal(value, got):
            shown = f"a {meta['class']}" if isinstance(got, torch.Tensor) else repr(got)
            detail = f"output {i}: expected {value!r}, came {shown}"
            yield session.fail(Status.WRONG_CONTRACT, "value", detail)


def _keys(tree: Any) -> list[str]:
    """The names in the dicts of an output, in their order."""
    if isinstance(tree, dict):
        return [k for key, v in tree.items() for k in (str(key), *_keys(v))]
    return [k for v in tree for k in _keys(v)] if isinstance(tree, list | tuple) else []


def _equal(value: Any, got: Any) -> bool:
    """Numbers that are rounded are held to the error rule elsewhere."""
    if isinstance(value, float | complex):
        return isinstance(got, float | complex)
    return type(value) is type(got) and bool(value == got)


TEST = Test(
    "plain output",
    "lazy tensors, subclasses that answer the comparison, other dtypes",
    "Every output is exactly a torch.Tensor of eager's dtype, device and shape; that its strides "
    "are others is told.",
    run,
)
