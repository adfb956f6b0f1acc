"""Numbers that vary from call to call, among the arguments and among a module's attributes: which
do, and whether a program in which they vary gives what forward gives."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold import twin
from refold.capture import Example
from refold.capture.arguments import set_at, value_at
from refold.capture.generators import torchs_kept
from refold.capture.twin import apart_of, inside
from refold.runtime.settings import (
    _refold_fields,
    _refold_holder,
    _refold_items,
    _refold_places,
    _refold_setting,
)
from refold.runtime.structure import _refold_inside, _refold_trains_alone
from refold.subclass import Program

_DEEPEST = 6  # keys, with the path and the name, to a number inside what an attribute holds
_MOST_HOLDERS = 256  # that are looked through for numbers
ENOUGH = 3  # values of a setting, that which a program was made for among them


def without_numbers(key: str) -> str:
    """A form of call (`growth.form`) without the values of its numbers."""
    return re.sub(r"(?<=; )(int|float) [^;]*", r"\1", key)


def numbers(
    fast: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, int | float]:
    """The numbers that are forward's own arguments, by their names, as far as they may vary."""
    try:
        given = Example(args, kwargs).bind(fast).arguments
    except TypeError:
        return {}  # the original raises
    kinds = _kinds(fast, args, kwargs)
    return {name: value for name, value in given.items() if type(value) in kinds}


def _kinds(
    fast: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[type[int | float], ...]:
    """The classes of numbers that may vary. Beside values of 16 bits whole ones alone: PyTorch
    computes with a number of more digits than a tensor of theirs would have."""
    tensors = (v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor))
    short = any(t.is_floating_point() and t.itemsize < 4 for t in (*tensors, *fast.parameters()))
    return (int,) if short else (int, float)


class Settings:
    """The numbers among a module's attributes that vary, as a temperature that a schedule sets.

    seen: by the path of a module and the attribute's name the values that it had, at most ENOUGH.
    fixed: those with which no program could be made in which they vary.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.fixed: set[tuple[Any, ...]] = set()

    def varying(
        self,
        programs: Sequence[Program],
        fast: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[tuple[Any, ...], ...]:
        """The attributes, and numbers inside what they hold, that are to vary for a call that these
        programs refuse for settings: each that some program has another value of, and of which
        enough values came. What a program was made for is not known of numbers inside: two others
        are enough."""
        found, kinds = set(), _kinds(fast, args, kwargs)
        ones: dict[tuple[int, Any], tuple[Any, ...]] = {}
        for place, holder, now in (row for p in programs for row in _numbers_inside(p, fast)):
            place = ones.setdefault((id(holder), place[-1]), place)  # one may stand in many
            if type(now) in kinds and place not in self.fixed:
                self.seen[place] = tuple(dict.fromkeys((*self.seen.get(place, ()), now)))[:ENOUGH]
                found |= {place} if len(self.seen[place]) > 1 else set()
        for place, then, now in (row for p in programs for row in _numbers_set(p, fast)):
            if type(now) in kinds and place not in self.fixed:
                found.add(place)
                values = dict.fromkeys((*self.seen.get(place, ()), then, now))
                self.seen[place] = tuple(values)[:ENOUGH]
        enough = (p for p in found if len(p) > 2 or len(self.seen[p]) == ENOUGH)
        return tuple(sorted(enough, key=repr))


def _numbers_set(
    program: Program, fast: torch.nn.Module
) -> Iterator[tuple[tuple[str, str], Any, Any]]:
    """The settings that are numbers, of the class that they had, and others than a program was made
    for: the path and the name, the value then and now."""
    for path, _, _, settings in program.namespace._refold_file.modules:
        part = _refold_inside(fast, path)
        own = {} if part is None else vars(part)
        for name, then in settings.items():
            now = own.get(name)
            number = type(then) in (int, float) and type(now) is type(then) and now != then
            if part is None or (not part.training and _refold_trains_alone(part, name)):
                continue
            if number:
                yield (path, name), then, now


def _numbers_inside(
    program: Program, fast: torch.nn.Module
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """The numbers inside settings that are others than a program was made for: the place of each,
    what holds it, and the value."""
    file, model = program.namespace._refold_file, twin.original(fast)
    counted, places = file.reached(model).counted, _refold_places(model, file.varied)
    for path, _, _, settings in file.modules:
        own = vars(model.get_submodule(path)) if _refold_inside(model, path) is not None else {}
        for name, then in settings.items():
            held = own.get(name)
            if type(then) is str and type(held) is not str:
                now = _refold_setting(held, names=counted, places=places)
                if now != then:
                    yield from _numbers_held((path, name), held, counted, {})


def _numbers_held(
    place: tuple[Any, ...], value: Any, counted: Any, known: dict[int, Any]
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    items = _refold_items(value)
    if items is None or id(value) in known or len(known) > _MOST_HOLDERS:
        return
    known[id(value)] = value
    own = isinstance(value, (dict, list))
    for key, inner in list(items.items()):
        if type(key) not in (str, int) or not (own or counted is None or key in counted):
            continue
        if type(inner) in (int, float):
            yield (*place, key), value, inner
        elif len(place) < _DEEPEST:
            yield from _numbers_held((*place, key), inner, counted, known)


def are_varied(program: Program, places: Iterable[tuple[Any, ...]]) -> bool:
    """Whether these numbers, and any, vary in a program."""
    file = program.namespace._refold_file
    return all(
        place in file.varied if len(place) > 2 else ".".join(filter(None, place)) in file.assigned
        for place in places
    )


def are_apart(
    made: torch.nn.Module, module: torch.nn.Module, places: Iterable[tuple[Any, ...]]
) -> bool:
    """Whether what holds numbers that vary is a copy's own, and stands in the copy wherever it
    stands in the module: what cannot be copied is shared, and one may become two."""
    for path, name, *keys in places:
        if not keys:
            continue
        first, second = (_refold_holder(m.get_submodule(path), name, keys) for m in (made, module))
        if first is None or second is None or first is second:
            return False
        if _standing(made, first) != _standing(module, second):
            return False
    return True


def _standing(module: torch.nn.Module, holder: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    """Where something stands in what attributes hold, by paths through what they hold."""
    usual = vars(torch.nn.Module())
    found = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in usual:
                continue
            todo: list[tuple[Any, tuple[int, ...]]] = [(value, ())]
            seen: dict[int, Any] = {}
            while todo:
                one, at = todo.pop()
                if one is holder:
                    found.append((path, name, at))
                if id(one) in seen or isinstance(one, (torch.nn.Module, torch.Tensor)):
                    continue
                seen[id(one)] = one
                slots = _refold_fields(one) or {}
                parts = [*inside(one), *slots.values()]
                todo += [(v, (*at, i)) for i, v in enumerate(parts)]
    return sorted(found)


def is_right(made: Program, module: torch.nn.Module, example: Example) -> bool:
    """Whether a program in which numbers of an example vary gives what forward gives. What stands
    for a number while torch.export follows forward is no int or float, and nobody sees that forward
    asks."""
    return all(_is_right(made, *one) for one in _varied(module, example))


def _varied(module: torch.nn.Module, example: Example) -> Iterator[tuple[torch.nn.Module, Example]]:
    """A module and its example, and both with other floats in the place of those that vary."""
    yield module, example
    bound = example.bind(module)
    floats = [n for n in example.counted if type(bound.arguments[n]) is float]
    bound.arguments.update({n: _another(bound.arguments[n]) for n in floats})
    other = apart_of(module)
    for place in example.settings:
        value = value_at(other, place)
        if type(value) is float:
            floats.append(place[1])
            set_at(other, place, _another(value))
    if floats:
        yield other, Example(bound.args, bound.kwargs)


def _another(value: float) -> float:
    return value / 2 + 0.125


def _is_right(made: Program, module: torch.nn.Module, example: Example) -> bool:
    results = []
    for attempt in (made.attempt, None):
        own = apart_of(module)
        given, named = copy.deepcopy((example.args, dict(example.kwargs)))
        with torch.no_grad(), torchs_kept():
            torch.manual_seed(0)
            if attempt is None:
                found = type(module).forward(own, *given, **named)
            else:
                found = attempt(own, {}, *given, **named)
        results.append((found, list(own.buffers()), given, named))
    try:
        torch.testing.assert_close(*map(_tensors, results), rtol=1e-2, atol=1e-3, equal_nan=True)
    except AssertionError:
        return False
    first, second = (list(map(type, pytree.tree_leaves(r[0]))) for r in results)
    return first == second  # a float that forward gives back is one still


def _tensors(value: Any) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]
