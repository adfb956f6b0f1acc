"""Ours beside Inductor's, timed on made-up arguments while a graph is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refold.backend.graphs import size_of, sizes_of
from refold.backend.loaded import Boxed
from refold.measure import Timing, compare

SECONDS = 0.4  # of a comparison
FASTER = 1.02  # Inductor's time over ours from which on ours is taken: less may be noise


def is_faster(timing: Timing) -> bool:
    """Are we: by the median of the pairs, and in three of four of them, so that a machine that is
    busy with something else decides nothing?"""
    return timing.ratio >= FASTER and timing.low >= 1


def example(metas: Sequence[Any]) -> list[Any]:
    """Arguments that are laid out like those of a graph. Numbers are between 0.5 and 1.5, so that
    none is denormal or out of a range; integers are 0, which is an index anywhere."""
    return [_made(m) for m in metas]


def _made(meta: Any) -> Any:
    if not isinstance(meta, torch.Tensor):
        return size_of(meta) if isinstance(meta, torch.SymInt) else meta
    made = torch.empty_strided(
        sizes_of(meta.shape), sizes_of(meta.stride()), dtype=meta.dtype, device=meta.device
    )
    return made.uniform_(0.5, 1.5) if made.is_floating_point() else made.zero_()


def timed(ours: Boxed, other: Callable[[list[Any]], Any], metas: Sequence[Any]) -> Timing:
    """Both on the same arguments, in turns. A graph may write to its arguments. The random state is
    left as it was."""
    devices = {m.device for m in metas if isinstance(m, torch.Tensor) and m.device.type == "cuda"}
    with torch.random.fork_rng(sorted(d.index or 0 for d in devices)):
        given = example(metas)
    kind = "cuda" if devices else "cpu"
    with torch.no_grad(), torch._C._DisableAutocast():
        return compare(lambda: other(list(given)), lambda: ours(list(given)), kind, SECONDS)
