"""What is compared of attributes and globals: plain values, lists, functions, objects."""

import enum
import hashlib
import math
import types
from typing import Any

_REFOLD_HOMES = ("torch", "builtins", "functools")


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


def _refold_setting(value: Any, depth: int = 0) -> Any:
    """A plain value itself; of a list, dict, set, function or object that holds values a text that
    differs where one of them does; None of all else, which nothing can be said of."""
    numbers = enum.Enum, bool, int, float, complex, str, bytes, range, slice
    if _refold_is_plain(value):
        return value
    kind, inner = type(value), None
    named = value if callable(value) and hasattr(value, "__qualname__") else kind
    home = str(getattr(named, "__module__", None)).split(".")[0]
    # a file's own module has another name once the file is written out
    name = (f"{home}." if home in _REFOLD_HOMES else "") + named.__qualname__
    if isinstance(value, (list, tuple)):
        inner = list(value)
    elif isinstance(value, dict):
        inner = [part for item in value.items() for part in item]
    elif isinstance(value, (set, frozenset)):
        inner = sorted(value, key=repr)
    elif named is value:
        inner, code = [], getattr(value, "__code__", None)
        # others of that name may do something else: after a reload, or around it (functools.wraps)
        if isinstance(code, types.CodeType) and (home not in _REFOLD_HOMES or "<" in name):
            inner = [*_refold_code(code), value.__defaults__, value.__kwdefaults__]
            inner += [_refold_content(cell) for cell in value.__closure__ or ()]
    elif name == "functools.partial":
        inner = [value.func, value.args, value.keywords]
    elif isinstance(value, numbers) or name in ("torch.dtype", "torch.device"):
        return f"{name} {value!r}"
    elif home != "torch" and not callable(value) and type(getattr(value, "__dict__", 0)) is dict:
        held = [(k, v, _refold_setting(v, depth + 1)) for k, v in vars(value).items() if depth < 4]
        if all(v is None or s is not None for _, v, s in held):
            inner = [part for k, _, s in held for part in (k, s)]
    if inner is None:
        return None
    parts = [_refold_setting(v, depth + 1) if depth < 4 else None for v in inner]
    text = f"{name}({', '.join(map(repr, parts))})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text if len(text) <= 100 else f"{name} {digest}"


def _refold_containers(value: Any, depth: int = 0) -> tuple[Any, ...]:
    """Each list, dict and set that an attribute holds, followed by what it holds now."""
    if isinstance(value, tuple):
        return tuple(c for v in value for c in _refold_containers(v, depth + 1))
    held = value
    if not isinstance(value, (list, dict, set)):
        held = getattr(value, "__dict__", None)
        if type(held) is not dict or depth > 3 or _refold_setting(value, depth) is None:
            return ()
    now = held.copy()
    inner = now.values() if isinstance(now, dict) else now
    below = (c for v in inner if depth < 4 for c in _refold_containers(v, depth + 1))
    return (held, now, *below)
