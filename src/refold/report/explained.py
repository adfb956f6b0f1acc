"""What `refold explain` says of one mode, as a table of plain values."""

from __future__ import annotations

from typing import Any

from refold.codegen.text import describe
from refold.derive import ROUNDS_ONCE, Derivation
from refold.devices import DeviceModel
from refold.emit.held import held
from refold.ir import render
from refold.plan import ExternCall, Group
from refold.plan.show import show
from refold.planner import floor, plan_price


def explained(
    d: Derivation, device: DeviceModel, graph: bool = False, plan: bool = False
) -> dict[str, Any]:
    """Why a mode is rewritten so, its kernels, and what they should take.

    graph: the captured and the rewritten graph, too. plan: the plan as text, and its graph, whose
    names it has.
    """
    if d.mode.plan is None or d.optimized is None or d.mode.captured is None:
        return {"mode": d.mode.name, "kept": d.mode.kept}
    steps = [
        {
            "rule": s.rule,
            "why": s.why,
            "before": s.before,
            "after": s.after,
            "label": s.label,
            "saves_s": s.saved,
        }
        for s in d.optimized.steps
    ]
    if ROUNDS_ONCE in d.mode.steps:
        first = {"rule": "round-once", "why": ROUNDS_ONCE, "label": "reals"}
        steps.insert(0, first | {"before": "16 bits", "after": "float32", "saves_s": 0.0})
    groups = []
    for s in d.mode.plan.steps:
        if isinstance(s, Group):
            groups.append(
                {
                    "kernel": s.name,
                    "family": s.family,
                    "space": [str(x) for x in s.dims],
                    "ops": [n.op for n in s.nodes],
                }
            )
        elif isinstance(s, ExternCall):
            name = str(s.node["target"]) if s.node.op == "aten" else s.node.op
            groups.append({"kernel": "PyTorch", "family": "call", "ops": [name]})
    row: dict[str, Any] = {
        "mode": d.mode.name,
        "label": d.mode.label,
        "dtype": str(d.dtype).removeprefix("torch."),
        "steps": steps,
        "groups": groups,
        "folds": [{"name": f.name, "is": describe(f.node)} for f in d.mode.plan.folds],
        "held": [{"name": h.name, "bytes": h.size} for h in held(d.mode.plan)],
        "accuracy": str(d.accuracy),
        "predicted_before_s": d.optimized.price_before,
        "predicted_s": d.optimized.price_after,
        "floor_s": floor(d.optimized.graph, device.at(d.dtype)),
        "independent_outputs": list(d.optimized.independent_outputs),
    }
    if graph:
        row["captured_graph"] = render(d.mode.captured.graph)
        row["graph"] = render(d.optimized.graph)
    if plan:
        row["planned_graph"] = render(d.mode.plan.graph)
        price = plan_price(d.mode.plan, device.at(d.dtype))
        row["plan"] = show(d.mode.plan, price)
        row["launches"] = price.launches
    return row
