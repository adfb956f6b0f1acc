"""What has changed about a module since a program was made for it, as a word to compare by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from refold import twin
from refold.runtime.held import _refold_alike, _refold_equal, _RefoldSeen
from refold.runtime.reach import (
    _refold_absent,
    _refold_modules_of,
    _refold_reach_difference,
    _refold_same,
    _refold_space,
    _RefoldReached,
)
from refold.runtime.settings import _refold_is_plain, _refold_places, _refold_setting
from refold.runtime.structure import (
    _refold_acts_around,
    _refold_gained,
    _refold_held,
    _refold_tied,
)
from refold.subclass import Program

SETTINGS, STRUCTURE = "settings", "parts"  # what a word of `changed` begins with


def modes(fast: torch.nn.Module) -> tuple[str, str]:
    """The names of the modes that serve a module as it is."""
    return "train" if fast.training else "eval", "both"


def changed(program: Program, fast: torch.nn.Module) -> str:
    """What distinguishes a module from the one that a program was made for: its settings, or its
    parts, the code and the globals that it reads. Nothing where it is the same, and where kernels
    made anew would not be taken either: hooks act around a part, or a part has a forward of its
    own."""
    file, model = program.namespace._refold_file, twin.original(fast)
    of_mode = [file.modes[name] for name in modes(fast) if name in file.modes]
    if not of_mode or _acts_around(model):
        return ""  # known without looking through all that forward reads, at each such call
    reached = file.reached(model)
    reasons = [file.difference(model, reached, mode) for mode in of_mode]
    if None in reasons:
        return ""
    if all(map(_is_setting, reasons)):
        return _word(SETTINGS, _settings(model, file, reached))
    known = {path: tuple(settings) for path, _, _, settings in file.modules}
    rows = [
        *_parts(model, known, reached.counted, file.varied),
        *_refold_tied(model),
        *_read(reached),
    ]
    return _word(STRUCTURE, rows)


def _word(kind: str, rows: list[Any]) -> str:
    return f"{kind} {hashlib.sha256(repr(rows).encode()).hexdigest()[:16]}"


def _is_setting(reason: str) -> bool:
    return reason.startswith("the setting ") or reason.endswith(" the same mode as the model")


def _acts_around(model: torch.nn.Module) -> bool:
    """Whether anything acts around a part that kernels would leave out."""
    shared = torch.nn.modules.module
    if shared._global_forward_hooks or shared._global_forward_pre_hooks:
        return True
    return any(_refold_acts_around(m) for path, m in _refold_modules_of(model) if path)


def _settings(model: torch.nn.Module, file: Any, reached: _RefoldReached) -> list[Any]:
    """The settings that differ or are new, and the mode of each part."""
    inside, places = dict(_refold_modules_of(model)), _refold_places(model, file.varied)
    now: list[Any] = []
    for path, _, _, settings in file.modules:
        part = inside.get(path)
        names = [*settings]
        if part is not None:
            had = {*settings, *file.others.get(path, ())}
            names += _refold_gained(part, had, path, file.assigned, reached)
        for name in names:
            value = getattr(part, name, None)
            found = _refold_setting(value, names=reached.counted, places=places)
            same = name in settings and _refold_alike(found, settings[name])
            unlike = not same or (found is None and value is not None)
            now += [(path, name, found)] if unlike else []
    return now + [getattr(inside.get(path), "training", None) for path, *_ in file.modules]


def _parts(
    model: torch.nn.Module, known: Mapping[str, tuple[str, ...]], counted: Any, varied: Any
) -> Iterator[Any]:
    """Each module: its class, what it holds, its settings. Of one that came since, the plain
    settings of PyTorch's own classes: others may count."""
    places = _refold_places(model, varied)
    for path, module in _refold_modules_of(model):
        kind, names = type(module), known.get(path, ())
        if path not in known and kind.__module__.startswith("torch.nn."):
            names = tuple(name for name, value in vars(module).items() if _refold_is_plain(value))
        held = [(name, getattr(module, name, None)) for name in names]
        settings = [(n, _refold_setting(v, names=counted, places=places)) for n, v in held]
        yield path, kind.__qualname__, id(kind), _refold_held(module), module.training, settings


def _read(reached: _RefoldReached) -> Iterator[Any]:
    """What forward reads of classes and globals and is another than it was."""
    if _refold_reach_difference(reached) is None:
        return
    for where, name, value in reached.entries.values():
        now = _refold_space(where).get(name, _refold_absent)
        if not _refold_same(now, value):
            yield name, now if _refold_is_plain(now) else id(now)
    for cell, value in reached.cells.values():
        if cell.cell_contents is not value:
            yield id(cell), id(cell.cell_contents)
    for function, code in reached.functions.values():
        if not _refold_equal(function, code):
            yield id(function), _refold_setting(function)
    for held, then in zip(reached.containers[::2], reached.containers[1::2], strict=True):
        if not _refold_equal(held, then):
            now = held.now() if type(held) is _RefoldSeen else held
            yield id(held), _refold_setting(now, names=reached.counted)
