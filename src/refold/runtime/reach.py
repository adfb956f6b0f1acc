"""Which classes, functions and globals forward reads: what its code names, followed through calls.

Python code names what it may read. `_refold_reach` follows the names from the forward of each
class into the functions that they mean. A name that code means by other ways (`eval`, `getattr`
with a computed name) is not seen.
"""

import dis
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from refold.runtime.met import (
    _REFOLD_LONGEST,
    _REFOLD_MOST,
    _refold_is_library,
    _refold_met,
    _RefoldCode,
)
from refold.runtime.settings import (
    _refold_containers,
    _refold_equal,
    _refold_is_number,
    _refold_is_plain,
    _refold_own,
    _refold_setting,
    _RefoldSeen,
)

_REFOLD_CALLED = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")
_REFOLD_LOADS = (dis.opmap["LOAD_GLOBAL"], dis.opmap["LOAD_NAME"])
_REFOLD_SHIFTED = sys.version_info >= (3, 11)  # the lowest bit says whether it is called
_REFOLD_COMPUTED = {"getattr", "vars", "__dict__", "eval", "exec", "asdict", "attrgetter"}
_REFOLD_SPACES = {"globals", "eval", "exec"}
_REFOLD_IMPORTERS = {"__import__", "import_module", "modules"}
_REFOLD_UNREAD = {"__init__", "__new__", "__repr__", "__str__", "__setattr__", "__class__"}


_RefoldEntries = dict[tuple[int, str], tuple[Any, str, Any]]


class _RefoldReached:
    """entries: (namespace, name, value) of all that is read, a namespace being a module's globals
    or a class; a value that is `_refold_absent` means that there is no such name. cells: closures'
    cells and what they hold. functions: those of the program's own, and their code. containers:
    lists, dicts, sets, arrays and objects among globals, class attributes, closures and defaults,
    and what they hold, in turns. names: all names in the code, those of attributes among them.
    texts: texts in own code that may be names, as those that `hasattr` is given. computed: whether
    own code finds attributes by computed names. counted: of objects the fields that count, or None
    for all.
    """

    def __init__(self) -> None:
        self.entries: _RefoldEntries = {}
        self.cells: dict[int, tuple[Any, Any]] = {}
        self.functions: dict[int, tuple[Any, Any]] = {}
        self.containers: tuple[Any, ...] = ()
        self.names: set[str] = set()
        self.texts: set[str] = set()
        self.computed = False

    @property
    def counted(self) -> set[str] | None:
        return None if self.computed else self.names


class _refold_absent:
    pass


def _refold_names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names that code and the functions inside it read, and the globals that they assign.

    Globals that are read are marked by a "*" behind the name, as an attribute may be called alike,
    modules that are imported there by a "+", and texts that may be names by a "'". Names that no
    source can spell are of tools that rewrite it, as pytest does asserts: they are not followed.
    """
    read, stored = set(filter(str.isidentifier, code.co_names)), set()
    raw, extended = code.co_code, 0
    for at in range(0, len(raw), 2):
        extended = extended << 8 | raw[at + 1]
        if raw[at] in _REFOLD_LOADS:
            index = extended >> 1 if _REFOLD_SHIFTED and raw[at] == _REFOLD_LOADS[0] else extended
            read |= {f"{name}*" for name in code.co_names[index : index + 1] if name.isidentifier()}
        if raw[at] == dis.opmap["IMPORT_NAME"]:
            read.add(f"{code.co_names[extended]}+")
        if raw[at] == dis.opmap["STORE_GLOBAL"]:
            stored.add(code.co_names[extended])
        if raw[at] != dis.EXTENDED_ARG:
            extended = 0
    for inner in code.co_consts:
        texts = inner if isinstance(inner, (tuple, frozenset)) else (inner,)
        read |= {f"{t}'" for t in texts if isinstance(t, str) and t.replace(".", "").isidentifier()}
        if isinstance(inner, types.CodeType):
            more = _refold_names(inner)
            read |= more[0]
            stored |= more[1]
    return read, stored


def _refold_has(value: Any, name: str) -> bool:
    """Whether a value or its class has an attribute, without asking it: some answer any name."""
    if any(name in vars(cls) for cls in type(value).__mro__):
        return True
    try:
        return name in object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return False


def _refold_function(value: Any) -> types.FunctionType | None:
    """The Python function behind a method, property or partial; None of all else."""
    for _ in range(4):
        if isinstance(value, types.FunctionType):
            return value
        for field in ("__func__", "fget", "func", "__wrapped__"):
            inner = getattr(value, field, None) if _refold_has(value, field) else None
            if inner is not None:
                value = inner
                break
        else:
            return None
    return None


def _refold_space(where: Any) -> Mapping[str, Any]:
    return where if isinstance(where, dict) else vars(where)


def _refold_reach(kinds: Iterable[Any]) -> _RefoldReached:
    """All that the forwards of modules of these classes, and functions that are held, read beside
    their modules' attributes (see `_refold_kinds`)."""
    found = _RefoldReached()
    stored: set[tuple[int, str]] = set()
    seen: set[int] = set()
    waiting: list[tuple[types.FunctionType, tuple[type, ...]]] = []
    helpers: dict[type, None] = {}  # classes of objects, whose methods may be called by any code
    looked: dict[int, Any] = {}
    roots: list[Any] = []  # what is held by closures and defaults

    def follow(value: Any, owners: tuple[type, ...]) -> None:
        function = _refold_function(value)
        if function is not None and id(function.__code__) not in seen and len(seen) < _REFOLD_MOST:
            own = not _refold_is_library(function.__module__)
            if own or str(function.__module__).startswith("torch.nn.modules."):
                seen.add(id(function.__code__))
                waiting.append((function, owners))

    def add(where: Any, name: str, value: Any) -> None:
        found.entries.setdefault((id(where), name), (where, name, value))
        if not _refold_is_library(_refold_space(where).get("__name__", where)):
            help_of(value)

    def help_of(value: Any) -> None:
        if not isinstance(value, types.FunctionType):  # those are followed themselves
            for one in _refold_met((value,), looked):
                meet(one)

    def meet(kind: Any) -> None:
        if isinstance(kind, (types.FunctionType, _RefoldCode)):
            follow(kind.function() if isinstance(kind, _RefoldCode) else kind, classes)
        elif not issubclass(kind, torch.nn.Module):
            helpers.setdefault(kind)
        else:
            for name in _REFOLD_CALLED:
                add_attribute(kind, name)

    def add_attribute(kind: type, name: str) -> None:
        for cls in kind.__mro__[:-1]:
            if "_refold_made" in vars(cls):
                continue  # what refold makes of a class is no part of the original
            value = vars(cls).get(name, _refold_absent)
            add(cls, name, value)
            if value is not _refold_absent:
                follow(value, (kind,))
                return

    def read_module(module: types.ModuleType, names: set[str]) -> None:
        for inner in sorted(names & vars(module).keys()):
            add(vars(module), inner, vars(module)[inner])
            follow(vars(module)[inner], ())

    def read(function: types.FunctionType, owners: tuple[type, ...]) -> None:
        names, assigned = _refold_names(function.__code__)
        space = function.__globals__
        stored.update((id(space), name) for name in assigned)
        found.names.update(names)
        library = _refold_is_library(function.__module__)
        texts = {n[:-1] for n in names if n[-1:] == "'"}
        if not library:
            found.texts.update(texts)
            found.computed |= bool(_REFOLD_COMPUTED & names)
            found.functions[id(function)] = function, _RefoldSeen(function).now()
            roots.extend([*(function.__defaults__ or ()), function.__kwdefaults__, vars(function)])
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not bound yet
            found.cells[id(cell)] = cell, value
            follow(value, owners)
            help_of(value)
            roots.append(value)
            if isinstance(value, types.ModuleType):
                read_module(value, names)
        if _REFOLD_SPACES & names:
            names |= {f"{text}*" for text in texts & space.keys()} | (texts & space.keys())
        sought = texts & sys.modules.keys() if _REFOLD_IMPORTERS & names else set()
        for name in [*(n[:-1] for n in names if n[-1:] == "+"), *sought]:
            within = f"{space.get('__package__')}.{name}".rstrip(".")
            imported = sys.modules.get(name) or sys.modules.get(within)
            if imported is not None:
                read_module(imported, names)
        for name in sorted(names):
            for owner in owners:
                if not library and any(name in vars(cls) for cls in owner.__mro__[:-1]):
                    add_attribute(owner, name)
            value = space.get(name, _refold_absent) if f"{name}*" in names else _refold_absent
            if value is _refold_absent:
                continue
            add(space, name, value)
            if isinstance(value, types.ModuleType):
                read_module(value, names)
            elif isinstance(value, type) and not _refold_is_library(value.__module__):
                for inner in (*_REFOLD_CALLED, "__init__", *sorted(names & vars(value).keys())):
                    add_attribute(value, inner)
            else:
                follow(value, ())

    kinds = list(kinds)
    theirs = (k for k in kinds if isinstance(k, type) and issubclass(k, torch.nn.Module))
    classes = tuple(k for k in theirs if not _refold_is_library(k.__module__))
    for kind in kinds:
        meet(kind)
    met: dict[type, int] = {}
    while waiting or any(met.get(kind) != len(found.names) for kind in helpers):
        while waiting:
            read(*waiting.pop())
        for kind in list(helpers):
            met[kind] = len(found.names)
            own = {name for cls in kind.__mro__[:-1] for name in vars(cls)}
            special = {name for name in own if name[:2] == "__" == name[-2:]} - _REFOLD_UNREAD
            for name in sorted(own & (found.names | special)):
                add_attribute(kind, name)
    for key in stored:  # what forward itself assigns is no setting
        found.entries.pop(key, None)
    known: dict[int, Any] = {}
    for where, _, value in found.entries.values():
        if _refold_is_theirs(where):
            roots.append(value)
        elif isinstance(value, type(os.environ)):
            roots.append(vars(value)["_data"])
    found.containers = tuple(
        part for value in roots for part in _refold_held_by(value, found.counted, known)
    )
    return found


def _refold_is_theirs(where: Any) -> bool:
    """Is a namespace neither PyTorch's nor one of Python's own modules?"""
    name = where.__module__ if isinstance(where, type) else where.get("__name__")
    return not _refold_is_library(name) and str(name).split(".")[0] not in sys.stdlib_module_names


def _refold_held_by(value: Any, names: Any, known: dict[int, Any]) -> tuple[Any, ...]:
    """What a global, a class's attribute or a closure holds, and what it holds now, in turns."""
    large = isinstance(value, (list, dict, set, tuple)) and len(value) > _REFOLD_LONGEST
    functions = types.FunctionType, types.MethodType, type
    if large or isinstance(value, functions):  # functions are followed by themselves
        return ()
    if isinstance(value, dict):  # a cache of tensors may grow
        inner = _refold_own(value)
        plain = {k for k, v in inner.items() if _refold_setting(v, names=names) is not None}
        if len(plain) < len(inner):
            seen = _RefoldSeen(value, plain)
            below = (c for k in plain for c in _refold_containers(inner[k], 1, names, known))
            return (seen, seen.now(), *below) if plain else ()
    return _refold_containers(value, 0, names, known)


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
    for function, code in then.functions.values():
        if not _refold_equal(function, code):
            return f"the code or a default of {function.__qualname__} has changed"
    for held, now in zip(then.containers[::2], then.containers[1::2], strict=True):
        if not _refold_equal(held, now):
            return f"{_refold_what(held)} that forward reads has changed"
    return None


def _refold_what(held: Any) -> str:
    held = held.value if type(held) is _RefoldSeen else held
    if isinstance(held, types.CellType):
        return "a variable that a function closes over"
    known = isinstance(held, (list, dict, set))
    words = "list, dict or set among the globals" if known else type(held).__name__
    return f"a {words}"


def _refold_plain_globals(reached: _RefoldReached) -> dict[str, Any]:
    """The globals of values that can be compared, by name; of one name two values: none."""
    found: dict[str, list[Any]] = {}
    for where, name, value in reached.entries.values():
        if isinstance(where, dict) and _refold_is_theirs(where) and value is not None:
            held = _refold_held_by(value, reached.counted, {})
            if held or _refold_is_plain(value) or _refold_is_number(value):
                found.setdefault(name, []).append(_refold_setting(value, names=reached.counted))
    return {k: v[0] for k, v in sorted(found.items()) if v[0] is not None if v == v[:1] * len(v)}


def _refold_modules_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Every module inside the model by its path, one that is held twice under both."""
    yield from model.named_modules(remove_duplicate=False)
