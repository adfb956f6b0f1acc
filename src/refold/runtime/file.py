"""The tables of one emitted file as the runtime reads them: by place instead of by name."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refold.runtime.met import _refold_kinds
from refold.runtime.reach import (
    _refold_as_known,
    _refold_reach,
    _RefoldReached,
)
from refold.runtime.structure import _refold_difference, _refold_module_classes


def _refold_by_name(kind: Any) -> str:
    return str(getattr(kind, "__qualname__", None) or kind.__name__)  # of a module its name


class _RefoldFile:
    """One emitted file: its tables, and the functions that its kernels' part defines.

    kind: the kernels' type of device. names: the file's globals. modes: by name, `_refold_mode`.
    """

    def __init__(self, kind: str, names: dict[str, Any]) -> None:
        self.kind, self.kernels = kind, names["_refold_kernels"]
        self.unsupported: Callable[[int], str | None] = names["_refold_unsupported_device"]
        self.folds_ready: Callable[[Any], None] = names["_refold_folds_ready"]
        self.look_alone: Callable[[int], None] | None = names.get("_refold_look_alone")
        self.modules: Sequence[Any] = names["_REFOLD_MODULES"]
        self.tied: Sequence[Sequence[str]] = names.get("_REFOLD_TIED", ())
        self.numbers: dict[str, Any] = names.get("_REFOLD_GLOBALS", {})
        self.others: dict[str, Sequence[str]] = names.get("_REFOLD_OTHERS", {})
        self.varied: Sequence[tuple[Any, ...]] = names.get("_REFOLD_VARIED", ())
        self.names = {path: tuple(settings) for path, _, _, settings in self.modules}
        self.modes = {name: _refold_mode(name, names, self) for name in names["_REFOLD_MODES"]}
        self.assigned = frozenset(p for mode in self.modes.values() for p in mode["assigned"])
        self.known = _refold_reach(_refold_module_classes(names)).entries
        self.baselines: dict[frozenset[type], _RefoldReached] = {}

    def reached(self, model: torch.nn.Module) -> _RefoldReached:
        """What forward reads of classes and globals, as it was when a model of these classes was
        first met, or when the file was imported."""
        kinds = frozenset(_refold_kinds(model))
        if kinds not in self.baselines:
            if len(self.baselines) > 16:  # many structures: their first sight is not kept for ever
                self.baselines.clear()
            found = _refold_reach(sorted(kinds, key=_refold_by_name))
            found.entries = _refold_as_known(found.entries, self.known)
            self.known = self.known if self.baselines else {**found.entries, **self.known}
            self.baselines[kinds] = found
        return self.baselines[kinds]

    def difference(
        self, model: torch.nn.Module, reached: _RefoldReached, mode: dict[str, Any]
    ) -> str | None:
        tables = self.modules, mode["apart"], self.tied, self.numbers, self.others, self.assigned
        return _refold_difference(model, *tables, reached, self.varied)

    def place(self, device: int) -> torch.device:
        return torch.device("cpu") if device < 0 else torch.device(self.kind, device)


def _refold_mode(name: str, names: dict[str, Any], file: _RefoldFile) -> dict[str, Any]:
    """One row of `_REFOLD_MODES`.

    tensors: (path, shape, dtype) of what is read, then of what is written. sources: how many are
    read. recipes: of each value (function, places of its arguments among what is read and the
    values before it). counters: of running statistics, which PyTorch's kernels write uncounted,
    (place, path of the batch norm's counter, which is counted). unread: parameters that cannot
    change the result. assigned: attributes that forward sets. strides: of parameters, where draws
    follow from them. repeats: whether a call is told to be like the last one by its tensors.
    apart: the modules that are in the other mode than the model, or None where nothing asks.
    """
    row = names["_REFOLD_MODES"][name]
    given_row: dict[str, Any] = row["values"]
    made: dict[str, tuple[Any, ...]] = {
        value: how if type(how) is tuple else (how,) for value, how in given_row.items()
    }
    sources: dict[str, int] = {}
    for how, *given in made.values():
        for path in given if callable(how) else () if given else (how,):
            sources.setdefault(path, len(sources))
    values = {value: len(sources) + i for i, value in enumerate(made)}
    recipes: list[tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = []
    for how, *given in made.values():
        if callable(how):
            recipes.append((how, tuple(sources[path] for path in given)))
        elif given:  # a value in another form
            recipes.append((names[f"_refold_{how}"], (values[given[0]],)))
        else:  # a parameter as it is
            recipes.append((torch.Tensor.contiguous, (sources[how],)))
    held = {path: names_held.split() for path, _, names_held, _ in file.modules}
    counters = []
    for path, i in sources.items():
        parent, dot, last = path.rpartition(".")
        statistics = last in ("running_mean", "running_var")
        if statistics and "num_batches_tracked" in held.get(parent, ()):
            counters.append((i, f"{parent}{dot}num_batches_tracked"))
    written = row.get("writes", ())
    return {
        "name": name,
        "tensors": tuple((p, *names["_REFOLD_TENSORS"][p]) for p in (*sources, *written)),
        "sources": len(sources),
        "recipes": tuple(recipes),
        "counters": tuple(counters),
        "unread": row.get("unread", ()),
        "assigned": row.get("assigned", ()),
        "strides": row.get("strides", {}),
        "repeats": row.get("repeats", True),
        "apart": row.get("apart", ()),
    }
