"""Forms of containers: one table of how each is taken apart, put together, tested and written.

`Slot` stands for a tensor, `Built` for a container, plain Python values for themselves.
"""

import copyreg
import enum
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.runtime.containers import _refold_made


@dataclass(frozen=True)
class OutputIndex:
    """The place of tensor number `index`."""

    index: int


@dataclass(frozen=True)
class Given:
    """The very object that forward reads at `path`."""

    path: str


@dataclass(frozen=True)
class Viewed:
    """A view of what forward reads at `path`, by calls of PyTorch without their first argument.

    Each call is (operator, the other arguments, keyword arguments, index of the result or None).
    """

    path: str
    calls: tuple[tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...], int | None], ...]


@dataclass(frozen=True)
class Built:
    """A container of class `kind`.

    form: the name of its row in FORMS. keys: what reaches each part. extra: what else the form has
    to know.
    """

    kind: type
    form: str
    keys: tuple[Any, ...]
    parts: tuple[Any, ...]
    extra: Any = None


Texts = Sequence[str]


@dataclass(frozen=True)
class Form:
    """How containers of one form are handled.

    split: keys, parts and extra of a value, or None where it is of another form. join: a value of
    the same class with other parts. text: Python text that joins, from the text of the class and of
    the parts. step: what is appended to the path of the container to reach a part. test: text of
    the condition that a value at a path is arranged otherwise.
    """

    split: Callable[[Any], tuple[Sequence[Any], Sequence[Any], Any] | None]
    join: Callable[[Built, Sequence[Any]], Any]
    text: Callable[[Built, str, Texts], str]
    step: Callable[[Any], str | None]
    test: Callable[[Built, str, str], str]


def _item(key: Any) -> str:
    return f"[{key!r}]"


def _in_brackets(texts: Texts) -> str:
    return "(" + ", ".join(texts) + ("," if len(texts) == 1 else "") + ")"


def _mapping(keys: Sequence[Any], texts: Texts) -> str:
    return "{" + ", ".join(f"{k!r}: {t}" for k, t in zip(keys, texts, strict=True)) + "}"


def _of_another_class(path: str, cls: str) -> str:
    return f"type({path}) is not {cls}"


# --- members of enumerations: themselves ---------------------------------------------------------
def _split_member(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    if not isinstance(value, enum.Enum):
        return None
    if value.name in type(value).__members__:
        return (), (), value.name
    # several flags together have no name of their own
    return ((), (), value.value) if isinstance(value, enum.IntFlag | enum.Flag) else None


def _member_text(tree: Built, cls: str) -> str:
    return f"{cls}[{tree.extra!r}]" if isinstance(tree.extra, str) else f"{cls}({tree.extra!r})"


def _join_member(tree: Built, parts: Sequence[Any]) -> Any:
    kind: Any = tree.kind
    return kind[tree.extra] if isinstance(tree.extra, str) else kind(tree.extra)


# --- lists and tuples ---------------------------------------------------------------------------
def _split_sequence(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    return (
        (range(len(value)), list(value), None) if type(value) in (list, tuple, torch.Size) else None
    )


def _split_named(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    kind = type(value)
    if not isinstance(value, tuple) or kind.__module__ == "torch.return_types":
        return None
    named = hasattr(kind, "_fields") and not getattr(value, "__dict__", None)
    return (range(len(value)), list(value), None) if named else None


def _split_results(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    several = type(value).__module__ == "torch.return_types"
    return (range(len(value)), list(value), None) if several else None


# --- dictionaries -------------------------------------------------------------------------------
def _split_dict(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    if type(value) not in (dict, OrderedDict) or not all(map(_is_literal, value.keys())):
        return None
    return list(value), list(value.values()), None


def _split_dict_class(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    kind = type(value)
    base = OrderedDict if isinstance(value, OrderedDict) else dict
    if (
        not isinstance(value, dict)
        or kind in (dict, OrderedDict)
        or kind.__new__ is not base.__new__
    ):
        return None
    if _is_of_c(kind, base) or not all(map(_is_literal, dict.keys(value))):
        return None
    items = dict(base.items(value))
    held = dict(vars(value))
    same = tuple(k for k, v in held.items() if k in items and items[k] is v)
    keys = [("[]", k) for k in items] + [(".", k) for k in held if k not in same]
    parts = [*items.values(), *(v for k, v in held.items() if k not in same)]
    return keys, parts, same


def _is_of_c(kind: type, base: type) -> bool:
    """Does a class between `kind` and `base` keep something of its own in C?"""
    between = kind.__mro__[: kind.__mro__.index(base)]
    return any(
        not c.__flags__ & (1 << 9) and c is not object for c in between
    )  # Py_TPFLAGS_HEAPTYPE


def _items_and_attributes(
    tree: Built, parts: Sequence[Any]
) -> tuple[dict[Any, Any], dict[str, Any]]:
    pairs = list(zip(tree.keys, parts, strict=True))
    return (
        {k: p for (how, k), p in pairs if how == "[]"},
        {k: p for (how, k), p in pairs if how == "."},
    )


def _join_made(tree: Built, parts: Sequence[Any]) -> Any:
    return _refold_made(tree.kind, *_items_and_attributes(tree, parts), tree.extra or ())


def _made_text(tree: Built, cls: str, texts: Texts) -> str:
    items, attributes = _items_and_attributes(tree, texts)
    held = (_mapping(list(d), list(d.values())) for d in (items, attributes))
    same = f", {tree.extra!r}" if tree.extra else ""
    return f"_refold_made({cls}, {', '.join(held)}{same})"


def _made_step(key: Any) -> str | None:
    how, name = key
    if how == "[]":
        return _item(name)
    return f".{name}" if name.isidentifier() else None


def _made_test(tree: Built, path: str, cls: str) -> str:
    tests = [_of_another_class(path, cls)]
    if issubclass(tree.kind, dict):
        tests.append(f"tuple({path}) != {tuple(k for how, k in tree.keys if how == '[]')!r}")
    elif tree.extra is None:
        tests.append(f"vars({path}).keys() != {_set_text(k for _, k in tree.keys)}")
    return " or ".join(tests)


def _set_text(names: Any) -> str:
    return "{" + ", ".join(sorted(map(repr, names))) + "}" if (names := list(names)) else "set()"


# --- objects ------------------------------------------------------------------------------------
def _split_object(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    """Of dataclasses, attrs classes and all else that is nothing but its attributes."""
    kind: Any = type(value)
    strange = isinstance(
        value, (type, types.ModuleType, torch.nn.Module, torch.Tensor, enum.Enum, *_CALLED)
    )
    plain = (
        kind.__new__ is object.__new__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and not _is_of_c(kind, object)
    )
    if strange or not plain:
        return None
    slots = [n for n in copyreg._slotnames(kind) if hasattr(value, n)]  # type: ignore[attr-defined]
    names = [*getattr(value, "__dict__", {}), *slots]
    return [(".", n) for n in names], [getattr(value, n) for n in names], () if slots else None


_CALLED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


# --- classes that say how they are taken apart --------------------------------------------------
def _split_registered(value: Any) -> tuple[Sequence[Any], Sequence[Any], Any] | None:
    node = pytree.SUPPORTED_NODES.get(type(value))
    if node is None:
        return None
    parts, context = node.flatten_fn(value)
    if not _is_literal(context):
        return None
    return range(len(parts)), list(parts), context


def _join_registered(tree: Built, parts: Sequence[Any]) -> Any:
    return pytree.SUPPORTED_NODES[tree.kind].unflatten_fn(list(parts), tree.extra)


def _registered_text(tree: Built, cls: str, texts: Texts) -> str:
    node = f"torch.utils._pytree.SUPPORTED_NODES[{cls}]"
    return f"{node}.unflatten_fn([{', '.join(texts)}], {tree.extra!r})"


def _is_literal(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_literal, value))
    return type(value) in (bool, int, float, str, bytes, type(None))


FORMS: dict[str, Form] = {
    "sequence": Form(
        _split_sequence,
        lambda tree, parts: tree.kind(parts),
        lambda tree, cls, texts: (
            f"[{', '.join(texts)}]"
            if tree.kind is list
            else f"torch.Size({_in_brackets(texts)})"
            if tree.kind is torch.Size
            else _in_brackets(texts)
        ),
        _item,
        lambda tree, path, cls: (
            f"{_of_another_class(path, cls)} or len({path}) != {len(tree.parts)}"
        ),
    ),
    "named tuple": Form(
        _split_named,
        lambda tree, parts: tree.kind._make(parts),  # type: ignore[attr-defined]
        lambda tree, cls, texts: f"{cls}._make({_in_brackets(texts)})",
        _item,
        lambda tree, path, cls: _of_another_class(path, cls),
    ),
    "results": Form(
        _split_results,
        lambda tree, parts: tree.kind(parts),
        lambda tree, cls, texts: f"{cls}({_in_brackets(texts)})",
        _item,
        lambda tree, path, cls: _of_another_class(path, cls),
    ),
    "dictionary": Form(
        _split_dict,
        lambda tree, parts: tree.kind(zip(tree.keys, parts, strict=True)),
        lambda tree, cls, texts: (
            _mapping(tree.keys, texts)
            if tree.kind is dict
            else f"{cls}({_mapping(tree.keys, texts)})"
        ),
        _item,
        lambda tree, path, cls: (
            f"{_of_another_class(path, cls)} or tuple({path}) != {tuple(tree.keys)!r}"
        ),
    ),
    "class of dictionaries": Form(
        _split_dict_class, _join_made, _made_text, _made_step, _made_test
    ),
    "object": Form(_split_object, _join_made, _made_text, _made_step, _made_test),
    "member": Form(
        _split_member,
        _join_member,
        lambda tree, cls, texts: _member_text(tree, cls),
        lambda key: None,
        lambda tree, path, cls: f"{path} is not {_member_text(tree, cls)}",
    ),
    "class": Form(  # itself, which an object may hold
        lambda value: None,
        lambda tree, parts: tree.kind,
        lambda tree, cls, texts: cls,
        lambda key: None,
        lambda tree, path, cls: f"{path} is not {cls}",
    ),
    "registered": Form(
        _split_registered,
        _join_registered,
        _registered_text,
        lambda key: None,
        lambda tree, path, cls: _of_another_class(path, cls),
    ),
}
