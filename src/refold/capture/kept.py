"""What running a module may move, put back afterwards: its modes, attributes and buffers."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def kept(module: torch.nn.Module) -> Iterator[None]:
    """Run the block, then give every module inside `module` its own mode back (one may be frozen in
    eval mode while the others train), its attributes, and every buffer its values.

    Attributes are put back with the lists, dicts and sets that they are; what forward does to
    objects of other classes stays done. A buffer that still has its values is not written: its
    version does not move.
    """
    attributes = [(vars(m), dict(vars(m))) for m in module.modules()]
    contents = [(v, v.copy()) for _, own in attributes for v in own.values() if type(v) in _PLAIN]
    buffers = [(b, b.clone()) for b in module.buffers() if not b.is_meta]
    try:
        yield
    finally:
        stays = {id(vars(m)): {k for k in vars(m) if _stays(m, k)} for m in module.modules()}
        for own, before in attributes:
            _put_back(own, {k: v for k, v in own.items() if k in stays.get(id(own), ())} | before)
        for value, before in contents:
            _put_back(value, before)
        with torch.no_grad():
            for buffer, values in buffers:
                if not torch.equal(buffer, values):
                    buffer.copy_(values)


def apart_of(module: torch.nn.Module) -> frozenset[str]:
    """The paths of the modules inside `module` that are in the other mode than it is."""
    inside = module.named_modules()
    return frozenset(path for path, m in inside if m.training is not module.training)


def set_modes(module: torch.nn.Module, training: bool, apart: Collection[str]) -> None:
    """Put a module into train or eval mode, and those at the paths `apart` into the other one."""
    if module.training is training and apart_of(module) == frozenset(apart):
        return  # `train` may be the user's own, which does more
    module.train(training)
    for path, m in module.named_modules():
        if m.training is not (training != (path in apart)):
            m.training = not m.training


_PLAIN = (dict, list, set)


def _stays(module: torch.nn.Module, name: str) -> bool:
    """Is an attribute refold's own, or what a cached property has computed?"""
    cached = isinstance(getattr(type(module), name, None), functools.cached_property)
    return cached or name.startswith("_refold")


def _put_back(value: Any, before: Any) -> None:
    """Make a container what it was. It is never empty between: other threads may read it."""
    if type(value) is dict:
        for name in [n for n in value if n not in before]:
            del value[name]
        for name, one in before.items():
            if name not in value or value[name] is not one:
                value[name] = one
    elif type(value) is list and list(map(id, value)) != list(map(id, before)):
        value[:] = before
    elif type(value) is set and value != before:
        value.intersection_update(before)
        value.update(before)
