"""Values beside tensors that pass between parent and worker: they are compared by equality."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch


@dataclass(frozen=True)
class Member:
    """A member of an enumeration. Reference and candidate each have a class of their own, so it is
    known by the names."""

    kind: str
    name: str

    def __repr__(self) -> str:
        return f"{self.kind}.{self.name}"


_BASES: tuple[type[Any], ...] = (int, float, complex, str, bytes)
# What PyTorch names: dtypes, layouts, memory formats.
_NAMED_KINDS = (torch.dtype, torch.layout, torch.memory_format)
_NAMED = {str(v): v for v in vars(torch).values() if isinstance(v, _NAMED_KINDS)}


def value(leaf: Any) -> Any:
    """A leaf of an output as it is sent and compared; what cannot be compared stays as it is.

    Subclasses of Python's numbers and strings become those, NumPy's numbers become Python's, and a
    member of an enumeration becomes a `Member`.
    """
    if isinstance(leaf, bool):
        return leaf
    for base in _BASES:
        if isinstance(leaf, base):
            # a subclass may say otherwise of itself
            return leaf if type(leaf) is base else base(_base_value(leaf))
    if isinstance(leaf, enum.Enum):
        name = getattr(leaf, "_name_", None) or repr(leaf.value)
        return Member(type(leaf).__name__, str(name))
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "dtype") and not getattr(leaf, "ndim", 1):
        return leaf.item()
    return leaf


def record(tree: Any) -> dict[str, Any] | None:
    """The fields that a data class's object has, by name; None of what is no such object, or is a
    container besides, which is known by what it contains."""
    if isinstance(tree, type | dict | list | tuple) or not hasattr(tree, "__dataclass_fields__"):
        return None
    return {f.name: getattr(tree, f.name) for f in fields(tree) if hasattr(tree, f.name)}


def opened(tree: Any) -> Any:
    """An object of a data class as a dict whose keys no dict has that a file gives: who has fields
    is no dict. The class is not told: reference and candidate have each its own. Others as they
    are."""
    found = record(tree)
    return tree if found is None else {Member("field", k): v for k, v in found.items()}


def refilled(tree: Any, change: Callable[[Any], Any]) -> Any:
    """An object of a data class like the one that is given, each field changed."""
    new = copy.copy(tree)
    for name, held in (record(tree) or {}).items():
        object.__setattr__(new, name, change(held))  # frozen ones, too
    return new


def key(given: Any) -> Any:
    """A dict's key as it is sent and compared."""
    if isinstance(given, Member):
        return given
    if isinstance(given, tuple):
        return tuple(key(v) for v in given)
    found = value(given)
    return found if encode(found) is not None else name_of(found)


def name_of(leaf: Any) -> str:
    """What stands for a value that cannot be sent."""
    return f"<{type(leaf).__module__}.{type(leaf).__qualname__}>"


def _base_value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, enum.Enum) else leaf


def encode(leaf: Any) -> dict[str, Any] | None:
    """The JSON of a value; None of what is no such value."""
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return {"v": leaf}
    if isinstance(leaf, _NAMED_KINDS):
        return {"y": str(leaf)}
    if isinstance(leaf, torch.device):
        return {"p": str(leaf)}
    if isinstance(leaf, complex):
        return {"c": [leaf.real, leaf.imag]}
    if isinstance(leaf, bytes):
        return {"b": leaf.hex()}
    if isinstance(leaf, Member):
        return {"e": [leaf.kind, leaf.name]}
    return None


def decode(sent: dict[str, Any]) -> Any:
    """The inverse of `encode`.

    Raises:
        KeyError, TypeError, ValueError, RuntimeError: no value.
    """
    if "v" in sent:
        plain = sent["v"]
        if plain is not None and not isinstance(plain, bool | int | float | str):
            raise ValueError("no plain value")
        return plain
    if "p" in sent:
        return torch.device(str(sent["p"]))
    if "c" in sent:
        real, imaginary = sent["c"]
        return complex(float(real), float(imaginary))
    if "b" in sent:
        return bytes.fromhex(sent["b"])
    if "e" in sent:
        kind, name = sent["e"]
        return Member(str(kind), str(name))
    return _NAMED[sent["y"]]
