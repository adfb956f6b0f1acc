"""Smaller sizes for references that ask for a large device: constants are halved by one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from refold.contract import ContractError, Reference, load

FLOPS = 1e11  # of products and convolutions in a second, on two cores
BYTES = 1e9  # of parameters, inputs and every result in a second, memory being new
LEAST = 8  # no constant is halved below


class _Results(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of every operation's results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.bytes += _bytes(result)
        return result


def _bytes(values: Any) -> int:
    tensors = [v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


@dataclass(frozen=True)
class Shapes:
    """What a file has at given sizes, found without computing anything."""

    parameters: list[tuple[int, ...]]
    inputs: list[tuple[int, ...]]
    seconds: float  # predicted

    def kind(self, halved: Shapes) -> int | None:
        """What a constant that was halved counts: 0 rows, 1 places, 2 features; or nothing."""
        if halved.parameters != self.parameters:
            return 2
        if halved.inputs == self.inputs:
            return None
        return int([s[1:] for s in halved.inputs] != [s[1:] for s in self.inputs])


def shapes(reference: Reference) -> Shapes:
    """Raises what building or running the model on the meta device raises."""
    with torch.device("meta"), torch.no_grad():
        model, inputs = _model(reference), reference.inputs(0)
        with FlopCounterMode(display=False) as products, _Results() as results:
            given = model(*inputs)
    if any(t.numel() == 0 for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)):
        raise ContractError("nothing is left of the result")
    held = list(model.state_dict().values())
    read = results.bytes + _bytes(inputs) + _bytes(held)
    return Shapes(
        [tuple(t.shape) for t in held],
        [tuple(t.shape) for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)],
        products.get_total_flops() / FLOPS + read / BYTES,
    )


def _model(reference: Reference) -> torch.nn.Module:
    """The model on the meta device. One whose constructor asks for values, such as those of
    torch.linspace, is built and then moved."""
    try:
        return reference.make(0)
    except ContractError:
        with torch.device("cpu"):
            return reference.make(0).to("meta")


def sizes(path: Path, seconds: float, sets: Sequence[str] = ()) -> list[str]:
    """NAME=VALUE for each constant that is halved until eager is predicted to take ``seconds``,
    behind `sets`, which stay as they are.

    The largest whole number at the top of the file is halved first; of equals, one that counts
    rows of the inputs, then one that counts places (parameters keep their shapes), then features.
    One is left as it is where halving it changes no shape, or leaves no model that runs.
    """
    reference = load(path, sets)
    given, halved = dict(reference.sets), dict[str, int]()
    fixed = set(given)
    now = shapes(reference)
    while now.seconds > seconds:
        ways: list[tuple[int, int, str, Reference, Shapes]] = []
        large = [
            (value, name)
            for name, value in reference.constants.items()
            if type(value) is int and value >= 2 * LEAST and value % 2 == 0 and name not in fixed
        ]
        for value, name in large:
            if value < max(large)[0]:
                continue
            try:
                less = load(path, {**given, **halved, name: value // 2})
                then = shapes(less)
            except Exception:  # whatever a model raises at sizes that it was not written for
                kind = None
            else:
                kind = now.kind(then)
            if kind is None:
                fixed.add(name)
            else:
                ways.append((kind, len(ways), name, less, then))
        if ways:
            _, _, name, reference, now = min(ways, key=lambda way: way[:2])
            halved.setdefault(name, max(large)[0])
            halved[name] //= 2
        elif not large:
            break
    return [*sets, *(f"{name}={value}" for name, value in halved.items())]
