"""Whose a graph is: ours or Inductor's, by price and by measurement."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.output_code import CompiledFxGraph

from refold.backend import repro
from refold.backend.graphs import Derived, derive, flops_of, held_by, opaque_flops
from refold.backend.kept import Kept
from refold.backend.loaded import Declined, Operator, Unbuilt, load
from refold.backend.options import BackendOptions
from refold.backend.parts import mixed, parts_of
from refold.backend.report import GraphReport
from refold.backend.timing import is_faster, timed
from refold.capture.aot import results_of

log = logging.getLogger("refold")


@dataclass(frozen=True)
class _Ours:
    """What we would run of a graph: text, a function of all of it; or module, the graph with
    operators of ours in it, which Inductor compiles. facts: for the report."""

    text: str | None
    module: torch.fx.GraphModule | None
    operators: Sequence[Operator]
    facts: Mapping[str, Any]


def chosen(
    options: BackendOptions,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
) -> tuple[Any, GraphReport, bool]:
    """What computes a graph, why it is that, and whether it may be kept: not where something
    failed, which the next process has to see."""
    from torch._inductor.compile_fx import compile_fx_inner

    kind = "backward" if given.get("is_backward") else "forward"
    kind = "inference" if given.get("is_inference") else kind
    start = time.perf_counter()
    metas = _metas(module)
    flops, ours, reason, lasting = 0.0, None, "", True
    run: Any = None
    said: dict[str, Any] = {}
    try:
        with torch.utils._python_dispatch._disable_current_modes():
            flops = flops_of(module.graph)
            ours = _ours(options, module, flops)
            said |= ours.facts
            if ours.text is not None:
                run = load(ours.text, held_by(module))
    except Declined as why:
        reason, lasting = str(why), not isinstance(why, Unbuilt)
    except Exception as error:  # whatever it is, PyTorch's own code is there
        reason, lasting = _failed(module, metas, options, error), False
    said |= {"flops": flops}
    taken, beside = time.perf_counter() - start, 0.0
    inner: Any = None
    if ours is not None and ours.module is not None:
        start = time.perf_counter()
        try:
            run = inner = compile_fx_inner(ours.module, inputs, **given)
        except Exception as error:
            reason, lasting = _failed(module, metas, options, error), False
        beside = time.perf_counter() - start
    reason = reason or "it gains by price"
    other: Any = None
    if run is None or options.measure:
        with _strides_kept():
            start = time.perf_counter()
            other = compile_fx_inner(module, inputs, **given)
            beside += time.perf_counter() - start
            strides = _strides()
    if run is not None and options.measure:
        try:
            with torch.utils._python_dispatch._disable_current_modes():
                timing = timed(run, other, metas)
            said["ratio"] = timing.ratio
            reason = f"measured {timing.ratio:.2f} times as fast as Inductor's"
            if not is_faster(timing):
                run = None
                reason += f", {timing.low:.2f} in a quarter of the pairs" * (timing.ratio > 1)
        except Exception as error:  # out of memory above all: the price decides
            reason = f"by price; it could not be timed: {_first_line(error)}"
            lasting = False
    said["compiling"] = taken, beside
    if run is None:
        _tell(strides)
        said |= {"ours": 0.0, "text": None, "parts": 0}
        report = GraphReport(kind, "inductor", reason, **said)
        if not isinstance(other, CompiledFxGraph):  # a graph without a call
            return other, report, False
        return Kept(other, report, inner=other, aloud=options.report), report, lasting
    assert ours is not None
    report = GraphReport(kind, "refold", reason, **said)
    if ours.text is None:
        kept = Kept(run, report, operators=ours.operators, inner=inner, aloud=options.report)
        return kept, report, lasting
    metas = _result_metas(module)
    _tell([tuple(m.stride()) if isinstance(m, torch.Tensor) else None for m in metas])
    laid = [_expressions(m) for m in metas]
    kept = Kept(
        run, report, text=ours.text, held=held_by(module), strides=laid, aloud=options.report
    )
    return kept, report, lasting


def _ours(options: BackendOptions, module: torch.fx.GraphModule, flops: float) -> _Ours:
    """The whole graph where that gains by price, or else its parts that do. Raises Declined."""
    try:
        derived = derive(module.graph, options)
        if derived.gains:
            text = derived.text()
            left = derived.left() + opaque_flops(derived.plan, module.graph)
            facts = _facts([derived]) | {"ours": max(flops - left, 0.0), "text": text}
            return _Ours(text, None, (), facts)
        reason = "it gains nothing by price"
    except Declined as why:
        reason = str(why)
    parts = parts_of(module, options)
    if not parts:
        raise Declined(reason)
    found, operators = mixed(module, parts)
    own = sum(flops_of(p.graph.graph) - p.derived.left() for p in parts)
    texts = "\n\n".join(o.text for o in operators)
    facts = {"ours": min(max(own, 0.0), flops), "text": texts, "parts": len(parts)}
    return _Ours(None, found, operators, _facts([p.derived for p in parts]) | facts)


def _facts(derived: Sequence[Derived]) -> dict[str, Any]:
    return {
        "rules": tuple(dict.fromkeys(s.rule for d in derived for s in d.optimized.steps)),
        "seconds": sum(d.seconds for d in derived),
        "rival": sum(d.rival for d in derived),
    }


def _metas(module: torch.fx.GraphModule) -> list[Any]:
    return [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]


def _failed(
    module: torch.fx.GraphModule, metas: Sequence[Any], options: BackendOptions, error: Exception
) -> str:
    """Warn once of an error of ours; why the graph is Inductor's."""
    said = f"{type(error).__name__}: {_first_line(error)}"
    left = ""
    with contextlib.suppress(Exception):  # the script is a help, and must not stand in the way
        path = repro.leave(module, metas, options, error)
        left = f"; {path} shows it" if path else f"; {repro.FOLDER}=DIR leaves a script of it"
    if said not in _told:
        _told.add(said)
        log.warning("refold: Inductor compiles a graph, because ours failed (%s)%s", said, left)
    return f"our part failed: {said}"


_told: set[str] = set()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


# --- how results lie, which AOTAutograd is told of a forward graph --------------------------------
def _strides() -> list[Any] | None:
    """What was told of the graph that was compiled last."""
    context = torch._guards.TracingContext.try_get()
    told = None if context is None else context.output_strides
    return None if told is None else list(told)


@contextlib.contextmanager
def _strides_kept() -> Iterator[None]:
    """Tells nothing, so that another compilation may tell; puts back what was told before."""
    before = _strides()
    _tell([])
    yield
    _tell(before)


def _tell(strides: Sequence[Any] | None) -> None:
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.output_strides is not None and strides is not None:
        context.output_strides[:] = strides


def _result_metas(module: torch.fx.GraphModule) -> list[Any]:
    """What is known of our results, which lie as they were traced."""
    return [
        n.meta.get("val") if isinstance(n, torch.fx.Node) else n for n in results_of(module.graph)
    ]


def _expressions(meta: Any) -> tuple[str, ...] | None:
    """The strides of a result, as another process can read them."""
    if not isinstance(meta, torch.Tensor):
        return None
    return tuple(str(s.node.expr if isinstance(s, torch.SymInt) else s) for s in meta.stride())
