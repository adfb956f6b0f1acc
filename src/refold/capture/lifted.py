"""Tensors of a module that are arguments of its program, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.capture.arguments import key_text, set_at, text_of, value_at
from refold.capture.captured import has_attribute
from refold.capture.values import CaptureError
from refold.capture.watch import Watch, owner_of
from refold.runtime.settings import _refold_items


@dataclass(frozen=True)
class Lifted:
    """A tensor that is an argument, too: an attribute that forward replaces, read before the call
    and set after it; or, by its keys, one in a list or a dict that an attribute holds, which
    forward reads."""

    path: str
    name: str
    keys: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.path}.{self.name}".strip(".")

    def value(self, module: torch.nn.Module) -> Any:
        if self.keys:
            return value_at(module, (self.path, self.name, *self.keys))
        return getattr(owner_of(module, self.path), self.name)

    def read(self, module: torch.nn.Module) -> str:
        """The text that reads it."""
        return text_of(module, (self.path, self.name, *self.keys))

    def put(self, module: torch.nn.Module, value: Any) -> Any:
        """Sets it, unwatched; gives what it was."""
        if not self.keys:
            return _set(owner_of(module, self.path), self.name, value)
        before = self.value(module)
        set_at(module, (self.path, self.name, *self.keys), value)
        return before


def to_lift(
    module: torch.nn.Module, watch: Watch, lifted: tuple[Lifted, ...]
) -> tuple[Lifted, ...]:
    """The attributes that forward reads and then replaces. Raises CaptureError for one that is no
    tensor, before or after."""
    found = dict.fromkeys(lifted)
    for path, name in sorted(watch.read_first):
        one = Lifted(path, name)
        before = getattr(owner_of(module, path), name, None)
        for value in (before, watch.assigned[path, name]):
            if not isinstance(value, torch.Tensor):
                error = CaptureError(
                    f"forward sets the attribute {one.text}, which it has read before and which is"
                    " no tensor"
                )
                error.once = True
                raise error
        found[one] = None
    return tuple(found)


def in_containers(
    module: torch.nn.Module, constants: Mapping[str, torch.Tensor], lifted: tuple[Lifted, ...]
) -> tuple[Lifted, ...]:
    """... and the tensors that it reads out of lists and dicts which its parts hold, such as tables
    that were kept at a first call. constants: of a program, by the names that attributes have."""
    read = {
        _memory(tensor)
        for name, tensor in constants.items()
        if type(tensor) is torch.Tensor and not has_attribute(module, name)
    }
    held = {_memory(t) for t in (*module.parameters(), *module.buffers())}
    found = dict.fromkeys(lifted)
    for path, part in module.named_modules() if read - held else ():
        for name, value in vars(part).items():
            if name not in _USUAL and type(value) in (dict, list):
                for keys, tensor in _tensors_in(value, ()):
                    if _memory(tensor) in read - held:
                        found[Lifted(path, name, keys)] = None
    return tuple(found)


def _tensors_in(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = _refold_items(value) if type(value) in (dict, list) else None
    for key, inner in (items or {}).items():
        if len(keys) < _DEPTH and key_text(key) is not None:
            if type(inner) is torch.Tensor:
                yield (*keys, key), inner
            else:
                yield from _tensors_in(inner, (*keys, key))


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (id(tensor),)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


_DEPTH = 4  # of lists and dicts in one another
_USUAL = vars(torch.nn.Module())


def _set(module: torch.nn.Module, name: str, value: Any) -> Any:
    """Sets an attribute or a buffer, unwatched; gives what it was."""
    place = module._buffers if name in module._buffers else vars(module)
    before, place[name] = place[name], value
    return before
