"""What is known of a model that a soak draws programs for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from torch import nn

from refold.runtime.folds import _REFOLD_WHOLE

LARGE = _REFOLD_WHOLE  # bytes: an uncounted write to part of a larger tensor is found later


@dataclass(frozen=True)
class Facts:
    """What programs are drawn for."""

    tensors: tuple[str, ...]  # floating parameters and buffers
    parameters: tuple[str, ...]
    small: tuple[str, ...]  # floating parameters that are compared whole
    state: tuple[str, ...]
    parts: tuple[str, ...]
    numbers: tuple[tuple[str, str, Any], ...]
    words: tuple[str, ...]
    items: tuple[tuple[str, str, str, Any], ...] = ()  # of dicts that parts hold
    patched: tuple[str, ...] = ()  # parts whose classes are the model's own
    names: tuple[tuple[str, str, Any], ...] = ()  # of the file, with other values
    dtype: str = "float32"
    writes: bool = False  # buffers in eval mode: then calls of several threads race

    @staticmethod
    def of(module: nn.Module) -> Facts:
        parameters = [(n, p) for n, p in module.named_parameters() if p.is_floating_point()]
        buffers = [n for n, b in module.named_buffers() if b.is_floating_point()]
        numbers = []
        for path, part in module.named_modules():
            for name, value in vars(part).items():
                if name.startswith("_") or name == "training":
                    continue
                if isinstance(value, bool):
                    numbers.append((path, name, not value))
                elif isinstance(value, float) and value:
                    numbers.append((path, name, min(1.5 * value, (1 + value) / 2)))
                    numbers.append((path, name, value * 1000 if abs(value) < 1e-3 else 0.25))
                elif isinstance(value, float):
                    numbers.append((path, name, 0.25))
            if getattr(part, "momentum", None) is not None:
                numbers.append((path, "momentum", None))
        items, patched = [], []
        for path, part in module.named_modules():
            for name, value in vars(part).items():
                if type(value) is dict and not name.startswith("_"):
                    items += [(path, name, k, _other(v)) for k, v in value.items()]
            if not type(part).__module__.startswith("torch."):
                patched.append(path)
        space = type(module).forward.__globals__
        names = [(k, "", _other(v)) for k, v in space.items() if k.isupper() and type(v) is float]
        tables = [(k, v) for k, v in space.items() if k.isupper() and type(v) is dict]
        names += [(k, key, _other(v)) for k, table in tables for key, v in table.items()]
        given = inspect.signature(type(module).forward).parameters.values()
        return Facts(
            (*(n for n, _ in parameters), *buffers),
            tuple(n for n, _ in parameters),
            tuple(n for n, p in parameters if p.numel() * p.element_size() <= LARGE),
            (*dict(module.named_parameters()), *dict(module.named_buffers())),
            tuple(path for path, _ in module.named_modules()),
            tuple(numbers),
            tuple(p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD)[1:],
            tuple(items),
            tuple(patched),
            tuple(names),
            str(parameters[0][1].dtype).removeprefix("torch.") if parameters else "float32",
        )


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value * 2 if isinstance(value, int | float) else value


def subset(names: Sequence[str]) -> st.SearchStrategy[list[str]]:
    return st.one_of(
        st.sampled_from(names).map(lambda n: [n]),
        st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True),
        st.just(list(names)),
    )
