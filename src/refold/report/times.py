"""What the emitted modules of one file take: time beside eager and torch.compile, and memory."""

from __future__ import annotations

from typing import Any

import torch

from refold import pipeline
from refold.capture import kept
from refold.measure import Timing, clock, compare
from refold.pipeline import Result
from refold.twin import caches_of, folded_bytes, namespaces


def times_of(
    module: torch.nn.Module,
    inputs: list[Any],
    result: Result,
    device: str,
    seconds: float,
    beside: bool = True,
) -> list[dict[str, Any]]:
    """Per mode: eager, torch.compile and ours, the folds' cost and when they have paid.

    beside: whether torch.compile is timed at all.
    """
    assert result.text is not None
    fast = pipeline.bind_text(result.text, module)
    rows: list[dict[str, Any]] = []
    for d in result.derivations:
        if d.mode.plan is None:
            rows.append({"mode": d.mode.name, "kept": d.mode.kept})
            continue
        assert d.timing is not None
        with kept(module), torch.no_grad():
            for m in (module, fast):
                m.train(d.mode.name == "train")
            steady = d.timing.other
            fast.refold_refresh()  # type: ignore[operator]
            fold = max(0.0, clock(lambda: fast(*inputs), device) - steady)
            compiled = _compiled(module, fast, inputs, device, seconds) if beside else None
        gain = d.timing.base - steady
        rows.append(
            {
                "mode": d.mode.name,
                "label": d.mode.label,
                "eager_s": d.timing.base,
                "ours_s": steady,
                "ratio": d.timing.ratio,
                "ratio_quartiles": [d.timing.low, d.timing.high],
                "compile_s": compiled.base if compiled else None,
                "ratio_to_compile": compiled.ratio if compiled else None,
                "fold_s": fold if d.mode.plan.folds else 0.0,
                "prepared_bytes": _prepared_bytes(fast),
                "working_bytes": _working_bytes(fast),
                "break_even_calls": int(fold / gain) + 1 if d.mode.plan.folds and gain > 0 else 0,
            }
        )
    return rows


def _prepared_bytes(fast: torch.nn.Module) -> int:
    """Memory of folded and packed parameters in the present mode, beside the parameters."""
    wanted = ("train" if fast.training else "eval", "both")
    found = [cache for _, name, cache in caches_of(fast) if name in wanted]
    return sum(folded_bytes(cache) for cache in found)


def _working_bytes(fast: torch.nn.Module) -> int:
    """Memory that kernels have worked in so far, kept for each stream; none on a CPU."""
    kept = [getattr(n, "_refold_workspaces", {}).values() for n in namespaces(fast)]
    return sum(parts + turns for rows in kept for _, _, parts, turns, _ in rows)


def _compiled(
    module: torch.nn.Module, fast: torch.nn.Module, inputs: list[Any], device: str, seconds: float
) -> Timing | None:
    try:
        torch._dynamo.reset()
        compiled = torch.compile(module)
        compiled(*inputs)
    except Exception:
        return None
    return compare(lambda: compiled(*inputs), lambda: fast(*inputs), device, seconds)
