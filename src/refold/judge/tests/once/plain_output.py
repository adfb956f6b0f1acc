"""plain output: real tensors, finished, of the right kind; no lazy objects, no subclasses."""

from __future__ import annotations

from collections.abc import Iterator

from refold.judge.draws.trees import tensors
from refold.judge.tests.base import Skip, Test
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Failure, Status

_PARAMETER = "torch.nn.parameter.Parameter"


def run(session: Session) -> Iterator[Failure]:
    """Exact class, dtype, device, shape, strides of every output."""
    inputs = session.inputs()
    truth = session.truth(inputs)
    if truth.eager is None:
        raise Skip("the reference does not take its inputs")
    reply = session.call(inputs)
    session.cases += 1
    expected = tensors(truth.eager.outputs)
    came = [m for m in reply["meta"] if "shape" in m]
    for other in (m for m in reply["meta"] if "shape" not in m):
        if other["class"].split(".")[0] not in {"builtins"}:
            yield session.fail(
                Status.CHEATS, "class", f"expected plain values, came {other['class']}"
            )
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
        # Strides of axes of one element mean nothing.
        live = [j for j, s in enumerate(tensor.shape) if s > 1]
        for key, value in wanted.items():
            if meta[key] != value:
                yield session.fail(
                    Status.WRONG_CONTRACT, key, f"output {i}: expected {value}, came {meta[key]}"
                )
        if (
            meta["shape"] == wanted["shape"]
            and tensor.numel()
            and [meta["stride"][j] for j in live] != [stride[j] for j in live]
        ):
            yield session.fail(
                Status.WRONG_CONTRACT,
                "strides",
                f"output {i}: expected strides {list(stride)}, came {meta['stride']}",
            )


TEST = Test(
    "plain output",
    "lazy tensors, subclasses that answer the comparison, other dtypes or strides",
    "Every output is exactly a torch.Tensor of eager's dtype, device, shape and strides.",
    run,
)
