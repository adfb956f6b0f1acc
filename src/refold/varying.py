"""Numbers that vary from call to call, among the arguments and among a module's attributes: which
do, and whether a program in which they vary gives what forward gives."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from refold.capture import Example
from refold.capture.generators import torchs_kept
from refold.capture.twin import apart_of
from refold.runtime.structure import _refold_inside, _refold_trains_alone
from refold.subclass import Program

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
        self.seen: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.fixed: set[tuple[str, str]] = set()

    def varying(
        self,
        programs: Sequence[Program],
        fast: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[tuple[str, str], ...]:
        """The attributes that are to vary for a call that these programs refuse for settings: each
        that some program has another value of, and of which enough values came."""
        found, kinds = set(), _kinds(fast, args, kwargs)
        for place, then, now in (row for p in programs for row in _numbers_set(p, fast)):
            if type(now) in kinds and place not in self.fixed:
                found.add(place)
                values = dict.fromkeys((*self.seen.get(place, ()), then, now))
                self.seen[place] = tuple(values)[:ENOUGH]
        return tuple(sorted(place for place in found if len(self.seen[place]) == ENOUGH))


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
    for path, name in example.settings:
        held = vars(other.get_submodule(path))
        if type(held[name]) is float:
            floats.append(name)
            held[name] = _another(held[name])
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
