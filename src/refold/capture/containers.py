"""What forward takes and returns its tensors in: one table of containers.

A value is taken apart into a tree: `Slot` stands for a tensor, `Built` for a container, and plain
Python values for themselves. From the tree the value is put together again with other tensors, and
it is written out as text.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import importlib
import importlib.util
import inspect
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture.values import CaptureError
from refold.ir import Sym
from refold.ir.literals import python_literal
from refold.runtime.containers import _refold_made

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)
_DEPTH = 16  # of containers in containers
_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Slot:
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


# --- whole values -------------------------------------------------------------------------------
class Apart:
    """Takes values apart; tensors (and sizes) are collected in `leaves`, each once.

    given: paths of objects, by their id, that are to stay the very objects. repeats: a tensor that
    is met again gets a slot of its own.
    """

    def __init__(self, given: Mapping[int, str] | None = None, repeats: bool = False) -> None:
        self.leaves: list[Any] = []
        self.given = given or {}
        self.repeats = repeats
        self.containers: dict[int, Any] = {}  # kept, so that no other gets its id
        self._known: dict[int, Slot] = {}

    def tree(self, value: Any, what: str, depth: int = 0) -> Any:
        """The tree of a value. Raises CaptureError for what no form takes; what: words for it."""
        if id(value) in self.given:
            return Given(self.given[id(value)])
        if isinstance(value, torch.Tensor) or type(value) in _SIZES:
            if self.repeats or id(value) not in self._known:
                self._known[id(value)] = Slot(len(self.leaves))
                self.leaves.append(value)
            return self._known[id(value)]
        if type(value) in PLAIN:
            return value
        if isinstance(value, type):
            return Built(value, "class", (), ())
        if depth > _DEPTH:
            raise CaptureError(f"{what} has containers in containers, {_DEPTH} deep or without end")
        reasons = []
        for name, form in FORMS.items():
            split = form.split(value)
            if split is None:
                continue
            keys, parts, extra = split
            try:
                inner = tuple(self.tree(p, what, depth + 1) for p in parts)
            except CaptureError as error:
                reasons.append(error)
                continue
            self.containers[id(value)] = value
            return Built(type(value), name, tuple(keys), inner, extra)
        if reasons:
            raise reasons[0]
        raise CaptureError(
            f"{what} a {type(value).__name__}; what can be taken apart are tensors, numbers, text,"
            " tuples, lists, dicts, objects of Python classes, and classes registered with"
            " torch.utils._pytree"
        )


def together(
    tree: Any, leaves: Sequence[Any], made: dict[str, Any] | None = None, path: str = ""
) -> Any:
    """The value of a tree with other tensors. made: gets each container by its path."""
    if isinstance(tree, Slot):
        return leaves[tree.index]
    if not isinstance(tree, Built):
        return tree
    form = FORMS[tree.form]
    parts = [
        together(part, leaves, made, f"{path}{form.step(key) or '?'}")
        for key, part in zip(tree.keys, tree.parts, strict=True)
    ]
    value = form.join(tree, parts)
    if made is not None:
        made[path] = value
    return value


def walk(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every tensor, plain value and container with its path, a container before its parts.

    Raises CaptureError for a part that no path reaches.
    """
    yield path, tree
    if isinstance(tree, Built):
        for key, part in zip(tree.keys, tree.parts, strict=True):
            step = FORMS[tree.form].step(key)
            if step is None or any(c in step for c in '"{}\\'):
                raise CaptureError(
                    f"no Python text reaches what the {tree.kind.__name__} {path} holds"
                )
            yield from walk(part, path + step)


def walk_leaves(tree: Any) -> Iterator[Any]:
    """All that is no container."""
    if isinstance(tree, Built):
        for part in tree.parts:
            yield from walk_leaves(part)
    else:
        yield tree


def forms_of(tree: Any) -> Iterator[str]:
    """The form of each container."""
    return (part.form for _, part in _built(tree))


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with `change` applied to all that is no container."""
    if not isinstance(tree, Built):
        return change(tree)
    parts = tuple(mapped(p, change) for p in tree.parts)
    return Built(tree.kind, tree.form, tree.keys, parts, tree.extra)


def written(tree: Any, leaf: Callable[[Any], str], classes: Mapping[type, str]) -> str:
    """A tree as Python text. leaf: the text of what is no container. classes: texts of classes."""
    if not isinstance(tree, Built):
        return leaf(tree)
    texts = [written(p, leaf, classes) for p in tree.parts]
    return FORMS[tree.form].text(tree, classes.get(tree.kind, tree.kind.__name__), texts)


def condition(tree: Built, path: str, cls: str) -> str:
    """Text of the condition that the value at `path` is arranged otherwise than `tree`."""
    return FORMS[tree.form].test(tree, path, cls)


def plain_text(value: Any) -> str:
    """A plain value as Python text."""
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, Sym):
        raise TypeError("a size that varies is no plain value")
    return repr(value) if isinstance(value, str) else python_literal(value)


# --- classes ------------------------------------------------------------------------------------
def classes_of(trees: Sequence[Any], module: torch.nn.Module) -> dict[type, str]:
    """Text that gives the class of each container but tuple, list and dict, where Model is defined.

    Raises CaptureError for a class that no text reaches.
    """
    found: dict[type, str] = {}
    for tree in trees:
        for _, part in _built(tree):
            kind = part.kind
            if kind in found or (part.form != "class" and kind in _BUILT_IN):
                continue
            text = _class_text(kind, type(module))
            if text is None:
                raise CaptureError(
                    f"forward takes or returns a {kind.__qualname__}, a class that an emitted file"
                    " cannot name: define it at the top of a module that can be imported, or of"
                    " forward's own file"
                )
            found[kind] = text
    return found


_BUILT_IN = (tuple, list, dict, torch.Size)


def _built(tree: Any) -> Iterator[tuple[None, Built]]:
    if isinstance(tree, Built):
        yield None, tree
        for part in tree.parts:
            yield from _built(part)


def _class_text(kind: type, model: type) -> str | None:
    if kind.__module__ == "torch.return_types":
        return f"torch.return_types.{kind.__name__}"
    forward = getattr(model, "forward", None)
    for text, function in (
        ("Model.forward", forward),
        (
            '__import__("inspect").unwrap(Model.forward)',
            inspect.unwrap(forward) if forward else None,
        ),
    ):
        for name, value in getattr(function, "__globals__", {}).items():
            if value is kind:
                return f"{text}.__globals__[{name!r}]"
            if isinstance(value, types.ModuleType) and getattr(value, kind.__name__, None) is kind:
                return f"{text}.__globals__[{name!r}].{kind.__name__}"
        for i, cell in enumerate(getattr(function, "__closure__", None) or ()):
            try:
                if cell.cell_contents is kind:
                    return f"{text}.__closure__[{i}].cell_contents"
            except ValueError:  # nothing is in it
                continue
    return _imported(kind)


def _imported(kind: type) -> str | None:
    """Text that imports a class, where an import gives it in any other process, too."""
    name, path = kind.__module__, kind.__qualname__
    try:
        spec = importlib.util.find_spec(name)
        value: Any = importlib.import_module(name)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError):
        return None
    if value is not kind or name == "__main__" or spec is None:
        return None
    return f'__import__("importlib").import_module({name!r}).{path}'
