"""What of a reference can be sent to a worker, and back."""

from __future__ import annotations

from typing import Any

import torch

from refold.contract import ContractError
from refold.judge.rule import compare
from refold.judge.wire import frames


def check_arguments(path: object, inputs: Any, init: Any) -> None:
    """Raises ContractError where the arguments of a reference are more than tensors and plain
    values. inputs: of its forward. init: of its constructor."""
    for name, given in (("get_inputs", inputs), ("get_init_inputs", init)):
        odd = frames.unknown(given) or frames.named_tuple(given)
        if odd:
            raise ContractError(
                f"{path}: expected {name}() to give tensors and plain values, came {odd}; the judge"
                " can send no other to a worker"
            )


def check_results(path: object, outputs: Any) -> None:
    """Raises ContractError where the results of forward are more, or nothing to compare."""
    odd = frames.unknown(outputs)
    if odd or not any(isinstance(v, torch.Tensor | int) for _, v in compare.leaves(outputs)):
        raise ContractError(
            f"{path}: expected forward to return tensors and plain values, came "
            f"{odd or type(outputs).__name__}; there is nothing else that the judge can compare"
        )
