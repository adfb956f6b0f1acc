"""Schedules picked by timing on the device at hand, kept on disk by device and shape class.

The candidates are whole emitted modules of one product each, so what is timed is what will run:
packing the activations, the kernel, its stores. The C++ of a candidate does not depend on sizes, so
each is compiled once for a device and accuracy.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from refold import turns
from refold.devices import DeviceModel
from refold.measure import clock
from refold.runtime.library import _refold_home, _refold_ninja_on_path, _refold_roots
from refold.schedule import (
    TILE_COSTS,
    Kernels,
    Schedule,
    TileCost,
    default_schedule,
    kernels_of,
    predicted,
    schedules,
)

Sizes = tuple[int, int, int]  # rows, columns, depth of a product
# compiles a module of one product, cut by a schedule, and gives its fast twin
Build = Callable[[nn.Module, torch.Tensor, Schedule], nn.Module]
Choice = TypeVar("Choice")

AT_ONCE = 16  # candidates that are compiled side by side, each by 0.3 GB of a compiler
# Times the least predicted cost, and how many at most. Of 93 timed shapes the fastest schedule was
# among these at 91; at two the best of these takes 1.006 and 1.025 times as long.
_WORTH_TIMING, _MOST_TIMED = 1.2, 5
_SECONDS = 0.05


def cache_path() -> Path:
    """The file of tuned schedules; REFOLD_CACHE names another folder than ~/.cache/refold.

    Without a home it lies where libraries do.
    """
    return Path(_refold_home() or _refold_roots()[-1], "schedules.json")


def shape_class(sizes: Sizes) -> str:
    """Sizes that are cut alike: the same tiles of the smallest kind, K within an eighth."""
    rows, cols, depth = sizes
    step = max(32, 1 << max(0, depth.bit_length() - 4))
    return f"{-(-rows // 128) * 128}x{-(-cols // 128) * 128}x{-(-depth // step) * step}"


class Table:
    """Rows by name, on disk under one key of the file of what was timed.

    A file, or a row, that cannot be read is as good as none.
    """

    def __init__(self, key: str) -> None:
        self.key, self.path = key, cache_path()

    def row(self, name: str) -> Any:
        return self._read().get(self.key, {}).get(name)

    def keep(self, name: str, row: Mapping[str, Any]) -> None:
        """Write a row; what others wrote in the meantime stays."""
        table = self._read()
        table.setdefault(self.key, {})[name] = dict(row)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=self.path.parent)
            with os.fdopen(handle, "w") as file:
                json.dump(table, file, indent=1, sort_keys=True)
            os.replace(written, self.path)
        except OSError:
            pass  # the next run times again

    def _read(self) -> dict[str, dict[str, Any]]:
        """What the file has by key, of that what may be tables of rows."""
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        tables = found.items() if isinstance(found, dict) else ()
        return {key: table for key, table in tables if isinstance(table, dict)}


class Tuned(Table):
    """The schedules of one device, its kernels and a kind of products (of schedule.PACES); a call
    answers with the best known.

    device: its name, which keys the file.
    """

    def __init__(self, device: str, kernels: Kernels, kind: str) -> None:
        super().__init__(f"{device}, {kernels.name}, {kind}")
        self.kernels = kernels
        self.rs, self.tile_cost = kind == "ieee", TILE_COSTS[kind]
        self.dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(kind, torch.float32)

    def __call__(self, rows: int, cols: int, depth: int) -> Schedule:
        default = default_schedule(self.kernels, rows, cols, depth, self.rs, self.tile_cost)
        if default.plain:
            return default
        return self._found((rows, cols, depth)) or default

    def knows(self, sizes: Sizes) -> bool:
        """Whether nothing is left to time for these sizes."""
        if default_schedule(self.kernels, *sizes).plain:
            return True
        return self._found(sizes) is not None

    def fill(self, wanted: Iterable[Sizes], build: Build) -> None:
        """Time the likely schedules for the sizes that are not known yet, and keep the best."""
        unknown: dict[str, Sizes] = {}
        for sizes in wanted:
            if not self.knows(sizes):
                unknown.setdefault(shape_class(sizes), sizes)
        several: dict[Sizes, list[Schedule]] = {}
        for sizes in unknown.values():
            candidates = likely(self.kernels, sizes, self.rs, self.tile_cost)
            if len(candidates) == 1:
                self._keep(sizes, {candidates[0]: 0.0})
            else:
                several[sizes] = candidates
        for sizes, seconds in _time(several, build, self.dtype) if several else ():
            self._keep(sizes, seconds)

    def _found(self, sizes: Sizes) -> Schedule | None:
        """The schedule that the file has for these sizes, if it is one that there is."""
        row = self.row(shape_class(sizes))
        try:
            candidate = Schedule(self.kernels, row["tile"], row["splits"], rs=row["rs"])
        except (KeyError, TypeError):
            return None
        return next((s for s in schedules(self.kernels, self.rs) if s == candidate), None)

    def _keep(self, sizes: Sizes, seconds: dict[Schedule, float]) -> None:
        if not seconds:
            return
        best = min(seconds, key=lambda s: seconds[s])
        us = round(seconds[best] * 1e6, 2)
        row = {
            "tile": best.tile,
            "splits": best.splits,
            "rs": best.rs,
            "us": us,
        }
        self.keep(shape_class(sizes), row)


def likely(kernels: Kernels, sizes: Sizes, rs: bool, tile_cost: TileCost) -> list[Schedule]:
    """The schedules that may be the best one by prediction, the most likely first."""
    costs = {s: predicted(s, *sizes, tile_cost) for s in schedules(kernels, rs)}
    least = min(costs.values())
    found = sorted(costs, key=lambda s: costs[s])[:_MOST_TIMED]
    return [s for s in found if costs[s] <= _WORTH_TIMING * least]


def is_timed(device: DeviceModel, kind: str, sizes: Sizes) -> bool:
    """Whether times choose among several schedules for a product of these sizes."""
    kernels, rs = kernels_of(device.device.features), kind == "ieee"
    if default_schedule(kernels, *sizes, rs, TILE_COSTS[kind]).plain:
        return False
    return len(likely(kernels, sizes, rs, TILE_COSTS[kind])) > 1


@torch.no_grad()  # not between two results, where who asks for them runs
def _time(
    candidates: Mapping[Sizes, Sequence[Schedule]], build: Build, dtype: torch.dtype
) -> Iterator[tuple[Sizes, dict[Schedule, float]]]:
    """Seconds of each schedule of products of some sizes: the median of three rounds.

    All are compiled first, side by side: one after another that takes most of the time.
    """
    given: dict[Sizes, tuple[nn.Module, torch.Tensor]] = {}
    pairs = [(sizes, s) for sizes, of_sizes in candidates.items() for s in of_sizes]

    def built(pair: tuple[Sizes, Schedule]) -> nn.Module:
        sizes, schedule = pair
        return build(*given[sizes], schedule)

    for rows, cols, depth in candidates:
        module = nn.Linear(depth, cols, bias=False, device="cuda", dtype=dtype)
        x = torch.randn(rows, depth, device="cuda", dtype=dtype)
        given[rows, cols, depth] = module, x
    modules = side_by_side(built, pairs)
    for sizes, of_sizes in candidates.items():
        found, (_, x) = dict[Schedule, float](), given.pop(sizes)
        for schedule in of_sizes:  # once called, each holds a packed copy of the weight
            with turns.alone():
                found[schedule] = _rounds(modules.pop(0), x)[1]
        yield sizes, found


def side_by_side(
    build: Callable[[Choice], nn.Module], choices: Sequence[Choice], at_once: int = AT_ONCE
) -> list[nn.Module]:
    """What `build` gives for each choice: so many at once, or as many as there are processors."""

    def one(choice: Choice) -> nn.Module:
        with torch.no_grad():  # of this thread
            return build(choice)

    at_once = min(at_once, len(os.sched_getaffinity(0)))
    with _refold_ninja_on_path(), ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, choices))


def _rounds(fast: nn.Module, x: torch.Tensor) -> list[float]:
    """Seconds per call of three rounds, the shortest first."""
    once = min(clock(lambda: fast(x), "cuda") for _ in range(3))
    repeats = max(1, int(_SECONDS / max(once, 1e-6)))
    return sorted(clock(lambda: fast(x), "cuda", repeats) for _ in range(3))
