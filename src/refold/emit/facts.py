"""What an emitted file assumes of the modules inside the model, as tables of its runtime."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch

from refold.emit.lines import fitted, literal
from refold.runtime.met import _refold_kinds
from refold.runtime.reach import (
    _refold_plain_globals,
    _refold_reach,
    _RefoldReached,
)
from refold.runtime.settings import _refold_is_plain, _refold_places, _refold_setting
from refold.runtime.structure import _refold_gained, _refold_held, _refold_tied


def facts_lines(
    module: torch.nn.Module,
    assigned: Collection[str] = (),
    varied: Collection[tuple[Any, ...]] = (),
) -> list[str]:
    """The tables `_REFOLD_MODULES`, `_REFOLD_TIED`, `_REFOLD_GLOBALS`, `_REFOLD_OTHERS` (see
    structure.py) and `_REFOLD_VARIED`; of the last four, those that say anything.

    assigned: paths of attributes that forward sets, of which nothing is assumed. varied: places of
    numbers that vary inside what attributes hold (`Example.settings`).
    """
    reached = _refold_reach(_refold_kinds(module))
    lines = [
        "# path, class, names of parameters, buffers and children, settings",
        "_REFOLD_MODULES = (",
    ]
    counted, places = reached.counted, _refold_places(module, varied)
    others: dict[str, tuple[str, ...]] = {}
    for path, m in module.named_modules(remove_duplicate=False):
        kind = type(m).__qualname__ if path else ""
        held = dict(_attributes(m, reached))
        held = {k: v for k, v in held.items() if f"{path}.{k}".strip(".") not in assigned}
        settings = {k: _refold_setting(v, names=counted, places=places) for k, v in held.items()}
        known = {k: s for k, s in sorted(settings.items()) if s is not None or held[k] is None}
        if more := tuple(_refold_gained(m, known.keys(), path, assigned, reached)):
            others[path] = more
        lines += fitted(f"    {literal((path, kind, _refold_held(m), known))},")
    lines.append(")")
    tied, numbers = _refold_tied(module), _refold_plain_globals(reached)
    lines += fitted(f"_REFOLD_TIED = {literal(tied)}") if tied else []
    lines += (
        fitted(f"_REFOLD_VARIED = {literal(tuple(sorted(varied, key=repr)))}") if varied else []
    )
    lines += fitted(f"_REFOLD_OTHERS = {literal(others)}") if others else []
    return lines + (fitted(f"_REFOLD_GLOBALS = {literal(numbers)}") if numbers else [])


def _attributes(m: torch.nn.Module, reached: _RefoldReached) -> Iterator[tuple[str, object]]:
    """What forward may read beside tensors and modules: of PyTorch's own modules what is public,
    of others what forward's code names. Plain values of a class stand for all of its modules that
    have none of their own."""
    usual = vars(torch.nn.Module())
    own = not type(m).__module__.startswith("torch.")
    for cls in reversed(type(m).__mro__):
        if cls.__module__.split(".")[0] not in ("torch", "builtins"):
            numbers = ((k, v) for k, v in vars(cls).items() if k[:2] != "__" and _is_number(v))
            yield from ((k, v) for k, v in numbers if (id(cls), k) in reached.entries)
    bases = (c.__module__ for c in type(m).__mro__ if c.__module__.startswith("torch."))
    followed = all(base.startswith("torch.nn.modules.") for base in bases)
    computed = reached.computed or not followed
    for k, v in vars(m).items():
        read = computed or k in reached.names if own else not k.startswith("_")
        if k not in usual and read and not k.startswith("_refold"):
            yield k, v


def _is_number(v: object) -> bool:
    return isinstance(v, (bool, int, float)) and _refold_is_plain(v)
