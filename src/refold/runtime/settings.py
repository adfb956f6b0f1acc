"""What is compared of attributes and globals: plain values, lists, functions, objects, arrays."""

import enum
import hashlib
import math
import re
import sys
import types
from typing import Any

import torch

_REFOLD_HOMES = ("torch", "builtins", "functools")
_REFOLD_NUMBERS = (enum.Enum, bool, int, float, complex, str, bytes, range, slice, re.Pattern)
# classes by their names: to import them would take names from the model's own file
_REFOLD_TEXTS = (
    "fractions.Fraction",
    "decimal.Decimal",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "operator.attrgetter",
    "operator.itemgetter",
    "operator.methodcaller",
)
# of Python's own libraries: where classes are whose objects hold what they are given
_REFOLD_OPEN = ("types", "collections", "argparse", "_thread")
_REFOLD_ORDERED = "collections.OrderedDict"
_REFOLD_DEEPEST = 12
_REFOLD_VALUES = 4096  # values of a graph of objects that are looked at
_REFOLD_LARGEST = 1 << 16  # bytes of an array that are compared before each call
_REFOLD_USUAL = frozenset(vars(torch.nn.Module()))


def _refold_is_plain(value: Any) -> bool:
    """True if the value's text is the value; of numpy's and enums' classes it is not."""
    if type(value) is tuple:
        return all(map(_refold_is_plain, value))
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (bool, int, str, type(None))


def _refold_code(code: types.CodeType) -> list[Any]:
    """What code does, as plain values."""
    constants = [_refold_code(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return [code.co_code.hex(), code.co_names, *constants]


def _refold_content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not bound yet


def _refold_home_of(kind: Any) -> str:
    return str(getattr(kind, "__module__", None)).split(".")[0]


def _refold_fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object that holds values, in its dict or in slots; None of what is no such
    object: tensors, modules, classes, and objects of Python's and PyTorch's own."""
    kind = type(value)
    home = _refold_home_of(kind)
    closed = home in sys.stdlib_module_names and home not in _REFOLD_OPEN
    others = torch.nn.Module, torch.Tensor, type, types.ModuleType
    if closed or home in ("torch", "numpy", "builtins") or isinstance(value, others):
        return None
    slots = {
        name: member
        for cls in kind.__mro__
        for name, member in vars(cls).items()
        if isinstance(member, types.MemberDescriptorType)
    }
    own = getattr(value, "__dict__", None)
    if not slots and type(own) is not dict:
        return None
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return found | own if type(own) is dict else found


def _refold_places(model: torch.nn.Module, varied: Any = ()) -> dict[Any, Any]:
    """The path of each module inside a model, by the identity of the dict that has its children: a
    module and its twin share it. Under "varied" the keys of the numbers that vary, by the identity
    of what holds them.

    varied: their places, as `_REFOLD_VARIED` has them."""
    places: dict[Any, Any] = {id(vars(m)["_modules"]): path for path, m in model.named_modules()}
    inside: dict[int, set[Any]] = {}
    for path, name, *keys in varied:
        holder = _refold_holder(_refold_part(model, path), name, keys)
        if holder is not None:
            inside.setdefault(id(holder), set()).add(keys[-1])
    return places | {"varied": inside} if inside else places


def _refold_part(model: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        model = None if model is None else vars(model)["_modules"].get(name)
    return model


def _refold_holder(module: Any, name: str, keys: Any) -> Any:
    """The dict, list or object in what an attribute holds that the last of these keys is one of, or
    None."""
    held = None if module is None else vars(module).get(name)
    for i, key in enumerate(keys):
        items = _refold_items(held)
        if items is None or key not in items:
            return None
        if i + 1 < len(keys):
            held = items[key]
    return held


def _refold_items(value: Any) -> dict[Any, Any] | None:
    """The entries of a dict or a list, and the fields of an object that gives them as it holds
    them; None of all else."""
    if type(value) is dict:
        return value
    if type(value) is list:
        return dict(enumerate(value))
    ways = ("__getattribute__", "__getattr__")
    own = (vars(c).get(way) for c in type(value).__mro__ for way in ways)
    return None if any(isinstance(f, types.FunctionType) for f in own) else _refold_fields(value)


class _RefoldVaries:
    """Stands for a number that varies where what holds it is compared."""


def _refold_without(value: Any, items: dict[Any, Any], places: Any) -> dict[Any, Any]:
    """Entries of a container, those that vary without their values."""
    keys = places["varied"].get(id(value)) if places and "varied" in places else None
    return {k: _RefoldVaries if k in keys else v for k, v in items.items()} if keys else items


def _refold_place(value: Any, places: Any) -> str | None:
    """The path of a module that a model has at a place of its own, or None."""
    known = places and isinstance(value, torch.nn.Module)
    return places.get(id(vars(value).get("_modules"))) if known else None


def _refold_is_function(value: Any) -> bool:
    """Is it a function in Python, and not one of PyTorch's that holds nothing?"""
    theirs = isinstance(value, types.FunctionType)
    return theirs and (bool(value.__closure__) or _refold_home_of(value) not in _REFOLD_HOMES)


def _refold_counted(value: Any, names: Any) -> dict[str, Any] | None:
    """The fields of an object that count: of one that finds its fields in ways of its own, all. So
    of PyTorch's modules that a model holds in no place of theirs."""
    fields, kind = _refold_fields(value), type(value)
    if isinstance(value, torch.nn.Module):
        every = names is None or _refold_home_of(kind) == "torch"
        held = {k: v for k, v in vars(value).items() if not k.startswith("_refold")}
        return {k: v for k, v in held.items() if every or k in names or k in _REFOLD_USUAL}
    own = any("__getattribute__" in vars(c) for c in kind.__mro__[:-1])
    if fields is None or names is None or own or hasattr(kind, "__getattr__"):
        return fields
    return {k: v for k, v in fields.items() if k in names}


def _refold_of_numpy(value: Any, name: str) -> bool:
    """Is it of a class of numpy's? Whoever has one has imported numpy, which may not be there."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, name))


def _refold_is_number(value: Any) -> bool:
    known = isinstance(value, _REFOLD_NUMBERS) or _refold_named(value) in _REFOLD_TEXTS
    return known or _refold_of_numpy(value, "generic")


def _refold_name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _refold_named(value: Any) -> str:
    return _refold_name_of(type(value))


def _refold_is_variable(value: Any) -> bool:
    return _refold_named(value) == "_contextvars.ContextVar"


def _refold_is_deque(value: Any) -> bool:
    return _refold_named(value) == "collections.deque"


def _refold_own(value: Any) -> Any:
    """A copy of a list, dict, set or deque by its built-in class: a class made of one may make what
    it gives anew each time."""
    kinds = (c for c in type(value).__mro__ if _refold_name_of(c) == _REFOLD_ORDERED)
    ordered: Any = next(kinds, None)
    if ordered is not None and type(value) is not ordered:
        return ordered((k, dict.__getitem__(value, k)) for k in ordered.__iter__(value))
    plain: tuple[Any, ...] = (dict, list, set) if ordered is None else ()
    return next((k for k in plain if isinstance(value, k)), type(value)).copy(value)


def _refold_data(value: Any) -> bytes | None:
    """What an array of numbers holds, where it is not large."""
    if _refold_of_numpy(value, "ndarray"):
        small = value.nbytes <= _REFOLD_LARGEST and not value.dtype.hasobject
        return value.tobytes() if small else None
    small = (isinstance(value, bytearray) or _refold_named(value) == "array.array") and len(
        value
    ) <= _REFOLD_LARGEST // 8
    return bytes(value) if small else None


def _refold_stands_for(value: Any, names: Any) -> list[Any]:
    """What is called by the name of another function, as static methods and what
    `functools.update_wrapper` has changed: that function, and the fields beside it."""
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, type) or "__wrapped__" not in getattr(value, "__dict__", {}):
        return []
    fields = {**vars(value), **(_refold_counted(value, names) or {})}
    return [part for item in fields.items() for part in item]


def _refold_setting(
    value: Any, depth: int = 0, names: Any = None, known: Any = None, places: Any = None
) -> Any:
    """A plain value itself; of a list, dict, set, array, function or object that holds values a
    text that differs where one of them does; None of all else, which nothing can be said of.

    names: of an object the fields that count; all, where there are none. known: what was looked at
    by its id, and its text: many may hold the same, or themselves. places: of the modules that the
    model has at a place of their own, which says all of them (`_refold_places`).
    """
    if _refold_is_plain(value):
        return value
    if value is _RefoldVaries:
        return "a number that varies"
    place = _refold_place(value, places)
    if place is not None:
        return f"the module {place}"
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)][1]
    kind, inner = type(value), None
    named = value if callable(value) and hasattr(value, "__qualname__") else kind
    home = _refold_home_of(named)
    # a file's own module has another name once the file is written out
    name = (f"{home}." if home in _REFOLD_HOMES else "") + str(named.__qualname__)
    if isinstance(value, tuple):
        inner = list(value)
    elif isinstance(value, list) or _refold_is_deque(value):
        own = _refold_own(value)
        inner = [*_refold_without(value, dict(enumerate(own)), places).values()]
    elif isinstance(value, (dict, types.MappingProxyType)):
        own = _refold_without(value, _refold_own(value), places)
        inner = [part for item in own.items() for part in item]
    elif isinstance(value, (set, frozenset)):
        inner = sorted(value, key=repr)
    elif named is value:
        inner, code = [], getattr(value, "__code__", None)
        # others of that name may do something else: after a reload, or around it (functools.wraps)
        if isinstance(code, types.CodeType) and (home not in _REFOLD_HOMES or "<" in name):
            inner = [*_refold_code(code), value.__defaults__, value.__kwdefaults__]
            inner += [_refold_content(cell) for cell in value.__closure__ or ()]
            inner += [vars(value)] if vars(value) else []
        inner += [value.__self__] if isinstance(value, types.MethodType) else []
        inner += _refold_stands_for(value, names) if code is None else []
    elif name == "functools.partial":
        inner = [value.func, value.args, value.keywords]
    elif _refold_is_number(value) or name in ("torch.dtype", "torch.device"):
        return f"{name} {value!r}"
    elif (data := _refold_data(value)) is not None:
        form = getattr(value, "dtype", getattr(value, "typecode", "")), getattr(value, "shape", "")
        inner = [*map(str, form), data.hex()]
    elif _refold_is_variable(value):
        inner = [value.get(None)]
    elif (fields := _refold_counted(value, names)) is not None:
        inner = [part for item in _refold_without(value, fields, places).items() for part in item]
    if inner is None:
        return None
    deeper = depth < _REFOLD_DEEPEST and len(known) < _REFOLD_VALUES
    known[id(value)] = value, f"{name} in itself"
    parts = [_refold_setting(v, depth + 1, names, known, places) if deeper else None for v in inner]
    pairs = zip(parts, inner, strict=True)
    said = ("?" if p is None and v is not None else repr(p) for p, v in pairs)
    text = f"{name}({', '.join(said)})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    known[id(value)] = value, text if len(text) <= 100 else f"{name} {digest}"
    return known[id(value)][1]
