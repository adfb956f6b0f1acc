"""An example call, taken apart into tensors and the rest."""

from __future__ import annotations

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from refold.capture.captured import Argument, Container, attribute
from refold.capture.containers import Apart, together, walk
from refold.capture.forms import FORMS, Built, OutputIndex
from refold.capture.values import CaptureError
from refold.runtime.settings import _refold_holder, _refold_items


@dataclass(frozen=True)
class Example:
    """One call of a module: positional and keyword arguments.

    counted: forward's own parameters whose numbers vary: whole ones, from 2 on, as sizes do, and
    those of class float as values do. settings: attributes whose numbers vary as well, each the
    path of a module and a name that this module itself has; behind these the keys, indices and
    names of fields that lead to a number inside what the attribute holds.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    settings: tuple[tuple[Any, ...], ...] = ()

    @staticmethod
    def of(given: Example | Sequence[Any]) -> Example:
        """An example itself; other sequences are positional arguments."""
        return given if isinstance(given, Example) else Example(tuple(given))

    def call(self, module: Callable[..., Any]) -> Any:
        return module(*self.args, **self.kwargs)

    def leaves(self) -> list[Any]:
        return pytree.tree_leaves((self.args, dict(self.kwargs)))

    def bind(self, module: torch.nn.Module) -> inspect.BoundArguments:
        """The arguments by the names of forward's parameters.

        Raises TypeError where forward does not take such a call.
        """
        parameters = [*inspect.signature(type(module).forward).parameters.values()][1:]
        return inspect.Signature(parameters).bind(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Counted:
    """A number that varies. index: its place among those."""

    index: int
    value: int | float


_MOST = 1000  # arguments that are no tensors


class Arguments:
    """The arguments of an example, and how a call of the same form is made with other tensors.

    tensors: those of the example, each in memory that no other argument and no parameter shares: a
    program that is made for one tensor given twice would be wrong for two. places: the path of
    each. order: all but containers by path, in order. counted: the numbers that vary, by the texts
    that read them, and their values: first those among the arguments, then attributes. settings:
    these attributes. carriers: of each number a tensor, since torch.export takes nothing else for
    what varies: of a whole number one of so many rows, of another one of no dimension that holds
    it.
    """

    def __init__(self, module: torch.nn.Module, example: Example) -> None:
        try:
            self.bound = example.bind(module)
        except TypeError as error:
            raise CaptureError(f"forward does not take the example: {error}") from error
        kinds = {n: p.kind for n, p in self.bound.signature.parameters.items()}
        apart = Apart(repeats=True)
        self.trees = {
            name: apart.tree(value, f"the argument {name} is or holds")
            for name, value in self.bound.arguments.items()
        }
        self.counted: dict[str, int | float] = {}
        for name, value in self.bound.arguments.items():
            if name in example.counted and _varies(value):
                self.trees[name] = Counted(len(self.counted), value)
                self.counted[name] = value
        self.settings: list[tuple[Any, ...]] = []
        for place in example.settings:
            value = value_at(module, place)
            if _varies(value):
                self.settings.append(place)
                self.counted[text_of(module, place)] = value
        self.places: list[str] = [""] * len(apart.leaves)
        self.containers: list[Container] = []
        self.order: list[tuple[str, Any]] = []
        for name, tree in self.trees.items():
            starred = kinds[name] in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            )
            for path, part in walk(tree, name):
                if isinstance(part, Built):
                    self.containers.append(Container(path, part, starred and path == name))
                else:
                    self.order.append((path, part))
                    if isinstance(part, OutputIndex):
                        self.places[part.index] = path
        given = sum(isinstance(tree, Counted) for tree in self.trees.values())
        self.order += [(t, Counted(i, v)) for i, (t, v) in enumerate(self.counted.items())][given:]
        if len(self.order) > _MOST:
            raise CaptureError(f"forward takes {len(self.order)} arguments in containers")
        for path, tensor in zip(self.places, apart.leaves, strict=True):
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter, FakeTensor):
                raise CaptureError(f"the input {path} is a {type(tensor).__name__}")
        self.given = apart.leaves
        self.tensors = list(_apart(apart.leaves, module))
        device = self.tensors[0].device if self.tensors else None
        self.carriers = [_carrier(value, device) for value in self.counted.values()]

    def fields(self, shapes: Sequence[Sequence[Any]]) -> Iterator[Argument]:
        """Every argument but containers. shapes: those of the tensors, as captured."""
        for path, part in self.order:
            if isinstance(part, OutputIndex):
                yield Argument(path, tuple(shapes[part.index]), self.given[part.index].dtype)
            elif isinstance(part, Counted):
                yield Argument(path, None, None, part.value)
            else:
                yield Argument(path, None, None, part)

    def call(
        self, module: torch.nn.Module, tensors: Sequence[Any], numbers: Sequence[Any] = ()
    ) -> tuple[Any, dict[int, str]]:
        """What `module`'s forward gives for these tensors, and containers' paths by their ids.
        numbers: those that vary, by default the example's.

        A fast module is called as the original is: what a class does in __call__, and hooks do, it
        does around our forward.
        Raises CaptureError where forward has changed a container.
        """
        made: dict[str, Any] = {}
        arguments = {n: together(t, tensors, made, n) for n, t in self.trees.items()}
        for name, tree in self.trees.items():
            if isinstance(tree, Counted):
                arguments[name] = numbers[tree.index] if numbers else tree.value
        bound = inspect.BoundArguments(self.bound.signature, arguments)
        before = {path: _parts(made[path], c.tree) for c in self.containers if (path := c.path)}
        with no_global_hooks():
            result = module.forward(*bound.args, **bound.kwargs)
        for container in self.containers:
            if _parts(made[container.path], container.tree) != before[container.path]:
                raise CaptureError(f"forward changes its argument {container.path}")
        self.alive = made  # their ids are theirs while they live
        starred = {c.path for c in self.containers if c.starred}
        return result, {id(v): path for path, v in made.items() if path not in starred}


def value_at(module: torch.nn.Module, place: tuple[Any, ...]) -> Any:
    """What stands at a place (`Example.settings`).

    Raises CaptureError where it is gone."""
    path, name, *keys = place
    part = module.get_submodule(path)
    if not keys:
        return vars(part)[name]
    items = _refold_items(_refold_holder(part, name, keys))
    if items is None:
        raise CaptureError(f"{_words(place)} is gone")
    return items[keys[-1]]


def set_at(module: torch.nn.Module, place: tuple[Any, ...], value: Any) -> None:
    """Writes what stands at a place, unwatched."""
    path, name, *keys = place
    part = module.get_submodule(path)
    holder = _refold_holder(part, name, keys) if keys else vars(part)
    key = keys[-1] if keys else name
    if isinstance(holder, (dict, list)):
        holder[key] = value
    else:
        object.__setattr__(holder, key, value)


def _words(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, filter(lambda part: part != "", place)))


def text_of(module: torch.nn.Module, place: tuple[Any, ...]) -> str:
    """The text that reads what stands at a place."""
    path, name, *keys = place
    text = attribute(f"{path}.{name}".strip("."))
    for i, key in enumerate(keys):
        holder = _refold_holder(module.get_submodule(path), name, keys[: i + 1])
        text += f"[{key_text(key)}]" if isinstance(holder, (dict, list)) else f".{key}"
    return text


def key_text(key: Any) -> str | None:
    """The text of a key of a dict or a list, or None."""
    if type(key) is tuple:
        parts = [key_text(part) for part in key]
        return None if None in parts else f"({''.join(f'{part}, ' for part in parts)})"
    if isinstance(key, torch.device):
        return f"torch.device({str(key)!r})"
    return repr(key) if type(key) in (str, int, bool, type(None), torch.dtype) else None


def _varies(value: Any) -> bool:
    return type(value) is float or (type(value) is int and value >= 2)


def _carrier(value: int | float, device: torch.device | None) -> torch.Tensor:
    if isinstance(value, int):
        return torch.empty(value, 0, device=device)
    return torch.full((), value, dtype=torch.float64, device=device)


def carried(carrier: Any) -> Any:
    """What forward is given for a number that varies."""
    return carrier.shape[0] if carrier.dim() else carrier


@contextlib.contextmanager
def no_global_hooks() -> Iterator[None]:
    """Without what acts around the forward of every module, which may go later. Hooks of all
    modules that are added meanwhile are taken out: torch.export of PyTorch 2.11 leaves one, on
    buffers that are assigned, where it fails."""
    shared: Any = torch.nn.modules.module
    names = ("_global_forward_hooks", "_global_forward_pre_hooks")
    before = [getattr(shared, name) for name in names]
    others = {
        n: d for n, d in vars(shared).items() if n.startswith("_global_") and type(d) is OrderedDict
    }
    known = {name: set(hooks) for name, hooks in others.items()}
    try:
        for name in names:
            setattr(shared, name, OrderedDict())
        yield
    finally:
        for name, hooks in zip(names, before, strict=True):
            setattr(shared, name, hooks)
        for name, hooks in others.items():
            for key in [*hooks]:
                if key not in known[name]:
                    hooks.pop(key, None)


def _parts(value: Any, tree: Built) -> tuple[Any, ...] | None:
    """What tells whether a container is still what it was."""
    split = FORMS[tree.form].split(value)
    if split is None:
        return None
    keys, parts, _ = split
    return tuple(keys), tuple(map(id, parts))


def _apart(tensors: Sequence[torch.Tensor], module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors, those that share memory with one before or with the module as copies."""
    seen = {_memory(t) for t in (*module.parameters(), *module.buffers())}
    for tensor in tensors:
        memory = _memory(tensor)
        again = memory is not None and memory in seen
        alias = _copy(tensor.detach()) if again else tensor.detach()
        seen.add(memory)
        yield alias.requires_grad_() if tensor.requires_grad and tensor.is_leaf else alias


def _memory(tensor: torch.Tensor) -> int | None:
    if isinstance(tensor, FakeTensor):
        return None
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (NotImplementedError, RuntimeError):
        return None


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same values at the same strides elsewhere."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return tensor.clone()
    size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    memory = torch.as_strided(tensor, (size,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())


__all__ = ["Arguments", "Example", "carried"]
