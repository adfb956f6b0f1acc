"""What forward takes and returns its tensors in, as trees over the forms of forms.py.

A value is taken apart into a tree. From the tree the value is put together again with other
tensors, and it is written out as text.
"""

import importlib
import importlib.util
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from refold.capture.forms import FORMS, Built, Given, OutputIndex
from refold.capture.values import CaptureError
from refold.ir import Sym
from refold.ir.literals import python_literal

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)
_DEPTH = 16  # of containers in containers
_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)


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
        self._known: dict[int, OutputIndex] = {}

    def tree(self, value: Any, what: str, depth: int = 0) -> Any:
        """The tree of a value. Raises CaptureError for what no form takes; what: words for it."""
        if id(value) in self.given:
            return Given(self.given[id(value)])
        if isinstance(value, torch.Tensor) or type(value) in _SIZES:
            if self.repeats or id(value) not in self._known:
                self._known[id(value)] = OutputIndex(len(self.leaves))
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
    if isinstance(tree, OutputIndex):
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
