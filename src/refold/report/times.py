"""What the emitted modules of one file take: time beside the baselines, and memory."""

from __future__ import annotations

from typing import Any

import torch

from refold import pipeline, turns
from refold.baselines import COMPILE, EAGER, Contest
from refold.capture import kept
from refold.devices import DeviceModel
from refold.measure import clock
from refold.pipeline import Result
from refold.planner import floor
from refold.twin import caches_of, folded_bytes, namespaces


def times_of(
    module: torch.nn.Module,
    inputs: list[Any],
    result: Result,
    device: str,
    model: DeviceModel | None = None,
) -> list[dict[str, Any]]:
    """Per mode: refold beside the baselines, the folds' cost and when they have paid.

    model: by whose rates the least time of what is left to compute is told (`floor_s`).
    """
    fast = pipeline.bind_text(result.text, module) if result.text is not None else module
    rows: list[dict[str, Any]] = []
    for d in result.derivations:
        row: dict[str, Any] = {"mode": d.mode.name} | (_beside(d.contest) if d.contest else {})
        rows.append(row)
        if d.mode.plan is None:
            row["kept"] = d.mode.kept
            continue
        assert d.contest is not None
        eager = d.contest.timings[EAGER]
        with turns.alone(), kept(module), torch.no_grad():
            for m in (module, fast):
                m.train(d.mode.name == "train")
            fast.refold_refresh()  # type: ignore[operator]
            fold = max(0.0, clock(lambda: fast(*inputs), device) - eager.other)
        gain = eager.base - eager.other
        row |= {
            "label": d.mode.label,
            "floor_s": floor(d.optimized.graph, model.at(d.dtype))
            if model and d.optimized
            else None,
            "folds": bool(d.mode.plan.folds),
            "fold_s": fold if d.mode.plan.folds else 0.0,
            "prepared_bytes": _prepared_bytes(fast),
            "working_bytes": _working_bytes(fast),
            "break_even_calls": int(fold / gain) + 1 if d.mode.plan.folds and gain > 0 else 0,
        }
    return rows


def _beside(contest: Contest) -> dict[str, Any]:
    """The fields of one mode that say how fast refold is, and how fast what else there is.

    Every ratio names its baseline; `ratio` is of eager. `speedup_to_best` is of what the file does:
    refold's over the best baseline, or eager's where the original is kept.
    """
    eager, compiled = contest.timings[EAGER], contest.timings.get(COMPILE)
    best = contest.timings[contest.best]
    return {
        "eager_s": eager.base,
        "ours_s": eager.other,
        "ratio": eager.ratio,
        "ratio_quartiles": [eager.low, eager.high],
        "compile_s": compiled.base if compiled else None,
        "ratio_to_compile": compiled.ratio if compiled else None,
        "best": contest.best,
        "best_s": best.base,
        "ratio_to_best": best.ratio,
        "speedup_to_best": contest.eager_to_best if contest.loss else best.ratio,
        "baselines": {
            name: {"s": t.base, "ratio": t.ratio, "ratio_quartiles": [t.low, t.high]}
            for name, t in contest.timings.items()
        },
        "left_out": dict(contest.left_out),
    }


def _prepared_bytes(fast: torch.nn.Module) -> int:
    """Memory of folded and packed parameters in the present mode, beside the parameters."""
    wanted = ("train" if fast.training else "eval", "both")
    found = [cache for _, name, cache in caches_of(fast) if name in wanted]
    return sum(folded_bytes(cache) for cache in found)


def _working_bytes(fast: torch.nn.Module) -> int:
    """Memory that kernels have worked in so far, kept for each stream; none on a CPU."""
    kept = [getattr(n, "_refold_workspaces", {}).values() for n in namespaces(fast)]
    return sum(parts + turns for rows in kept for _, _, parts, turns, _ in rows)
