"""What running a module may move, put back afterwards: its modes, attributes and buffers."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from refold.capture.generators import draws, global_generators
from refold.capture.twin import inside
from refold.runtime.met import _refold_kinds
from refold.runtime.reach import _refold_reach
from refold.runtime.settings import _refold_own

_USUAL = frozenset(vars(torch.nn.Module()))
_MOST = 20_000  # values that are looked into
_LONGEST = 10_000  # elements of a container that are
_LARGEST = 1 << 20  # bytes of an array that are kept
_PLAIN = (dict, list, set, collections.deque)


@contextmanager
def kept(module: torch.nn.Module, parameters: bool = False) -> Iterator[None]:
    """Run the block, then give every module inside `module` its own mode back (one may be frozen in
    eval mode while the others train), its attributes, and every buffer and other tensor that
    attributes hold its values; with `parameters` those, too, which forward may write.

    Attributes are put back with what they hold: lists, dicts, sets, deques, arrays, and of objects
    the fields that forward's code names; in each other, too, and states of Python's and numpy's
    random numbers. What classes and globals hold stays as forward leaves it. A buffer that still
    has its values is not written: its version does not move.
    """
    attributes = [(vars(m), dict(vars(m))) for m in module.modules()]
    held = [v for _, own in attributes for k, v in own.items() if k in _USUAL]
    held = [*(v for v in held if isinstance(v, dict)), *held_in(module), *global_generators()]
    contents = [(v, *known) for v in held if (known := _content(v)) is not None]
    tensors = {id(t): (t, t.detach().clone(), _version(t)) for t in _tensors(module, held)}
    if parameters and _fits(module):
        for p in _plain(module):
            tensors[id(p)] = p, p.detach().to("cpu", copy=True), _version(p)
    try:
        yield
    finally:
        stays = {id(vars(m)): {k for k in vars(m) if _stays(m, k)} for m in module.modules()}
        for own, before in attributes:
            _put_back(own, {k: v for k, v in own.items() if k in stays.get(id(own), ())} | before)
        names: set[str] | None = None
        for value, content, put_back in contents:
            if put_back is not _put_in_object:
                put_back(value, content)
            elif any(vars(value).get(k, contents) is not v for k, v in content.items()):
                names = _named(module) if names is None else names
                _put_back(
                    vars(value), vars(value) | {k: content[k] for k in names & content.keys()}
                )
        for tensor, values, version in tensors.values():
            _put_in_tensor(tensor, values, version)


def _put_in_tensor(tensor: torch.Tensor, values: torch.Tensor, version: object) -> None:
    # an inference tensor is written in inference mode alone
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        dense = tensor.layout is torch.strided  # others cannot be compared
        if tensor.shape != values.shape:
            tensor.data = values
        elif version != _version(tensor) if not dense else _differ(tensor, values):
            tensor.copy_(values)


def _differ(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    return not torch.equal(tensor, values.to(tensor.device))


def _version(buffer: torch.Tensor) -> object:
    """What moves when a tensor is written; of an inference tensor, which counts nothing, always."""
    return object() if buffer.is_inference() else buffer._version


def _tensors(module: torch.nn.Module, held: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Buffers, and tensors that attributes are or hold."""
    yield from (b for b in module.buffers() if not b.is_meta)
    for one in (*map(vars, module.modules()), *held):
        for value in inside(one):
            if type(value) is torch.Tensor and not value.is_meta and not value.is_nested:
                yield value


def _plain(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    return (p for p in module.parameters() if type(p) is torch.nn.Parameter and not p.is_meta)


def _fits(module: torch.nn.Module) -> bool:
    """Whether a copy of all parameters takes at most half of the memory that is free."""
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return True
    return 2 * size <= free


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


def _stays(module: torch.nn.Module, name: str) -> bool:
    """Is an attribute refold's own, or what a cached property has computed?"""
    cached = isinstance(getattr(type(module), name, None), functools.cached_property)
    return cached or name.startswith("_refold")


def held_in(module: torch.nn.Module, names: Collection[str] | None = None) -> list[Any]:
    """What a module's attributes hold and forward may change. names: of certain ones, of this
    module alone."""
    modules = {id(m): m for m in module.modules()}
    if names is None:
        todo = [v for m in modules.values() for k, v in vars(m).items() if k not in _USUAL]
    else:
        todo = [vars(module)[name] for name in names]
    found: dict[int, Any] = {}
    while todo and len(found) < _MOST:
        one = todo.pop()
        if id(one) in found or id(one) in modules:
            continue
        inner = inside(one)
        array = type(one).__module__ == "numpy" and hasattr(one, "tobytes")
        if inner or array or draws(one) is not None or isinstance(one, _PLAIN):
            found[id(one)] = one
            todo += inner if len(inner) <= _LONGEST else []
    return list(found.values())


def _content(value: Any) -> tuple[Any, Callable[[Any, Any], object]] | None:
    """What a value holds, and what puts that back."""
    generator = draws(value)
    if generator is not None:
        return generator
    kind = type(value)
    if isinstance(value, types.CellType):
        return inside(value), _put_in_cell
    if isinstance(value, dict):
        return _refold_own(value), _put_back
    if isinstance(value, (list, set, collections.deque)):
        own = _refold_own(value)
        return (set if isinstance(value, set) else list)(own), _put_back
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        small = value.nbytes <= _LARGEST and value.flags.writeable and not value.dtype.hasobject
        return (value.copy(), _put_in_array) if small else None
    if type(getattr(value, "__dict__", 0)) is dict and not isinstance(value, torch.Tensor):
        closed = kind.__module__.split(".")[0] == "torch" and not isinstance(value, torch.nn.Module)
        return None if closed else (dict(vars(value)), _put_in_object)
    return None


class Counts:
    """Tells of a value whether forward has counted with it: an array that was written, or a field
    of an object that had another number or text before; and puts that back."""

    def __init__(self, value: Any) -> None:
        self.value, self.known = value, _content(value)

    def has_counted(self) -> bool:
        if self.known is None or self.known[1] not in (_put_in_array, _put_in_object):
            return False
        content, put_back = self.known
        if put_back is _put_in_array:
            counted = bool(self.value.tobytes() != content.tobytes())
        else:
            now = vars(self.value)
            both = [(now[k], v) for k, v in content.items() if k in now]
            plain = (bool, int, float, str)
            counted = any(
                type(b) in plain and type(a) in plain and a is not b and a != b for a, b in both
            )
        if counted:
            put_back(self.value, content)
        return counted


def _put_in_cell(cell: Any, before: Any) -> None:
    if before and cell.cell_contents is not before[0]:
        cell.cell_contents = before[0]


def _put_in_array(value: Any, before: Any) -> None:
    if value.shape == before.shape and value.tobytes() != before.tobytes():
        value[...] = before


def _put_in_object(value: Any, before: Any) -> None:
    _put_back(vars(value), before)


def _named(module: torch.nn.Module) -> set[str]:
    reached = _refold_reach(_refold_kinds(module))
    return reached.names | reached.texts


def _put_back(value: Any, before: Any) -> None:
    """Make a container what it was. It is never empty between: other threads may read it."""
    if isinstance(value, dict):
        for name in [n for n in value if n not in before]:
            del value[name]
        for name, one in before.items():
            if name not in value or dict.__getitem__(value, name) is not one:
                value[name] = one
    elif isinstance(value, list) and list(map(id, value)) != list(map(id, before)):
        value[:] = before
    elif isinstance(value, collections.deque) and [*map(id, value)] != [*map(id, before)]:
        value.clear()
        value.extend(before)
    elif isinstance(value, set) and value != before:
        value.intersection_update(before)
        value.update(before)
