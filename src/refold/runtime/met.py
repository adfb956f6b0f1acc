"""What a model's attributes hold, followed to classes and to functions in Python."""

import dis
import functools
import sys
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
_REFOLD_LOADS = (dis.opmap["LOAD_GLOBAL"], dis.opmap["LOAD_NAME"])
_REFOLD_SHIFTED = sys.version_info >= (3, 11)  # the lowest bit says whether it is called
_REFOLD_SILENT = ("PUSH_NULL", "PRECALL", "CACHE", "EXTENDED_ARG", "RESUME", "NOP")
_REFOLD_CALLS = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
_REFOLD_LONGEST = 1024  # elements of a list, dict or set that are compared


def _refold_is_library(name: Any) -> bool:
    return str(name).split(".")[0] in _REFOLD_LIBRARIES


@functools.lru_cache(maxsize=4096)
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


@functools.lru_cache(maxsize=4096)
def _refold_computes(code: types.CodeType) -> bool:
    """Whether code, or a function inside it, may read globals by names that it computes: it asks
    `globals()` for another than a text of its own, or evaluates a text that is more than a name."""
    told = [i for i in dis.get_instructions(code) if i.opname not in _REFOLD_SILENT]
    for at, one in enumerate(told):
        if one.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
            continue
        behind = [*told[at + 1 : at + 9], one, one, one, one]
        if one.argval == "globals":
            if behind[0].opname in _REFOLD_CALLS:
                del behind[0]
            if behind[0].argval in ("get", "__getitem__"):
                del behind[0]
                if behind[1].opname == "LOAD_CONST":  # what is given where there is none
                    del behind[1]
                known = behind[0].opname == "LOAD_CONST" and behind[1].opname in _REFOLD_CALLS
            elif behind[0].opname == "CONTAINS_OP":
                known = at > 0 and told[at - 1].opname == "LOAD_CONST"
            else:
                known = behind[0].opname == "LOAD_CONST" and behind[1].opname == "BINARY_SUBSCR"
        elif one.argval in ("eval", "exec"):
            name = behind[0].argval
            known = isinstance(name, str) and name.isidentifier()
            known = known and behind[0].opname == "LOAD_CONST" and behind[1].opname in _REFOLD_CALLS
        else:
            continue
        if not known:
            return True
    return any(_refold_computes(c) for c in code.co_consts if isinstance(c, types.CodeType))


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
    """Functions of the program's own, classes, also those of objects and of models' modules, and
    modules that were imported, which are held by values: in containers, objects, closures,
    defaults, partials and bound methods.

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
        elif isinstance(one, types.ModuleType) or (
            isinstance(one, type) and not _refold_is_library(one.__module__)
        ):
            yield one
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
