"""Ours beside Inductor's, timed on made-up arguments while a graph is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import torch

from refold.backend.arguments import examples
from refold.backend.loaded import Boxed
from refold.measure import Timing, compare

SECONDS = 0.4  # of a comparison
FASTER = 1.02  # Inductor's time over ours from which on ours is taken: less may be noise


def is_faster(timing: Timing) -> bool:
    """Are we: by the median of the pairs, and in three of four of them, so that a machine that is
    busy with something else decides nothing?"""
    return timing.ratio >= FASTER and timing.low >= 1


def _is_finite(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    return bool(value.isfinite().all())


def _given(
    other: Callable[[list[Any]], Any], module: torch.fx.GraphModule, parameters: Collection[str]
) -> list[Any]:
    """Arguments of which results are finite, or else as many as there are: what is not a kernel may
    compute again, slowly, which says nothing about real ones."""
    best, least = list[Any](), math.inf
    for given in examples(module, parameters):
        wrong = sum(not _is_finite(r) for r in other(list(given)))
        if wrong < least:
            best, least = given, wrong
        if wrong == 0:
            break
    return best


def timed(
    ours: Boxed,
    other: Callable[[list[Any]], Any],
    module: torch.fx.GraphModule,
    parameters: Collection[str],
) -> Timing:
    """Both on the same arguments of a graph, in turns. The graph may write to its arguments. The
    random state is left as it was.

    parameters: the placeholders that are parameters or buffers.
    """
    metas = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    devices = {m.device for m in metas if isinstance(m, torch.Tensor) and m.device.type == "cuda"}
    kind = "cuda" if devices else "cpu"
    with torch.no_grad(), torch._C._DisableAutocast():
        with torch.random.fork_rng(sorted(d.index or 0 for d in devices)):
            given = _given(other, module, parameters)
        return compare(lambda: other(list(given)), lambda: ours(list(given)), kind, SECONDS)
