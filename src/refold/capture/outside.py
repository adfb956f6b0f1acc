"""What lies outside of a module and is filled while torch.export follows it, put back afterwards.

A cache among the globals, in a helper object or behind functools.lru_cache would hold tensors that
stand for none, and the program that has it would fail later. What is put back is that alone: what
else forward changes outside of its module stays changed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from refold.capture.generators import draws, global_generators, has_drawn
from refold.capture.twin import inside
from refold.capture.values import CaptureError, GoesOn
from refold.runtime.met import _refold_kinds
from refold.runtime.reach import _refold_is_theirs, _refold_reach

_MOST = 20_000  # objects that are looked into
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LRU = type(functools.lru_cache(lambda: None))
_USUAL = frozenset(vars(torch.nn.Module()))
_ABSENT = object()
_GLOBAL = "Python's random or numpy.random"
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})


@contextlib.contextmanager
def outside_kept(module: torch.nn.Module) -> Iterator[None]:
    """Run the block, and put back what then holds tensors of a trace, and what random numbers were
    drawn from beside PyTorch's generators. Raises CaptureError then, and before for an iterator
    that forward reads: it gives its next value once. A counter of another installed package (see
    `_is_distant`) may be reached and not be read: what it gave is asked for afterwards."""
    places, caches, generators, counters = _places(module)
    given = [repr(one) for _, one in counters]
    states = [(name, one, *known) for name, one in generators if (known := draws(one)) is not None]
    before = [(name, place, dict(_items(place))) for name, place in places]
    try:
        yield
    finally:
        filled = [w for name, place, was in before for w in _put_back(name, place, was)]
        for one in caches:
            if _is_traced(one):
                one.cache_clear()
                filled.append(f"the cache of {getattr(one, '__qualname__', 'a function')}")
        drawn = [name for name, one, state, _ in states if has_drawn(one, state)]
        for _, one, state, put_back in states:
            put_back(one, state)
    for (name, one), was in zip(counters, given, strict=True):
        if repr(one) != was:
            raise GoesOn(f"forward reads the iterator {name}, which goes on at each call")
    if drawn:
        raise CaptureError(f"forward draws random numbers of {drawn[0]}, which are not PyTorch's")
    if filled:
        raise CaptureError(f"forward fills {filled[0]}, which is not the module's own")


Named = list[tuple[str, Any]]


def _places(module: torch.nn.Module) -> tuple[Named, list[Any], Named, Named]:
    """Namespaces, classes, containers and objects that forward may reach, functions' caches,
    generators of random numbers, and distant counters."""
    reached = _refold_reach(_refold_kinds(module))
    found: dict[int, tuple[str, Any]] = {}
    caches: dict[int, Any] = {}
    counters: dict[int, tuple[str, Any]] = {}
    homes = {_top(type(m).__module__) for m in module.modules()}
    generators = [(_GLOBAL, one) for one in global_generators()]
    todo: list[tuple[str, Any]] = []
    for where, name, value in reached.entries.values():
        if _refold_is_theirs(where):
            words = where.__qualname__ if isinstance(where, type) else where.get("__name__")
            found.setdefault(id(where), (f"a name of {words}", where))
            if type(value) is itertools.count and _is_distant(where, homes):
                counters[id(value)] = name, value
            else:
                todo.append((name, value))
    for function, _ in reached.functions.values():
        space = function.__globals__
        found.setdefault(id(space), (f"a global of {space.get('__name__')}", space))
        todo.append((function.__qualname__, function))
    for cell, value in reached.cells.values():
        found.setdefault(id(cell), ("a variable that its code closes over", cell))
        todo.append(("a variable that its code closes over", value))

    def fields(value: Any) -> Named:
        """What counts of an object's fields: of iterators and what is private what code names."""
        own = [(k, v) for k, v in list(vars(value).items()) if k not in _USUAL]
        named = reached.names | reached.texts
        return [
            (k, v) for k, v in own if k in named or not (isinstance(v, Iterator) or k[:1] == "_")
        ]

    for m in module.modules():
        todo += fields(m)
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST:
        name, value = todo.pop()
        if id(value) in seen or isinstance(value, (torch.nn.Module, torch.Tensor)):
            continue
        if id(value) in counters:
            continue
        seen[id(value)] = value
        if draws(value) is not None:
            generators.append((name, value))
        elif isinstance(value, Iterator) and not hasattr(value, "fileno"):
            raise GoesOn(f"forward may read the iterator {name}, which goes on at each call")
        elif isinstance(value, _LRU):
            caches[id(value)] = value
        elif isinstance(value, (dict, list)) or _has_dict(value):
            found.setdefault(id(value), (name, value))
        unread = set(map(id, vars(value).values())) if _has_dict(value) else set()
        todo += [(name, v) for v in inside(value) if id(v) not in unread]
        todo += fields(value) if unread else []
    return list(found.values()), list(caches.values()), generators, list(counters.values())


def _top(name: Any) -> str:
    return str(name).split(".")[0]


def _is_distant(where: Any, homes: set[str]) -> bool:
    """Is a namespace that of an installed package which has no class of the module's parts? What
    code may reach by the names in it leads far: from a model of transformers to the locks of files.
    A number that a counter there gave while forward was followed is missed by nobody."""
    home = where.__module__ if isinstance(where, type) else where.get("__name__")
    path = str(getattr(sys.modules.get(str(home)), "__file__", None))
    return _top(home) not in homes and path.startswith(_INSTALLED)


def _has_dict(value: Any) -> bool:
    others = type, types.ModuleType
    return type(getattr(value, "__dict__", 0)) is dict and not isinstance(value, others)


def _items(place: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(place, dict):
        yield from list(place.items())
    elif isinstance(place, list):
        yield from enumerate(place)
    elif isinstance(place, types.CellType):
        with contextlib.suppress(ValueError):
            yield "", place.cell_contents
    else:
        yield from list(vars(place).items())


def _put_back(name: str, place: Any, before: dict[Any, Any]) -> Iterator[str]:
    """Give a place what it held of all that is of a trace now; words for each."""
    for key, value in list(_items(place)):
        was = before.get(key, _ABSENT)
        if value is was or not _is_traced(value):
            continue
        yield name
        if isinstance(place, types.CellType):
            place.cell_contents = was
        elif isinstance(place, dict) and was is _ABSENT:
            del place[key]
        elif isinstance(place, dict):
            place[key] = was
        elif isinstance(place, list):
            place[:] = before.values()
            return
        elif was is _ABSENT:
            delattr(place, key)
        else:
            setattr(place, key, was)


def _is_traced(value: Any) -> bool:
    """Is it, or does it hold, what stands for a tensor or a size while a module is followed?"""
    todo, seen = [value], dict[int, Any]()
    while todo and len(seen) < 1000:
        one = todo.pop()
        if isinstance(one, (FakeTensor, FunctionalTensor, *_SYMBOLS)):
            return True
        if isinstance(one, torch.Tensor) and torch._is_functional_tensor(one):
            return True
        if id(one) in seen or isinstance(one, (torch.nn.Module, types.ModuleType, type)):
            continue
        seen[id(one)] = one
        if isinstance(one, _LRU) or type(one).__name__ == "_lru_list_elem":
            todo += gc.get_referents(one)
        else:
            todo += inside(one)
    return False
