"""An alias twin of a module: what torch.export is given in the module's place.

torch.export leaves weak references on the parameters that it sees, by which `swap_tensors` and a
conversion that swaps would fail later; and forward may set attributes. The twin has the same tree
of modules, copied shallowly, without hooks. Each tensor is another view of the same memory: no
element is copied.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch

from refold.runtime.structure import _refold_collector


class NoTwin(Exception):
    """A module of which no twin can be made."""


def twin_of(module: torch.nn.Module) -> torch.nn.Module:
    """The alias twin. Raises NoTwin where a part of the module cannot be copied."""
    try:
        made: torch.nn.Module = _Copies(module).of(module)
        return made
    except NoTwin:
        raise
    except Exception as error:  # a class's own __new__ or a tensor's detach, for example
        raise NoTwin(str(error)) from error


def apart_of(module: torch.nn.Module, whole: bool = False) -> torch.nn.Module:
    """A copy that has the very parameters of a module, or of those, too, its own where it is to be
    `whole`; and buffers and other tensors of its own. What functions close over is copied, too,
    which `copy.deepcopy` leaves as it is."""
    shared = () if whole else tuple(module.parameters())
    try:
        made: torch.nn.Module = _Apart(module, shared).of(module)
        return made
    except Exception:  # what no twin can be made of
        return copy.deepcopy(module, {id(p): p for p in shared})


def has_hooks(module: torch.nn.Module) -> bool:
    """Does anything act around a forward in it, or stand in one's place?"""
    return any(
        "forward" in vars(m) or any(map(_may_go, vars(m).get(h, {}).values()))
        for m in module.modules()
        for h in _HOOKS
    )


def _may_go(hook: Any) -> bool:
    """Of a library's own hooks, which forward itself registers, none goes."""
    return _refold_collector(hook) is None


_LISTS = (list, tuple, set, frozenset, torch.Size)
_DICTS = (dict, OrderedDict)
_DEPTH = 150
# What acts around a forward, and a forward that is a module's own, may go; while one is there the
# original is taken. So what is captured is without them.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


class _Copies:
    """Copies of modules, tensors and what holds them, each made once. A module that is none of the
    `root`'s parts, but is held by one, keeps its hooks: they are settings of that part."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.parts = {id(m) for m in root.modules()}
        self.made: dict[int, Any] = {}
        self.originals: list[Any] = []  # kept, so that no other object gets their ids
        self.holds: dict[int, bool] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        if depth > _DEPTH:
            raise NoTwin("objects in objects without end")
        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(value, torch.nn.Module):
            return self._module(value, depth)
        if isinstance(value, torch.Tensor):
            return self._keep(value, self.tensor(value))
        kind = type(value)
        if kind in _DICTS:
            copied = self._keep(value, kind())
            for k, v in value.items():
                copied[self.of(k, depth + 1) if self._reaches(k) else k] = self.of(v, depth + 1)
            return copied
        if kind is list:
            copied = self._keep(value, [])
            copied.extend(self.of(v, depth + 1) for v in value)
            return copied
        if kind is set:
            return self._keep(value, {self.of(v, depth + 1) for v in value})
        if not self._reaches(value):
            return self.plain(value)
        return self._keep(value, self._holder(value, depth))

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        return alias_of(value)

    def plain(self, value: Any) -> Any:
        """What stands for a value that holds no module and no tensor."""
        return value

    def _keep(self, value: Any, copied: Any) -> Any:
        self.originals.append(value)
        self.made[id(value)] = copied
        return copied

    def _module(self, module: torch.nn.Module, depth: int) -> torch.nn.Module:
        if isinstance(module, torch.jit.ScriptModule):
            raise NoTwin("a module is a compiled script")
        kind = type(module)
        # not kind.__new__: that of a GraphModule makes a class without a forward
        copied: torch.nn.Module = self._keep(module, object.__new__(kind))
        is_part = id(module) in self.parts
        for name, value in vars(module).items():
            if name in _HOOKS and is_part:
                kept = {key: hook for key, hook in value.items() if not _may_go(hook)}
                copied.__dict__[name] = type(value)(kept)
            elif name != "forward" or not is_part:
                copied.__dict__[name] = self.of(value, depth + 1)
        return copied

    def _holder(self, value: Any, depth: int) -> Any:
        """A copy of what holds modules or tensors, and is no list or dict."""
        kind: Any = type(value)

        def of(v: Any) -> Any:
            return self.of(v, depth + 1)

        if kind in (tuple, frozenset):
            return kind(of(v) for v in value)
        if isinstance(value, tuple) and hasattr(kind, "_make"):
            return kind._make(of(v) for v in value)
        if kind is types.MethodType:
            return types.MethodType(of(value.__func__), of(value.__self__))
        if kind is functools.partial:
            keywords = {k: of(v) for k, v in value.keywords.items()}
            return functools.partial(of(value.func), *map(of, value.args), **keywords)
        if kind is weakref.ref:
            return weakref.ref(of(value()))
        if kind is types.CellType:
            return types.CellType(of(value.cell_contents))
        if kind is types.FunctionType:
            copied = types.FunctionType(
                value.__code__,
                value.__globals__,
                value.__name__,
                value.__defaults__ and tuple(map(of, value.__defaults__)),
                value.__closure__ and tuple(map(of, value.__closure__)),
            )
            copied.__kwdefaults__ = value.__kwdefaults__
            copied.__dict__.update({k: of(v) for k, v in vars(value).items()})
            copied.__qualname__, copied.__module__ = value.__qualname__, value.__module__
            return copied
        if kind.__new__ is not object.__new__ and not isinstance(value, (dict, list)):
            raise NoTwin(f"a {kind.__name__} holds modules or tensors")
        copied = self._keep(value, kind.__new__(kind))
        if isinstance(value, dict):
            for k, v in dict.items(value):
                (OrderedDict if isinstance(value, OrderedDict) else dict).__setitem__(
                    copied, k, of(v)
                )
        elif isinstance(value, list):
            list.extend(copied, map(of, value))
        for name, v in vars(value).items():
            copied.__dict__[name] = of(v)
        return copied

    def _reaches(self, value: Any) -> bool:
        """Does an object hold a module or a tensor, in whatever it holds?"""
        todo, seen = [value], {}
        while todo:
            one = todo.pop()
            if isinstance(one, (torch.nn.Module, torch.Tensor)) or self.holds.get(id(one)):
                self.originals.append(value)
                self.holds[id(value)] = True
                return True
            if id(one) in seen or self.holds.get(id(one)) is False:
                continue
            seen[id(one)] = one
            todo += inside(one)
        for one in seen.values():
            self.originals.append(one)
            self.holds[id(one)] = False
        return False


class _Apart(_Copies):
    def __init__(self, root: torch.nn.Module, shared: Iterable[torch.Tensor]) -> None:
        super().__init__(root)
        self.memo: dict[int, Any] = {id(p): p for p in shared}

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = copy.deepcopy(value, self.memo)
        return made

    def plain(self, value: Any) -> Any:
        try:
            return copy.deepcopy(value, self.memo)
        except Exception:  # a lock, for example
            return value


def inside(value: Any) -> list[Any]:
    """What an object holds directly."""
    kind = type(value)
    if isinstance(value, (str, bytes, int, float, type, types.ModuleType)) or value is None:
        return []
    if isinstance(value, dict):
        found = [*dict.values(value)]
    elif isinstance(value, (list, tuple, set, frozenset)):
        found = [*value]
    elif kind is types.MethodType:
        return [value.__self__, value.__func__]
    elif kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    elif kind is weakref.ref:
        return [value()]
    elif kind is types.CellType:
        try:
            return [value.cell_contents]
        except ValueError:
            return []
    elif kind is types.FunctionType:
        found = [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    else:
        found = []
    return [*found, *vars(value).values()] if type(getattr(value, "__dict__", 0)) is dict else found


def alias_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory under another tensor with the same flags."""
    kind = type(tensor)
    if kind not in (torch.Tensor, torch.nn.Parameter) and not _is_buffer(tensor):
        raise NoTwin(f"a {kind.__name__}")
    alias = tensor.detach()
    if isinstance(tensor, torch.nn.Parameter):
        alias = torch.nn.Parameter(alias, requires_grad=tensor.requires_grad)
    elif tensor.requires_grad and tensor.is_leaf:
        alias.requires_grad_()
    alias.__dict__.update(tensor.__dict__)
    return alias


def _is_buffer(tensor: torch.Tensor) -> bool:
    return getattr(tensor, "_is_buffer", False) and type(tensor).__module__ == "torch.nn.parameter"
