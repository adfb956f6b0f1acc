"""What a report of `refold optimize` says of a result and of the judge's verdict on it."""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch

from refold import contract
from refold.emit.held import own_bytes
from refold.emit.target import Target
from refold.judge import Verdict
from refold.pipeline import Result


def facts(made: Result, result: Result, verdict: Verdict | None, rejected: str) -> dict[str, Any]:
    """What holds whatever was timed: what the algebra wrote, and the judge's word on that.

    made: before anything was timed. result: afterwards. verdict: on `made`, where there is one.
    rejected: why the judge did not let it pass, or empty.
    """
    modes = []
    for before, after in zip(made.derivations, result.derivations, strict=True):
        one: dict[str, Any] = {"mode": before.mode.name}
        if after.mode.plan is None and after.contest is None:
            one["kept"] = after.mode.kept
        else:
            plan = before.mode.plan
            one |= {"label": before.mode.label, "folds": bool(plan and plan.folds)}
        modes.append(one)
    found = {"modes": modes, "by_timing": made.by_timing, "rejected": rejected}
    return found | (said(verdict) if verdict else {})


def _errors(verdict: Verdict) -> dict[str, dict[str, float]]:
    """The largest root mean square error of any output in each mode, candidate's and eager's; of
    eval mode, or else of train mode, under "both"."""
    cases = {
        "train": "train",
        "eval": "eval",
        "the file's inputs": "train",
        "the file's inputs, train": "train",
        "the file's inputs, eval": "eval",
    }
    found: dict[str, dict[str, float]] = {}
    for e in verdict.errors:
        mode = cases.get(e.case)
        if mode is None or math.isnan(e.rmse):
            continue
        if e.rmse >= found.get(mode, {}).get("candidate", -1.0):
            found[mode] = {"candidate": e.rmse, "eager": e.rmse_eager}
    both = found.get("eval") or found.get("train")
    return found | ({"both": both} if both else {})


def said(verdict: Verdict) -> dict[str, Any]:
    """What the report keeps of a verdict."""
    return {
        "verdict": verdict.status.value,
        "errors": _errors(verdict),
        "assumptions": list(verdict.assumptions),
        "task": {"kind": verdict.task.kind, "reasons": list(verdict.task.reasons)},
    }


def report(
    reference: contract.Reference,
    module: torch.nn.Module,
    result: Result,
    verdict: Verdict,
    times: list[dict[str, Any]],
    target: Target,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Of a file that was written and accepted."""
    return {
        "reference": str(reference.path),
        "output": str(args.output),
        "target": target.name,
        "label": result.label,
        "judged": "full" if args.full else "quick",
        **said(verdict),
        "parameter_bytes": own_bytes(module),
        "algebra_s": result.seconds,
        "build_s": result.build_seconds,
        "independent_outputs": sorted(
            {i for d in result.derivations if d.optimized for i in d.optimized.independent_outputs}
        ),
        "modes": times,
        "working_bytes": max((row.get("working_bytes", 0) for row in times), default=0),
        "threads": torch.get_num_threads(),
    }
