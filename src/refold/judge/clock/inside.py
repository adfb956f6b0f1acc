"""Two modules of one process, timed by turns: no isolation, and the verdict says so."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import torch
from torch import nn

from refold.judge.clock import load, stats
from refold.judge.verdict.session import Session
from refold.judge.verdict.verdict import Speed, Timing

_LAP, _ROUNDS, _SECONDS = 0.02, 15, 4.0


def measure(session: Session, candidate: nn.Module) -> Timing:
    """Laps on inputs that change, ABBA."""
    sides, before = (session.oracle.model, candidate), load.pressure()
    sets = [session.drawn(session.seed + 5000 + i) for i in range(4)]
    sets = [[_there(v, session.device) for v in one] for one in sets]
    calls = [max(1, int(_LAP / max(_lap(side, sets, 1, session), 1e-7))) for side in sides]
    draw, began = random.Random(session.secret), time.perf_counter()
    seconds: tuple[list[float], list[float]] = ([], [])
    ratios: list[float] = []
    while len(ratios) < _ROUNDS and (len(ratios) < 3 or time.perf_counter() - began < _SECONDS):
        block: tuple[list[float], list[float]] = ([], [])
        for i in (0, 1, 1, 0) if draw.random() < 0.5 else (1, 0, 0, 1):
            block[i].append(_lap(sides[i], sets, calls[i], session))
        for i in (0, 1):
            seconds[i].extend(block[i])
        ratios.append(sum(block[0]) / sum(block[1]))
    low, high = stats.bootstrap(ratios, session.seed)
    busy = load.loaded(before, load.pressure())
    ratio = statistics.median(ratios)
    return Timing(
        speed=Speed.INCONCLUSIVE if busy else stats.decide(low, high),
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        eager=stats.quartiles(seconds[0]),
        candidate=stats.quartiles(seconds[1]),
        eager_cold=None,
        candidate_cold=None,
        clock=1.0,
        roofline_seconds=0.0,
        samples_eager=tuple(seconds[0]),
        samples_candidate=tuple(seconds[1]),
        warm=(ratio, low, high),
        rounds=len(ratios),
        note="; ".join(filter(None, ("no isolation: both sides are in this process", busy))),
    )


def _lap(module: nn.Module, sets: list[list[Any]], calls: int, session: Session) -> float:
    began = time.perf_counter()
    with torch.no_grad():
        for i in range(calls):
            module(*sets[i % len(sets)])
        if session.device.type == "cuda":
            torch.cuda.synchronize(session.device)
    return (time.perf_counter() - began) / calls


def _there(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value
