"""What the page of `refold explain` says of each mode, gathered from its derivation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from markupsafe import Markup

from refold.accuracy.errors import error_of
from refold.accuracy.samples import Unmeasured, samples_of
from refold.baselines import EAGER, Contest
from refold.capture import Example, widen
from refold.derive import Derivation
from refold.devices import DeviceModel
from refold.emit.held import held
from refold.engine import Step, untouched
from refold.engine.normalise import Rewrite
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric
from refold.ir.ops import ATTENTIONS
from refold.ir.rounded import run_rounded
from refold.judge.ask.look import Bar, bars
from refold.plan import Group
from refold.plan.reference import Incomplete
from refold.planner import PlanPricer, floor, plan_price
from refold.planner.calls import CALLS_PER_FOLD, fold_seconds
from refold.price import elements, product_flops
from refold.report.pages import drawing, mathml
from refold.report.pages.reasons import Reason, reasons
from refold.report.pages.roofline import Dot, roofline
from refold.report.pages.stages import StageError, name_of, numbered, stage_errors, worst
from refold.report.terminal import seconds, size
from refold.rules import Rule
from refold.rules.prove import ProofError, prove

MOST_STEPS = 60
MOST_REASONS = 60
MOST_KERNELS = 60


@dataclass(frozen=True)
class Rewritten:
    """One rewrite. formula: before = after. general: the rule's two sides, or its left one."""

    why: str
    rule: str
    formula: Markup
    label: str
    mark: str
    saves: str
    proof: str
    general: Markup
    signature: str
    times: int = 1


@dataclass(frozen=True)
class Kernel:
    """One step of the plan."""

    number: int
    name: str
    family: str
    space: str
    ops: str
    moved: str
    time: str
    share: float
    own: bool  # or PyTorch's


@dataclass(frozen=True)
class Folded:
    """What is kept beside the parameters. formula: empty of what is packed. price: to compute it
    once."""

    name: str
    formula: Markup
    words: str
    size: str
    price: str


@dataclass(frozen=True)
class Whole:
    """An error of the results against float64, relative to the values. ratio: over eager's."""

    name: str
    error: float
    ratio: float


def of_mode(
    d: Derivation,
    device: DeviceModel,
    module: torch.nn.Module,
    example: Sequence[Any],
    contest: Contest | None,
    strict: bool,
) -> dict[str, Any]:
    """The page's facts of one mode, for its template.

    contest: measured times beside the baselines'; None where nothing was measured.
    """
    where = {"both": "train and eval mode"}.get(d.mode.name, f"{d.mode.name} mode")
    if d.mode.plan is None or d.optimized is None or d.mode.captured is None:
        return {"where": where, "kept": d.mode.kept}
    before, after = widen(d.mode.captured.graph).graph, d.optimized.graph
    own = device.at(d.dtype)
    banned = d.accuracy.banned if d.accuracy is not None else ()
    left = untouched(after, PlanPricer(own), strict=strict, banned=banned)
    kernels, dots = _kernels(d, own)
    steps = list(_steps(d))
    why_not = reasons(left)
    wholes, stages, stages_note = _errors(d, device, module, example, before)
    shown = worst(stages, MOST_KERNELS)
    return {
        "where": where,
        "label": d.mode.label,
        "ops": len(_called(before)),
        "kernels": kernels[:MOST_KERNELS],
        "more_kernels": len(kernels) - MOST_KERNELS,
        "counts": Counter("own" if k.own else "PyTorch" for k in kernels),
        "before_s": d.optimized.price_before,
        "after_s": d.optimized.price_after,
        "floor_s": floor(after, own),
        "drawn": _drawn(before, after, d),
        "steps": steps[:MOST_STEPS],
        "rewrites": sum(s.times for s in steps),
        "more_steps": max(0, len(steps) - MOST_STEPS),
        "reasons": why_not[:MOST_REASONS],
        "more_reasons": max(0, len(why_not) - MOST_REASONS),
        "roofline": roofline(dots, own),
        "folds": list(_folds(d, own)),
        "held": size(sum(h.size for h in held(d.mode.plan))),
        "accuracy": str(d.accuracy) if d.accuracy is not None else "",
        "wholes": wholes,
        "whole_bars": _whole_bars(wholes),
        "stages": shown,
        "more_stages": len(stages) - len(shown),
        "stages_note": stages_note,
        "contest": contest,
        "speed": speed_bars(contest) if contest is not None else [],
        "independent": d.optimized.independent_outputs,
    }


def _called(graph: Graph) -> list[Node]:
    memo: dict[Node, bool] = {}
    return [n for n in graph.nodes() if n.inputs and not is_parametric(n, memo)]


def _drawn(before: Graph, after: Graph, d: Derivation) -> tuple[drawing.Drawing, drawing.Drawing]:
    """Both graphs: what one computes and the other does not has a colour."""
    assert d.mode.plan is not None and d.optimized is not None
    same = _unchanged(after, d.optimized.originals)
    gone, new = set(before.nodes()) - set(same.values()), set(after.nodes()) - set(same)
    groups = [(g.name, g.nodes) for g in d.mode.plan.steps if isinstance(g, Group)]
    return (
        drawing.draw(before, dict.fromkeys(gone, "gone"), {}, "The graph as captured"),
        drawing.draw(
            after,
            dict.fromkeys(new, "new"),
            drawing.kernels_of(groups),
            "The graph as rewritten",
        ),
    )


def _unchanged(after: Graph, originals: Mapping[Node, Node]) -> dict[Node, Node]:
    """The nodes that compute what one of the original did, from the same parameters, and that
    one."""
    memo: dict[Node, bool] = {}

    def reads_alike(a: Node, b: Node) -> bool:
        return a is b or (not is_parametric(a, memo) and originals.get(a) is b)

    return {
        n: o
        for n in after.nodes()
        if (o := n if not n.inputs else originals.get(n)) is not None
        if n.op == o.op and len(n.inputs) == len(o.inputs)
        if all(map(reads_alike, n.inputs, o.inputs))
    }


def _steps(d: Derivation) -> Iterator[Rewritten]:
    """The rewrites in order; equal ones of repeated blocks once."""
    assert d.optimized is not None
    memo: dict[Node, bool] = {}
    rewrites = [r for r in d.optimized.rewrites if not is_parametric(r.before, memo)]
    proofs: dict[str, str] = {}
    found: dict[tuple[str, str], Rewritten] = {}
    for r, step in zip(rewrites, d.optimized.steps, strict=True):
        one = _step(r, step, proofs)
        key = (one.rule, f"{one.formula}" if len(rewrites) <= MOST_STEPS else "")
        had = found.get(key)
        found[key] = one if had is None else replace(had, times=had.times + 1)
    yield from found.values()


def _step(r: Rewrite, step: Step, proofs: dict[str, str]) -> Rewritten:
    rule = r.rule
    if rule.name not in proofs:
        proofs[rule.name] = proof_of(rule)
    return Rewritten(
        rule.why,
        rule.name,
        mathml.equation(mathml.value(r.before), mathml.value(r.after)),
        rule.exact,
        rule.mark or "",
        seconds(step.saved) if step.saved > 0 else "",
        proofs[rule.name],
        general(rule),
        rule.signature,
    )


def proof_of(rule: Rule) -> str:
    """Runs the rule's proof, and says what came of it."""
    try:
        failure = prove(rule, seed=1)
    except ProofError as error:
        return f"not shown here: {error}"
    if failure is not None:
        return f"REFUTED: {failure}"
    return (
        "run for this page: both sides agree in float64 on 25 random instances of shapes,"
        " attributes and data"
    )


def general(rule: Rule) -> Markup:
    """The rule itself; its left side alone where the right one follows from sizes."""
    if len(rule.patterns) > 1:
        return Markup("").join(mathml.alone(mathml.term(p)) for p in rule.patterns)
    try:
        right = rule.rhs(**{name: mathml.variable(name) for name in rule.holes})
        return mathml.equation(mathml.term(rule.pattern), mathml.term(right))
    except Exception:  # a right side that asks for shapes has none to ask here
        return mathml.alone(mathml.term(rule.pattern))


def _kernels(d: Derivation, device: DeviceModel) -> tuple[list[Kernel], list[Dot]]:
    assert d.mode.plan is not None
    price = plan_price(d.mode.plan, device)
    kernels: list[Kernel] = []
    dots: list[Dot] = []
    numbers = numbered(d.mode.plan, device)
    for i, (step, cost) in enumerate(zip(d.mode.plan.steps, price.steps, strict=True)):
        if i not in numbers:
            continue
        number, name = numbers[i], name_of(step)
        if isinstance(step, Group):
            family, nodes = step.family, step.nodes
            space = " × ".join(str(x) for x in step.dims if str(x) != "1")
        else:
            family, nodes, space = "call", (step.node,), ""
        ops = ", ".join(
            f"{op} × {n}" if n > 1 else op for op, n in Counter(n.op for n in nodes).items()
        )
        share = cost.seconds / price.seconds if price.seconds else 0.0
        told = (size(int(cost.moved)), seconds(cost.seconds), share, isinstance(step, Group))
        kernels.append(Kernel(number, name, family, space, ops, *told))
        flops = sum(map(_flops, nodes))
        dots.append(Dot(number, name, flops, cost.moved, cost.seconds))
    return kernels, dots


def _flops(node: Node) -> float:
    if node.row.is_contraction or node.op in ATTENTIONS:
        return product_flops(node)
    if not node.inputs or not node.is_float:
        return 0.0
    over = max((node, *node.inputs), key=elements)
    return elements(over) * node.row.flops.plain


def _folds(d: Derivation, device: DeviceModel) -> Iterator[Folded]:
    assert d.mode.plan is not None
    folds = {f.name: f.node for f in d.mode.plan.folds}
    for h in held(d.mode.plan):
        node = folds.get(h.name)
        formula, price = Markup(""), ""
        if node is not None:
            formula = mathml.value(node)
            price = seconds(fold_seconds(node, replace(device, hold=0.0)) * CALLS_PER_FOLD)
        yield Folded(h.name, formula, h.words, size(h.size), price)


def _errors(
    d: Derivation,
    device: DeviceModel,
    module: torch.nn.Module,
    example: Sequence[Any],
    before: Graph,
) -> tuple[list[Whole], list[StageError], str]:
    """Errors of the results by eager, by the graph as captured and as rewritten; those of each
    stage; or why there are none."""
    assert d.mode.captured is not None and d.optimized is not None and d.mode.plan is not None
    training = module.training
    try:
        module.train(d.mode.name == "train")
        samples = samples_of(module, Example.of(list(example)), d.mode.captured, before)
        sample = samples.get(samples.names[0])
        assert sample is not None
        roots = d.optimized.graph.roots()
        made = run_rounded(roots, sample.leaves, sample.sizes, {})
        ways = {
            "eager": sample.eager,
            "the graph as captured": sample.apart,
            "the graph as rewritten": [made[r] for r in roots],
        }
        errors = {name: _relative(sample, values) for name, values in ways.items()}
        stages = stage_errors(d.mode.plan, numbered(d.mode.plan, device), before, sample)
    except (Unmeasured, Incomplete, NotImplementedError, RuntimeError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return [], [], f"nothing was measured: {first}"
    finally:
        module.train(training)
    eager = errors["eager"]
    if eager is None or not all(e is not None for e in errors.values()):
        return [], stages, "the results hold no floating-point numbers to measure"
    wholes = [
        Whole(name, error or 0.0, (error or 0.0) / eager if eager else math.nan)
        for name, error in errors.items()
    ]
    return wholes, stages, ""


def _relative(sample: Any, made: Sequence[torch.Tensor]) -> float | None:
    """The largest root mean square error of a result, relative to its values'."""
    found = []
    for e, m, t in zip(sample.eager, made, sample.truth, strict=True):
        if e.is_floating_point() and e.numel():
            one = error_of(e, m.reshape(e.shape), t.reshape(e.shape))
            found.append(math.sqrt(one.rewritten / one.values) if one.values else 0.0)
    return max(found, default=None)


def _whole_bars(wholes: Sequence[Whole]) -> list[Bar]:
    rows = [
        (
            s.name,
            max(s.error, 1e-12),
            max(s.error, 1e-12),
            max(s.error, 1e-12) * 1.001,
            f"{s.error:.2g}" + (f", {s.ratio:.2f} of eager's" if s.name != "eager" else ""),
            s.name.endswith("rewritten"),
        )
        for s in wholes
    ]
    return bars(rows)


def speed_bars(contest: Contest) -> list[Bar]:
    """How many times as fast as each baseline refold is, with quartiles."""
    rows = [
        (
            f"over {name}",
            t.low,
            t.ratio,
            t.high,
            f"{t.ratio:.2f}× [{t.low:.2f}, {t.high:.2f}], {seconds(t.base)}",
            t.ratio > 1,
        )
        for name, t in sorted(contest.timings.items(), key=lambda item: item[0] != EAGER)
    ]
    return bars(rows, 1.0)


def by_name(contests: Mapping[str, Contest | None], mode: str) -> Contest | None:
    """The times of a mode; those of both stand for each."""
    return contests.get(mode) or contests.get("both")


__all__ = ["Reason", "by_name", "of_mode"]
