"""What attributes and globals hold, and whether it is what it was: values, classes and order."""

import functools
import types
from typing import Any

import torch

from refold.runtime.settings import (
    _REFOLD_DEEPEST,
    _REFOLD_VALUES,
    _refold_content,
    _refold_counted,
    _refold_data,
    _refold_is_deque,
    _refold_is_function,
    _refold_is_number,
    _refold_is_plain,
    _refold_is_variable,
    _refold_named,
    _refold_own,
    _refold_place,
    _refold_without,
)


def _refold_equal(held: Any, then: Any) -> bool:
    """Does something hold what it held then?"""
    if isinstance(held, types.CellType):
        return _refold_content(held) is then
    if isinstance(held, (types.FunctionType, _RefoldSeen)):
        held = held if isinstance(held, _RefoldSeen) else _RefoldSeen(held)
        return bool(held == then)
    return _refold_alike(held, then)


def _refold_alike(held: Any, then: Any) -> bool:
    """Are two values the same to whoever computes with them? Python takes 1, True and 1.0 for
    equal, 0.0 and -0.0, and dicts in any order. Of others than plain values and what is made of
    them: are they one?"""
    if held is then:
        return True
    both = (dict, list, set)
    kind = next((k for k in both if isinstance(held, k) and isinstance(then, k)), None)
    if kind is None and type(held) is not type(then):
        return False
    if kind is not None:
        held, then = _refold_own(held), _refold_own(then)
        if kind is set:
            kinds = [sorted(map(_refold_named, s)) for s in (held, then)]
            return bool(held == then) and kinds[0] == kinds[1]
        if kind is dict:
            held, then = list(held.items()), list(then.items())
    elif _refold_is_number(held) or type(held) is torch.device:  # their texts say all
        plain = type(held) in (int, str, bytes)
        return bool(held == then) if plain else repr(held) == repr(then)
    elif not isinstance(held, tuple):
        return type(held) is types.CodeType and bool(held == then)
    return len(held) == len(then) and all(map(_refold_alike, held, then))


class _RefoldSeen:
    """Compares what something holds now, of what is no list, dict or set, or of a part of one."""

    def __init__(self, value: Any, names: Any = None, places: Any = None) -> None:
        """places: those in which numbers of this container vary, which are left out; or None."""
        self.value, self.names, self.places = value, names, places

    def now(self) -> Any:
        value = self.value
        if self.places is not None:
            if isinstance(value, (list, dict)):
                own = _refold_own(value)
                items = own if isinstance(own, dict) else dict(enumerate(own))
            else:
                items = _refold_counted(value, self.names) or {}
            return _refold_without(value, items, self.places)
        if _refold_is_variable(value):
            return value.get(None)
        if isinstance(value, types.FunctionType):
            return value.__code__, value.__defaults__, value.__kwdefaults__
        data = _refold_data(value)
        if data is not None:
            return data, getattr(value, "shape", None)
        if isinstance(value, dict):
            return {k: dict.get(value, k) for k in self.names}
        if isinstance(value, (set, types.MappingProxyType)) or _refold_is_deque(value):
            own = _refold_own(value)
            return list(own) if _refold_is_deque(value) else own
        return _refold_counted(value, self.names)

    def __eq__(self, other: object) -> bool:
        return _refold_alike(self.now(), other)

    __hash__ = None  # type: ignore[assignment]


def _refold_containers(
    value: Any, depth: int = 0, names: Any = None, known: Any = None, places: Any = None
) -> tuple[Any, ...]:
    """Whatever holds something in an attribute or a global, and what it holds now, in turns; of a
    function its (code, defaults, defaults of keywords).

    names: of objects the fields that count, or None for all. places: see `_refold_setting`.
    """
    known = {} if known is None else known
    if _refold_place(value, places) is not None:
        return ()
    if depth > _REFOLD_DEEPEST or id(value) in known or _refold_is_plain(value):
        return ()
    if len(known) >= _REFOLD_VALUES:
        return ()
    known[id(value)] = value
    pair: tuple[Any, ...] = ()
    inner: Any = ()
    own: Any
    if isinstance(value, tuple):
        inner = value
    elif isinstance(value, dict):
        pair, inner = (value, own := _refold_own(value)), own.values()
    elif isinstance(value, list):
        pair, inner = (value, own := _refold_own(value)), own
    elif isinstance(value, (set, types.MappingProxyType)) or _refold_is_deque(value):
        seen = _RefoldSeen(value)
        pair, inner = (seen, own := seen.now()), own.values() if isinstance(own, dict) else own
    elif isinstance(value, functools.partial):
        inner = (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        inner = (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        cells = value.__closure__ or ()
        if _refold_is_function(value):
            bound = [(c, _refold_content(c)) for c in cells]
            bound = [(c, v) for c, v in bound if v is not None]
            pair = (value, _RefoldSeen(value).now(), *(part for one in bound for part in one))
        inner = [*map(_refold_content, cells), value.__defaults__, value.__kwdefaults__]
        inner += [vars(value)]
    elif _refold_is_number(value):
        return ()
    elif _refold_data(value) is not None or _refold_is_variable(value):
        seen = _RefoldSeen(value)
        pair = (seen, seen.now())
    elif (fields := _refold_counted(value, names)) is not None:
        inner = fields.values()
        own = getattr(value, "__dict__", None)
        whole = (
            type(own) is dict
            and own.keys() == fields.keys()
            and _refold_named(value) != "_thread._local"
        )
        seen = own if whole else _RefoldSeen(value, names)
        pair = (seen, own.copy() if whole else seen.now())
    if pair and places and id(value) in places.get("varied", ()):
        alone = {"varied": {id(value): places["varied"][id(value)]}}
        pair = (seen := _RefoldSeen(value, names, alone), seen.now())
    below = (c for v in inner for c in _refold_containers(v, depth + 1, names, known, places))
    return (*pair, *below)
