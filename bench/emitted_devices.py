"""A fast module on several devices: the part `emitted` of bench/several_gpus.py."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

import refold

CALLS = 30  # of each thread


class Head(nn.Module):
    """A hidden layer with batch norm, and a sum of the results of another: folds and products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.last = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(nn.functional.gelu(self.norm(self.hidden(x))))
        return made.sum(1, keepdim=True)


def rows(count: int, width: int, place: torch.device) -> torch.Tensor:
    return torch.randn(count, width, device=place)


def at(place: torch.device) -> contextlib.AbstractContextManager[object]:
    return torch.cuda.device(place) if place.type == "cuda" else contextlib.nullcontext()


def check(fast: nn.Module, x: torch.Tensor, got: torch.Tensor | None = None) -> None:
    """By float64: no more than four times the original's error, and 1e-6 of the largest value.
    Raises AssertionError, too where the original computed the result."""
    original = refold.original(fast)
    got = fast(x) if got is None else got
    told = refold.status(fast)
    assert told.fast, told.reason
    exact = copy.deepcopy(original).double()(x.double())
    error, own = (float((v.double() - exact).abs().max()) for v in (got, original(x)))
    assert got.device == x.device
    assert error <= 4 * own + 1e-6 * float(exact.abs().max()), (error, own)


def copied(fast: nn.Module, place: torch.device) -> nn.Module:
    made = copy.deepcopy(fast).to(place)
    with torch.no_grad():  # of its own: what was folded of the first says nothing of it
        for p in made.parameters():
            p.mul_(1.01)
    return made


def one(fast: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A call in a thread, where gradients are wanted unless it says otherwise."""
    with torch.no_grad(), at(x.device):
        made: torch.Tensor = fast(x)
        return made


def calls(fast: nn.Module, place: torch.device, size: int, width: int) -> float:
    """Seconds of a thread's calls, of several numbers of rows."""
    start = time.perf_counter()
    with torch.no_grad(), at(place):
        for i in range(CALLS):
            fast(rows(size - i % 3, width, place))
        if place.type == "cuda":
            torch.cuda.synchronize(place)
    return time.perf_counter() - start


def row(places: Sequence[torch.device], sizes: dict[str, int]) -> dict[str, Any]:
    """What was checked, and the seconds of a thread's calls alone and beside the others."""
    torch.manual_seed(0)
    size, width = sizes["rows"], sizes["width"]
    module = Head(width).to(places[0]).eval()
    fast = refold.optimize(module, rows(size, width, places[0]), measure=False)
    done = []
    with torch.no_grad():
        check(fast, rows(size, width, places[0]))
        modules = [fast] + [copied(fast, p) for p in places[1:]]
        for _ in range(3):  # each in turn, whichever device is current
            for current in places:
                with at(current):
                    for each, place in zip(modules, places, strict=True):
                        check(each, rows(size - 1, width, place))
        done.append("copied")
        moved = copy.deepcopy(fast)
        for place in (places[-1], places[0], places[-1]):
            check(moved.to(place), rows(size, width, place))
        done.append("moved")
        given = [rows(size, width, p) for p in places]
        with ThreadPoolExecutor(len(places)) as pool:
            for _ in range(3):
                results = pool.map(one, modules, given)
                for each, x, got in zip(modules, given, results, strict=True):
                    check(each, x, got)
        done.append("threads")
        if places[0].type == "cuda":  # on CPUs it is the module itself
            parallel = nn.DataParallel(fast, [p.index for p in places])
            for _ in range(3):
                x = rows(size, width, places[0])
                check(fast, x, parallel(x))
                for p in module.parameters():
                    p.mul_(1.01)
            done.append("DataParallel")
        for each, place in zip(modules, places, strict=True):
            calls(each, place, size, width)
        alone = calls(fast, places[0], size, width)
        with ThreadPoolExecutor(len(places)) as pool:
            count = len(places)
            beside = max(pool.map(calls, modules, places, [size] * count, [width] * count))
    return {"checked": " ".join(done), "alone_ms": 1e3 * alone, "beside_ms": 1e3 * beside}
