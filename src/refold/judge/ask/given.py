"""Two modules in memory as what two files are to the judge."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from refold.contract import ContractError, seed_everything
from refold.judge.draws.trees import every

_FIRST = 1000  # the seed of the first draw, less that of the judgement: the arguments as given


@dataclass(frozen=True)
class Given:
    """A module with the arguments of one call; it answers as `refold.contract.Reference` does."""

    module: nn.Module
    arguments: Sequence[Any]
    seed: int
    class_name: str = ""
    sets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """What stands for the file in messages."""
        return Path(f"<{type(self.module).__name__}>")

    def init_inputs(self, seed: int = 0) -> list[Any]:
        """The constructor is not asked."""
        return []

    def make(self, seed: int = 0, init: Sequence[Any] | None = None) -> nn.Module:
        """A copy of the module."""
        seed_everything(seed)
        return duplicate(self.module)

    def inputs(self, seed: int = 0) -> list[Any]:
        """The arguments; under other seeds their samples in another order, moved by a quarter of
        their spread."""
        if seed == self.seed + _FIRST:
            return [every(v, lambda t: t.detach().clone()) for v in self.arguments]
        generator = torch.Generator().manual_seed(seed)

        def drawn(t: torch.Tensor) -> torch.Tensor:
            t = t.detach().cpu()
            if t.dim() and t.shape[0] > 1:
                t = t[torch.randperm(t.shape[0], generator=generator)]
            if not t.is_floating_point() or not t.numel():
                return t
            spread = float(t.double().std()) if t.numel() > 1 else 1.0
            noise = torch.randn(t.shape, generator=generator) * (spread / 4)
            return (t + noise).to(t.dtype)

        return [every(v, drawn) for v in self.arguments]


def positional(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments of a call by position.

    Raises:
        ContractError: forward does not take them, or takes one by keyword alone.
    """
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise ContractError(
            f"expected arguments that {type(module).__name__}.forward takes, came others: {error}"
        ) from error
    if bound.kwargs:
        raise ContractError(
            f"expected arguments that can be given by position, came {sorted(bound.kwargs)} by "
            "keyword alone; wrap the module in one whose forward takes them by position"
        )
    return list(bound.args)


def duplicate(module: nn.Module) -> nn.Module:
    """A deep copy; of a compiled module one whose copy is compiled under the same names."""
    inner = getattr(module, "_orig_mod", None)
    if not isinstance(inner, nn.Module):
        return copy.deepcopy(module)
    made = copy.deepcopy(inner)
    context: Any = module.dynamo_ctx
    made._compiled_call_impl = context(made._call_impl)
    return made
