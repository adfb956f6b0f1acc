"""Which classes, functions and globals forward reads: what its code names, followed through calls.

Python code names what it may read. `_refold_reach` follows the names from the forward of each
class into the functions that they mean. A name that code means by other ways (`eval`, `getattr`
with a computed name) is not seen.
"""

import dis
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from refold.runtime.settings import _refold_is_plain, _refold_setting

_REFOLD_LIBRARIES = ("torch", "numpy", "builtins", "math", "typing", "functools", "itertools")
_REFOLD_CALLED = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")
_REFOLD_LOADS = (dis.opmap["LOAD_GLOBAL"], dis.opmap["LOAD_NAME"])
_REFOLD_SHIFTED = sys.version_info >= (3, 11)  # the lowest bit says whether it is called
_REFOLD_MOST = 4000  # functions that are followed


_RefoldEntries = dict[tuple[int, str], tuple[Any, str, Any]]


class _RefoldReached:
    """entries: (namespace, name, value) of all that is read, a namespace being a module's globals
    or a class; a value that is `_refold_absent` means that there is no such name. cells: closures'
    cells and what they hold. containers: lists, dicts and sets of plain values among the globals.
    names: all names in the code, those of attributes among them.
    """

    def __init__(self) -> None:
        self.entries: _RefoldEntries = {}
        self.cells: dict[int, tuple[Any, Any]] = {}
        self.containers: tuple[Any, ...] = ()
        self.names: set[str] = set()


class _refold_absent:
    pass


def _refold_names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names that code and the functions inside it read, and the globals that they assign.

    Globals that are read are marked by a "*" behind the name: an attribute may be called alike.
    """
    read, stored = set(code.co_names), set()
    raw, extended = code.co_code, 0
    for at in range(0, len(raw), 2):
        extended = extended << 8 | raw[at + 1]
        if raw[at] in _REFOLD_LOADS:
            index = extended >> 1 if _REFOLD_SHIFTED and raw[at] == _REFOLD_LOADS[0] else extended
            read.add(f"{code.co_names[index]}*")
        if raw[at] == dis.opmap["STORE_GLOBAL"]:
            stored.add(code.co_names[extended])
        if raw[at] != dis.EXTENDED_ARG:
            extended = 0
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _refold_names(inner)
            read |= more[0]
            stored |= more[1]
    return read, stored


def _refold_function(value: Any) -> types.FunctionType | None:
    """The Python function behind a method, property or partial; None of all else."""
    for _ in range(4):
        if isinstance(value, types.FunctionType):
            return value
        for field in ("__func__", "fget", "func", "__wrapped__"):
            inner = getattr(value, field, None)
            if inner is not None:
                value = inner
                break
        else:
            return None
    return None


def _refold_is_library(name: Any) -> bool:
    return str(name).split(".")[0] in _REFOLD_LIBRARIES


def _refold_space(where: Any) -> Mapping[str, Any]:
    return where if isinstance(where, dict) else vars(where)


def _refold_reach(kinds: Iterable[type]) -> _RefoldReached:
    """All that the forwards of modules of these classes read beside their modules' attributes."""
    found, stored = _RefoldReached(), set()
    seen: set[int] = set()
    waiting: list[tuple[types.FunctionType, tuple[type, ...]]] = []

    def follow(value: Any, owners: tuple[type, ...]) -> None:
        function = _refold_function(value)
        if function is not None and id(function.__code__) not in seen and len(seen) < _REFOLD_MOST:
            own = not _refold_is_library(function.__module__)
            if own or str(function.__module__).startswith("torch.nn.modules."):
                seen.add(id(function.__code__))
                waiting.append((function, owners))

    def add(where: Any, name: str, value: Any) -> None:
        found.entries.setdefault((id(where), name), (where, name, value))

    def add_attribute(kind: type, name: str) -> None:
        for cls in kind.__mro__[:-1]:
            if "_refold_made" in vars(cls):
                continue  # what refold makes of a class is no part of the original
            value = vars(cls).get(name, _refold_absent)
            add(cls, name, value)
            if value is not _refold_absent:
                follow(value, (kind,))
                return

    for kind in kinds:
        for name in _REFOLD_CALLED:
            add_attribute(kind, name)
    while waiting:
        function, owners = waiting.pop()
        names, assigned = _refold_names(function.__code__)
        space = function.__globals__
        stored |= {(id(space), name) for name in assigned}
        found.names |= names
        library = _refold_is_library(function.__module__)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not bound yet
            found.cells[id(cell)] = cell, value
            follow(value, owners)
        for name in sorted(names):
            for owner in owners:
                if not library and any(name in vars(cls) for cls in owner.__mro__[:-1]):
                    add_attribute(owner, name)
            value = space.get(name, _refold_absent) if f"{name}*" in names else _refold_absent
            if value is _refold_absent:
                continue
            add(space, name, value)
            if isinstance(value, types.ModuleType):
                for inner in sorted(names & vars(value).keys()):
                    add(vars(value), inner, vars(value)[inner])
                    follow(vars(value)[inner], ())
            elif isinstance(value, type) and not _refold_is_library(value.__module__):
                for inner in (*_REFOLD_CALLED, "__init__"):
                    add_attribute(value, inner)
            else:
                follow(value, ())
    for key in stored:  # what forward itself assigns is no setting
        found.entries.pop(key, None)
    found.containers = tuple(
        part
        for where, _, value in found.entries.values()
        if isinstance(value, (list, dict, set)) and isinstance(where, dict)
        if not _refold_is_library(where.get("__name__"))
        for part in _refold_plain_containers(value)
    )
    return found


def _refold_as_known(entries: _RefoldEntries, known: _RefoldEntries) -> _RefoldEntries:
    """Entries with the values that they had when they were first met. A class that is not known,
    but another of its name is, has to do what that one does: it may have been defined anew. Not so
    of PyTorch's classes, after which others may well be named."""
    named: dict[tuple[str, str], list[Any]] = {}
    for where, name, value in known.values():
        if isinstance(where, type) and not _refold_is_library(where.__module__):
            named.setdefault((where.__qualname__, name), []).append(value)
    found: _RefoldEntries = {}
    for key, (where, name, value) in entries.items():
        found[key] = known.get(key, (where, name, value))
        own = isinstance(where, type) and not _refold_is_library(where.__module__)
        alike = named.get((where.__qualname__, name)) if own else None
        if alike and key not in known and not any(_refold_same(value, v) for v in alike):
            found[key] = where, name, alike[0]
    return found


def _refold_same(a: Any, b: Any) -> bool:
    """Whether two values are one, or do the same."""
    if a is b:
        return True
    setting = None if a is _refold_absent else _refold_setting(a)
    return setting is not None and type(a) is type(b) and setting == _refold_setting(b)


def _refold_plain_containers(value: Any) -> tuple[Any, ...]:
    """A list, dict or set and its copy, where it holds few plain values and nothing else."""
    if len(value) > 64 or _refold_setting(value) is None:
        return ()
    inner = value.values() if isinstance(value, dict) else value
    return (value, value.copy()) if all(map(_refold_is_plain, inner)) else ()


def _refold_reach_difference(then: _RefoldReached) -> str | None:
    """How what is read differs from what was read then, or None."""
    for where, name, value in then.entries.values():
        now = _refold_space(where).get(name, _refold_absent)
        if not _refold_same(now, value):
            kind = f"the class {where.__qualname__}" if isinstance(where, type) else "the module"
            at = kind if isinstance(where, type) else f"{kind} {where.get('__name__')}"
            return f"{name} of {at} has changed"
    for cell, value in then.cells.values():
        if cell.cell_contents is not value:
            return "a variable that forward's code closes over has changed"
    for held, now in zip(then.containers[::2], then.containers[1::2], strict=True):
        if held != now:
            return "a list, dict or set among the globals that forward reads has changed"
    return None


def _refold_plain_globals(reached: _RefoldReached) -> dict[str, Any]:
    """The globals of plain values, or of few of them, by name; of one name two values: none."""
    found: dict[str, list[Any]] = {}
    for where, name, value in reached.entries.values():
        if isinstance(where, dict) and not _refold_is_library(where.get("__name__")):
            held = isinstance(value, (list, dict, set)) and _refold_plain_containers(value)
            if held or (_refold_is_plain(value) and value is not None):
                found.setdefault(name, []).append(_refold_setting(value))
    return {k: v[0] for k, v in sorted(found.items()) if all(x == v[0] for x in v)}


def _refold_modules_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module inside the model by its path, one that is held twice under both."""
    yield from model.named_modules(remove_duplicate=False)
