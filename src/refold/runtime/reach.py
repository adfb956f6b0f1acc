"""Which classes, functions and globals forward reads: what its code names, followed through calls.

Python code names what it may read. `_refold_reach` follows the names from the forward of each
class into the functions that they mean. Where code computes names of globals, all globals of its
module count; a name that it means by other ways (`getattr` with a computed name) is not seen.
"""

import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from refold.runtime.held import _refold_alike, _refold_containers, _refold_equal, _RefoldSeen
from refold.runtime.met import (
    _REFOLD_LONGEST,
    _REFOLD_MOST,
    _refold_computes,
    _refold_function,
    _refold_is_library,
    _refold_met,
    _refold_names,
    _RefoldCode,
)
from refold.runtime.settings import (
    _refold_is_number,
    _refold_is_plain,
    _refold_own,
    _refold_setting,
)

_REFOLD_CALLED = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__")
_REFOLD_COMPUTED = {"getattr", "vars", "__dict__", "eval", "exec", "asdict"}
_REFOLD_COMPUTED |= {"attrgetter", "methodcaller"}
_REFOLD_LISTS = {"vars", "__dict__", "dir"}  # which give all names
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
    own code finds attributes by computed names. listed: whether it may go through all names.
    counted: of objects the fields that count, or None for all.
    """

    def __init__(self) -> None:
        self.entries: _RefoldEntries = {}
        self.cells: dict[int, tuple[Any, Any]] = {}
        self.functions: dict[int, tuple[Any, Any]] = {}
        self.containers: tuple[Any, ...] = ()
        self.names: set[str] = set()
        self.texts: set[str] = set()
        self.computed = self.listed = False

    @property
    def counted(self) -> set[str] | None:
        return None if self.computed else self.names


class _refold_absent:
    pass


def _refold_space(where: Any) -> Mapping[str, Any]:
    return where if isinstance(where, dict) else vars(where)


def _refold_reach(kinds: Iterable[Any]) -> _RefoldReached:
    """All that the forwards of modules of these classes, and functions that are held, read beside
    their modules' attributes (see `_refold_kinds`).

    Whose attribute a name means cannot be seen: it may be any class's that is met. So what the
    program's own code names is followed in all of them, from a module to its parts as well.
    """
    found = _RefoldReached()
    stored: set[tuple[int, str]] = set()
    seen: set[tuple[int, Any]] = set()
    waiting: list[tuple[types.FunctionType, Any]] = []
    classes: dict[type, None] = {}  # whose methods may be called by any code
    modules: dict[int, types.ModuleType] = {}  # that are held, not imported by the code itself
    named: set[str] = set()  # what own code names
    beyond: set[str] = set()  # what own code names that asks for what stands behind a class
    attributes: dict[type, set[str]] = {}
    looked: dict[int, Any] = {}
    roots: list[Any] = []  # what is held by closures and defaults

    def follow(value: Any, owner: Any = None) -> None:
        function = _refold_function(value)
        if function is None or len(seen) >= _REFOLD_MOST:
            return
        key = id(function.__code__), owner
        if key not in seen:
            own = not _refold_is_library(function.__module__)
            if own or str(function.__module__).startswith("torch.nn.modules."):
                seen.add(key)
                waiting.append((function, owner))

    def add(where: Any, name: str, value: Any) -> None:
        found.entries.setdefault((id(where), name), (where, name, value))
        read_there = isinstance(value, (types.FunctionType, types.ModuleType, type))
        if _refold_is_theirs(where) and (not read_there or isinstance(where, type)):
            help_of(value)

    def help_of(value: Any) -> None:
        for one in list(_refold_met((value,), looked)):
            meet(one)

    def meet(kind: Any) -> None:
        if isinstance(kind, types.ModuleType):
            modules.setdefault(id(kind), kind)
        elif not isinstance(kind, type):
            follow(kind.function() if isinstance(kind, _RefoldCode) else kind)
        else:
            own = _refold_is_theirs(kind)
            if own:
                classes.setdefault(kind)
            if own or issubclass(kind, torch.nn.Module):
                for name in _REFOLD_CALLED:
                    add_attribute(kind, name)

    def add_attribute(kind: type, name: str, every: bool = False) -> None:
        """What a class has by a name. every: also what stands behind it, which `super` asks for."""
        for cls in kind.__mro__[:-1]:
            if "_refold_made" in vars(cls):
                continue  # what refold makes of a class is no part of the original
            value = vars(cls).get(name, _refold_absent)
            add(cls, name, value)
            if value is not _refold_absent:
                follow(value, None if kind in classes else kind)
                if not every:
                    return

    def has(kind: type) -> set[str]:
        """The names of all that a class has."""
        if kind not in attributes:
            attributes[kind] = {name for cls in kind.__mro__[:-1] for name in vars(cls)}
        return attributes[kind]

    def inside(value: Any, names: set[str]) -> None:
        """What code of these names reads in a value that it finds: in modules, too. A library's
        modules lead to their own parts alone."""
        todo, passed = [(value, "")], set()
        while todo:
            one, library = todo.pop()
            field = "__name__" if isinstance(one, types.ModuleType) else "__module__"
            home = str(getattr(one, field, "")).split(".")[0]
            if library not in ("", home):
                continue
            if isinstance(one, types.ModuleType) and id(one) not in passed:
                passed.add(id(one))
                top = "" if _refold_is_theirs(vars(one)) else home
                for name in sorted(names & vars(one).keys()):
                    add(vars(one), name, vars(one)[name])
                    todo.append((vars(one)[name], top))
            elif isinstance(one, type) and _refold_is_theirs(one):
                for inner in (*_REFOLD_CALLED, "__init__", *sorted(names & has(one))):
                    add_attribute(one, inner)
            else:
                follow(one)

    def all_of(space: dict[str, Any]) -> None:
        """Code computes the names of globals: it may read any of a module."""
        for name, value in space.items() if _refold_is_theirs(space) else ():
            if name[:2] != "__":
                found.entries.setdefault((id(space), name), (space, name, value))

    def read(function: types.FunctionType, owner: Any) -> None:
        names, assigned = map(set, _refold_names(function.__code__))
        space = function.__globals__
        stored.update((id(space), name) for name in assigned)
        texts = {n[:-1] for n in names if n[-1:] == "'"}
        if not _refold_is_library(function.__module__):
            found.texts.update(texts)
            found.functions[id(function)] = function, _RefoldSeen(function).now()
            held = [*(function.__defaults__ or ()), function.__kwdefaults__, vars(function)]
            roots.extend(held)
            help_of(held)
            found.listed |= bool(_REFOLD_LISTS & names)
            if _REFOLD_COMPUTED & names:
                found.computed = True
                names |= texts
            for name in sorted(names & has(owner)) if owner is not None else ():
                add_attribute(owner, name, every="super" in names)
            if _refold_is_theirs(space):
                named.update(names)
                beyond.update(names - _REFOLD_UNREAD if "super" in names else ())
        found.names.update(names)
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not bound yet
            found.cells[id(cell)] = cell, value
            if not isinstance(value, (type, types.ModuleType)):
                help_of(value)
            roots.append(value)
            inside(value, names)
        if _REFOLD_SPACES & names:
            names |= {f"{text}*" for text in texts & space.keys()} | (texts & space.keys())
            if _refold_computes(function.__code__):
                all_of(space)
        sought = texts & sys.modules.keys() if _REFOLD_IMPORTERS & names else set()
        sought |= {str(space.get("__name__"))} if {"modules", "__name__*"} <= names else set()
        for name in [*(n[:-1] for n in names if n[-1:] == "+"), *sought]:
            within = f"{space.get('__package__')}.{name}".rstrip(".")
            module = sys.modules.get(name) or sys.modules.get(within)
            theirs = module is not None and _refold_is_theirs(vars(module))
            if name in sought and theirs and not _refold_is_theirs(space):
                continue  # Python's `inspect` looks for a class in "__main__", and reads no setting
            inside(module, names)
            if module is not None and name in sought and {"getattr", "vars", "__dict__"} & names:
                all_of(vars(module))
        for name in sorted(names):
            value = space.get(name, _refold_absent) if f"{name}*" in names else _refold_absent
            if value is not _refold_absent:
                add(space, name, value)
                inside(value, names)

    for kind in kinds:
        meet(kind)
    met: dict[Any, tuple[int, ...]] = {}
    done: dict[Any, set[str]] = {}

    def so_far() -> tuple[int, ...]:
        return len(found.names), len(named), len(beyond)

    while waiting or any(met.get(one) != so_far() for one in (*classes, *modules)):
        while waiting:
            read(*waiting.pop())
        for place, module in list(modules.items()):
            met[place] = so_far()
            inside(module, named)
        for kind in list(classes):
            met[kind], own, wanted = so_far(), has(kind), named
            if not issubclass(kind, torch.nn.Module):
                special = {name for name in own if name[:2] == "__" == name[-2:]}
                wanted = found.names | (special - _REFOLD_UNREAD)
            known_to = done.setdefault(kind, set())
            for name in sorted(own & wanted):
                for every in (False, True) if name in beyond else (False,):
                    mark = f"{name}{every}"
                    if mark not in known_to:
                        known_to.add(mark)
                        add_attribute(kind, name, every)
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
    same = setting is not None and type(a) is type(b)
    return same and _refold_alike(setting, _refold_setting(b))


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
