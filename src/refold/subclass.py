"""What is made of a user's class: a subclass, an empty instance, the program of an emitted text.

To the user it is one class with one set of instances. So nothing of the user's runs meanwhile: no
`__init_subclass__` and no metaclass that keeps a register or refuses subclasses, and no `__new__`
that wants arguments or gives one instance to all.
"""

from __future__ import annotations

import abc
import hashlib
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

import torch

from refold.emit.load import load_text

M = TypeVar("M", bound=torch.nn.Module)


class _Plain(torch.nn.Module):
    """What a subclass is of before it is the user's class's: this has no `__init_subclass__`."""


def subclass(cls: type[M], name: str, names: Mapping[str, Any]) -> type[M]:
    """A subclass of `cls` of this name and with these attributes."""
    kind = type(cls)
    make: Any = abc.ABCMeta.__new__ if issubclass(kind, abc.ABCMeta) else type.__new__
    try:
        made = make(kind, name, (_Plain,), {"__slots__": (), **names})
        made.__bases__ = (cls,)
    except TypeError:  # instances of the class lie in memory otherwise than a plain module's
        made = make(kind, name, (cls,), {"__slots__": (), **names})
    found: type[M] = made
    return found


def blank(cls: type[M]) -> M:
    """An instance without attributes."""
    try:
        return object.__new__(cls)
    except TypeError:  # a dict is a base, or another class that is no Python class
        return cls.__new__(cls)


class Program:
    """Emitted text that was imported for a class: what it computes, and why it would not.

    attempt(model, caches, *args, **kwargs) gives forward's result, or an instance of `refusal`.
    """

    def __init__(self, text: str, cls: type[torch.nn.Module]) -> None:
        self.text, self.cls = text, cls
        self.namespace: ModuleType = load_text(text, {"Model": cls}, keep=False, made=_made)
        self.attempt: Callable[..., Any] = self.namespace._refold_attempt
        # errors of a wrong call name forward, as the original's do
        self.attempt.__qualname__ = f"{cls.__qualname__}.forward"
        self.refusal: type[str] = self.namespace._RefoldReason


def _made(name: str, bases: tuple[type[M], ...], names: Mapping[str, Any]) -> type[M]:
    return subclass(bases[0], name, names)


_PROGRAMS: weakref.WeakValueDictionary[tuple[str, int], Program] = weakref.WeakValueDictionary()


def program(text: str, cls: type[torch.nn.Module]) -> Program:
    """The program of a text for a class; the same one for as long as somebody holds it."""
    key = hashlib.sha256(text.encode()).hexdigest(), id(cls)
    found = _PROGRAMS.get(key)
    if found is None or found.cls is not cls:
        found = _PROGRAMS[key] = Program(text, cls)
    return found
