"""What is assumed of the modules inside a model, and what of them is looked at before every call.

`_REFOLD_MODULES` has a row for each module: its path, its class, the names of its parameters,
buffers and children (with a "-" before one that is None), and its settings. `_REFOLD_TIED`, where
there is one, has the paths of each parameter that is held in several places; `_REFOLD_GLOBALS` the
plain values among the globals that forward reads; `_REFOLD_OTHERS` the names of further attributes,
of whose values nothing is said.
"""

import functools
import operator
from collections.abc import Collection, Iterator, Sequence
from types import CellType, FunctionType
from typing import Any

import torch

from refold.runtime.held import _refold_alike, _refold_containers
from refold.runtime.met import _refold_is_library
from refold.runtime.reach import (
    _refold_absent,
    _refold_modules_of,
    _refold_plain_globals,
    _refold_reach_difference,
    _RefoldReached,
)
from refold.runtime.settings import _REFOLD_USUAL, _refold_is_plain, _refold_places, _refold_setting

_REFOLD_HOLDERS = ("_parameters", "_buffers", "_modules")
_REFOLD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# A library's own hooks, which its forward registers when it is first asked for values inside, and
# which write these to a global of this name, if forward has set it: by the module that they are of.
_REFOLD_COLLECTED = {"transformers.utils.output_capturing": "_active_collector"}


def _refold_collector(hook: Any) -> Any:
    """What a library's own hook writes to; None of others, of which nobody knows what they do."""
    name = _REFOLD_COLLECTED.get(getattr(hook, "__module__", ""), "")
    return getattr(hook, "__globals__", {}).get(name)


def _refold_collectors(model: torch.nn.Module) -> list[Any]:
    """What hooks of the modules inside a model write to, each once."""
    parts = (module for path, module in _refold_modules_of(model) if path)
    hooks = [h for m in parts for holder in _REFOLD_HOOKS for h in getattr(m, holder).values()]
    found = map(_refold_collector, hooks)
    return list({id(one): one for one in found if one is not None}.values())


def _refold_acts_around(module: torch.nn.Module) -> bool:
    """Does anything act around a module's forward, or stand in its place? A library's own hook does
    not while nobody outside of forward collects."""
    hooks = (hook for holder in _REFOLD_HOOKS for hook in getattr(module, holder).values())
    collectors = map(_refold_collector, hooks)
    return "forward" in vars(module) or any(c is None or c.get() is not None for c in collectors)


def _refold_held(module: torch.nn.Module) -> str:
    """The names of a module's parameters, buffers and children in order; "-" marks what is None."""
    found = []
    for holder in _REFOLD_HOLDERS:
        for name, value in getattr(module, holder).items():
            found.append(f"-{name}" if value is None else name)
    return " ".join(sorted(found))


def _refold_told_apart(now: set[str], then: set[str]) -> str:
    """What `_refold_held` gives now and gave then, in words."""
    more, less = ([f"'{n}'" for n in sorted(s) if n[:1] != "-"] for s in (now - then, then - now))
    gained = f"has {', '.join(more)}, which it had not" if more else ""
    lost = f"has no {', '.join(less)} any more" if less else ""
    return ", and ".join(filter(None, (gained, lost))) or "has other names that hold nothing"


def _refold_tied(model: torch.nn.Module) -> tuple[tuple[str, ...], ...]:
    """The paths of every parameter and buffer that is held under several names."""
    found: dict[int, list[str]] = {}
    for path, module in _refold_modules_of(model):
        for holder in ("_parameters", "_buffers"):
            for name, tensor in getattr(module, holder).items():
                if tensor is not None:
                    found.setdefault(id(tensor), []).append(f"{path}.{name}" if path else name)
    return tuple(tuple(paths) for paths in found.values() if len(paths) > 1)


def _refold_inside(model: torch.nn.Module, path: str) -> torch.nn.Module | None:
    """The module at a path, or None."""
    module: torch.nn.Module | None = model
    for part in path.split(".") if path else ():
        module = module._modules.get(part) if module is not None else None
    return module


def _refold_tensor(model: torch.nn.Module, path: str) -> Any:
    """What a path names: a parameter, a buffer or an attribute; None if there is none."""
    parent, _, name = path.rpartition(".")
    module = _refold_inside(model, parent)
    return None if module is None else getattr(module, name, None)


# settings of PyTorch's own modules that decide nothing in eval mode
_REFOLD_IN_TRAINING = (
    (torch.nn.modules.batchnorm._BatchNorm, "momentum"),
    (torch.nn.modules.dropout._DropoutNd, "p"),
)


def _refold_trains_alone(module: torch.nn.Module, name: str) -> bool:
    """Is a setting read in train mode alone? Loops change such ones as they go on."""
    own = type(module).__module__.startswith("torch.nn.")
    return own and any(isinstance(module, k) and name == n for k, n in _REFOLD_IN_TRAINING)


def _refold_gained(
    module: torch.nn.Module,
    known: Collection[str],
    path: str,
    assigned: Collection[str],
    reached: Any,
) -> list[str]:
    """The attributes that code names, and that a module has got since: `hasattr` tells them. Where
    code may go through all names, all that are not private.

    known: those that it had. assigned: paths of attributes that forward itself sets.
    """
    kind = type(module)
    if _refold_is_library(kind.__module__):
        return []
    found = vars(module).keys() - known - _REFOLD_USUAL
    return sorted(
        name
        for name in found
        if name in reached.names or name in reached.texts or (reached.listed and name[0] != "_")
        if not name.startswith("_refold")
        if f"{path}.{name}".strip(".") not in assigned
        if not isinstance(getattr(kind, name, None), functools.cached_property)
    )


def _refold_given_anew(model: torch.nn.Module) -> str | None:
    """A name of the original's class that a class made of the fast one gives anew, or None: forward
    may reach it. Its own forward may call the fast one's."""
    classes = type(model).__mro__
    made = next((i for i, c in enumerate(classes) if "_refold_made" in vars(c)), 0)
    theirs = (c for c in classes[made + 1 :] if not c.__module__.startswith("torch."))
    names = {name for c in theirs for name in vars(c) if not name.startswith("__")} - {"forward"}
    return next((name for c in classes[:made] for name in vars(c) if name in names), None)


def _refold_difference(
    model: torch.nn.Module,
    modules: Sequence[tuple[str, str, str, dict[str, Any]]],
    apart: Sequence[str] | None,
    tied: Sequence[Sequence[str]],
    numbers: dict[str, Any],
    others: dict[str, Sequence[str]],
    assigned: Collection[str],
    reached: _RefoldReached,
    varied: Sequence[tuple[Any, ...]] = (),
) -> str | None:
    """How a model differs from the one that the kernels were made for, or None.

    apart: of a mode (`_refold_mode`). assigned: paths of attributes that forward sets.
    """
    shared = torch.nn.modules.module
    if shared._global_forward_hooks or shared._global_forward_pre_hooks:
        return "every module has a global hook"
    anew = _refold_given_anew(model)
    if anew is not None:
        return f"the class {type(model).__qualname__} has another {anew}"
    places = _refold_places(model, varied)
    for path, kind, held, settings in modules:
        module = _refold_inside(model, path)
        words = path or "the model"
        if module is None:
            return f"the module {path} is gone"
        if path:
            if type(module).__qualname__ != kind:
                return f"{path} is a {type(module).__qualname__}, not a {kind}"
            same = module.training is model.training
            if apart is not None and same is (path in apart):
                return f"{path} is {'' if same else 'not '}in the same mode as the model"
            if _refold_acts_around(module):
                return f"{path} has hooks or a forward of its own"
        found = _refold_held(module)
        if found != held:
            return f"{words} {_refold_told_apart(set(found.split()), set(held.split()))}"
        for name, setting in settings.items():
            if not module.training and _refold_trains_alone(module, name):
                continue
            held_now = getattr(module, name, None)
            value = _refold_setting(held_now, names=reached.counted, places=places)
            known = value is not None or held_now is None  # nothing is said of a tensor
            if not known or not _refold_alike(value, setting):
                return f"the setting {name} of {words} has changed"
        had = {*settings, *others.get(path, ())}
        for name in _refold_gained(module, had, path, assigned, reached):
            return f"the setting {name} of {words} is new"
    for paths in tied:
        first = _refold_tensor(model, paths[0])
        if any(_refold_tensor(model, path) is not first for path in paths[1:]):
            return f"{' and '.join(paths)} are no longer one parameter"
    found_numbers = _refold_plain_globals(reached)
    for name, setting in numbers.items():
        if name in found_numbers and not _refold_alike(found_numbers[name], setting):
            return f"the global {name} has changed"
    return _refold_reach_difference(reached)


class _RefoldRows:
    """What `watch` of the kernels takes (see watch above): how things are in a model now."""

    def __init__(
        self,
        model: torch.nn.Module,
        names: dict[str, tuple[str, ...]],
        reached: _RefoldReached,
        assigned: Sequence[str] = (),
        tensors: Sequence[str] = (),
        varied: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        """assigned: paths of attributes that forward itself sets. tensors: of those that are read,
        some of which may not be there yet."""
        shared = torch.nn.modules.module
        rows: list[tuple[Any, ...]] = [
            (d, len(d)) for d in (shared._global_forward_hooks, shared._global_forward_pre_hooks)
        ]
        kinds: list[Any] = []
        alike: list[Any] = []
        types: dict[type, None] = {}
        places = _refold_places(model, varied)
        for path, module in _refold_modules_of(model):
            inside = f"{path}." if path else ""
            own = {p.removeprefix(inside) for p in assigned if p.startswith(inside)}
            read = {p.rpartition(".")[2] for p in tensors if p.rpartition(".")[0] == path}
            settings = (
                *names.get(path, ()),
                *sorted(read - {*module._parameters, *module._buffers}),
            )
            rows += _refold_dict_rows(module, settings, own, root=not path)
            if path or not hasattr(type(model), "_refold_twin"):  # a twin looks at its own class
                kinds += (module, type(module))
            types[type(module)] = None
            for name in names.get(path, ()):
                held = vars(module).get(name)
                alike += _refold_containers(held, names=reached.counted, places=places)
        for collector in _refold_collectors(model):
            alike += _refold_containers(collector)
        spaces: dict[int, list[Any]] = {}
        for where, name, value in reached.entries.values():
            if isinstance(where, type):
                types[where] = None
                continue
            row = spaces.setdefault(id(where), [where, -1])
            value = where.get(name, _refold_absent)  # may be another than at first, if it is alike
            row += (name, where if value is _refold_absent else value)
        self.dicts = (*rows, *map(tuple, spaces.values()))
        self.types, self.kinds = tuple(types), tuple(kinds)
        alike += reached.containers
        pairs = list(zip(alike[::2], alike[1::2], strict=True))
        functions = [p for p in pairs if isinstance(p[0], (CellType, FunctionType))]
        cells = (*reached.cells.values(), *reached.functions.values(), *functions)
        self.cells = tuple(part for cell in cells for part in cell)
        others = (p for p in pairs if not isinstance(p[0], (CellType, FunctionType)))
        self.alike = tuple(part for pair in others for part in pair)


class _RefoldStructure:
    """What was found of a model's structure: its rows, and the difference, or None. While the rows
    hold, it need not be looked for again: a write to parameters changes none of them."""

    def __init__(self, model: torch.nn.Module, file: Any, mode: dict[str, Any]) -> None:
        reached = file.reached(model)
        paths = [path for path, _, _ in mode["tensors"]]
        given = mode["assigned"], paths, file.varied
        self.rows = rows = _RefoldRows(model, file.names, reached, *given)
        self.model, self.kernels = vars(model), file.kernels
        self.fixed = (rows.dicts, rows.types, rows.kinds, (), (), ())
        self.memory = file.kernels.watch(*self.fixed, 0)
        self.difference = file.difference(model, reached, mode)

    def holds(self, model: torch.nn.Module) -> bool:
        asked = (*self.fixed, self.rows.cells, self.rows.alike, self.memory)
        return vars(model) is self.model and bool(self.kernels.unchanged(*asked))


def _refold_differ_plainly(a: _RefoldRows, b: _RefoldRows) -> bool:
    """Whether two structures of one model differ in plain settings alone: who keeps both holds no
    tensor or module that the model no longer has."""

    def alike(held: Any, other: Any) -> bool:
        if held is other or (_refold_is_plain(held) and _refold_is_plain(other)):
            return True
        if type(held) is dict and type(other) is dict and held.keys() == other.keys():
            return all(value is other[key] for key, value in held.items())
        same = type(held) is type(other) and isinstance(held, (list, tuple))
        return same and len(held) == len(other) and all(map(alike, held, other))

    pairs = ((a.dicts, b.dicts), (a.cells, b.cells), (a.alike, b.alike))
    same = a.types == b.types and all(map(operator.is_, a.kinds, b.kinds))
    return same and len(a.kinds) == len(b.kinds) and all(alike(*pair) for pair in pairs)


def _refold_dict_rows(
    module: torch.nn.Module, names: tuple[str, ...], assigned: set[str], root: bool
) -> Iterator[tuple[Any, ...]]:
    """Rows of a module's dictionaries: (dict, size or -1, key, value, ...), but for attributes that
    forward sets."""
    own = vars(module)
    read = ["training", *_REFOLD_HOLDERS, *names]
    if not root:
        read += ["forward", *_REFOLD_HOOKS]
    held = [name for holder in _REFOLD_HOLDERS for name in own.get(holder, ())]
    tensors = [name for name, value in own.items() if isinstance(value, torch.Tensor)]
    keys = dict.fromkeys(key for key in (*read, *held, *tensors) if key not in assigned)
    # of others than PyTorch's own code may ask whether there is an attribute
    size = -1 if _refold_is_library(type(module).__module__) else len(own)
    yield (own, size, *(part for key in keys for part in (key, own.get(key, own))))
    for holder in _REFOLD_HOLDERS:
        inner = own[holder]
        items = [item for item in inner.items() if item[0] not in assigned]
        yield (inner, len(inner), *(part for item in items for part in item))
    if not root:
        for hooks in _REFOLD_HOOKS:
            yield (own[hooks], len(own[hooks]))


def _refold_module_classes(names: dict[str, Any]) -> list[type]:
    """The classes of modules among a file's globals, but for the one that refold made."""
    found = (v for v in list(names.values()) if isinstance(v, type))
    return [v for v in found if issubclass(v, torch.nn.Module) and "_refold_made" not in vars(v)]
