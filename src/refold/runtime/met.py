"""What a model's attributes hold, followed to classes and to functions in Python."""

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from refold.runtime.settings import (
    _refold_content,
    _refold_fields,
    _refold_is_deque,
    _refold_is_plain,
    _refold_own,
)

_REFOLD_LIBRARIES = ("torch", "numpy", "builtins", "math", "typing", "functools", "itertools")
_REFOLD_MOST = 4000  # functions that are followed
_REFOLD_LONGEST = 1024  # elements of a list, dict or set that are compared


def _refold_is_library(name: Any) -> bool:
    return str(name).split(".")[0] in _REFOLD_LIBRARIES


class _RefoldCode:
    """The code of a function that something holds, with the globals that it reads. What else the
    function has, defaults and variables that it closes over, is of that function alone."""

    def __init__(self, function: types.FunctionType) -> None:
        self.code, self.space = function.__code__, function.__globals__
        self.__qualname__ = function.__qualname__

    def __eq__(self, other: object) -> bool:
        same = type(other) is _RefoldCode and other.code == self.code
        return same and other.space is self.space  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.code)

    def function(self) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in self.code.co_freevars)
        return types.FunctionType(self.code, self.space, self.code.co_name, None, cells)


def _refold_met(values: Iterable[Any], known: dict[int, Any]) -> Iterator[Any]:
    """The classes of objects and modules, and the functions of the program's own, that are held by
    values: in containers, objects, closures, defaults, partials and bound methods.

    known: what was looked into, by its id.
    """
    todo, most = list(values), len(known) + _REFOLD_MOST
    while todo and len(known) < most:
        one = todo.pop()
        if id(one) in known or _refold_is_plain(one):
            continue
        inner: Any = ()
        if isinstance(one, types.FunctionType):
            if not _refold_is_library(one.__globals__.get("__name__")):
                yield one
            cells = map(_refold_content, one.__closure__ or ())
            inner = [*cells, *(one.__defaults__ or ()), one.__kwdefaults__, vars(one)]
        elif isinstance(one, types.MethodType):
            inner = (one.__self__, one.__func__)
        elif isinstance(one, functools.partial):
            inner = (one.func, one.args, one.keywords)
        elif isinstance(one, (tuple, frozenset)):
            inner = one
        elif isinstance(one, (list, set)) or _refold_is_deque(one):
            inner = _refold_own(one)
        elif isinstance(one, (dict, types.MappingProxyType)):
            inner = _refold_own(one).values()
        elif isinstance(one, torch.nn.Module):
            yield type(one)
            inner = vars(one).values()
        elif (fields := _refold_fields(one)) is not None:
            yield type(one)
            inner = fields.values()
        else:
            continue
        known[id(one)] = one
        todo += inner if len(inner) <= _REFOLD_LONGEST else ()


def _refold_kinds(model: torch.nn.Module) -> set[Any]:
    """The classes of a model's modules, and of the objects that they hold, and `_RefoldCode` of the
    functions that they hold."""
    known = {id(m): m for m in model.modules()}
    found: set[Any] = {type(m) for m in known.values()}
    held: list[Any] = []
    for module in known.values():
        hidden = "_" if _refold_is_library(type(module).__module__) else "_refold"
        held += [v for name, v in list(vars(module).items()) if not name.startswith(hidden)]
    for one in _refold_met(held, known):
        found.add(_RefoldCode(one) if isinstance(one, types.FunctionType) else one)
    return found
