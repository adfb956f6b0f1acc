"""The backend: each graph is ours or Inductor's, by price and by measurement."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold.backend import repro
from refold.backend.graphs import Boxed, Declined, Derived, derive, flops_of, load, opaque_flops
from refold.backend.options import BackendOptions
from refold.backend.parts import mixed, parts_of
from refold.backend.report import GraphReport, note
from refold.backend.timing import FASTER, timed
from refold.capture.aot import results_of

log = logging.getLogger("refold")


def refold(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """The backend of `torch.compile(model, backend="refold", options={...})`.

    mode: as Inductor knows it; it applies to graphs that are Inductor's. options: see
    BackendOptions. Raises ValueError for an option that does not exist.
    """
    from torch._functorch import config as functorch_config
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    asked = BackendOptions.of(options)
    patches = list_mode_options(mode) if mode else None
    # AOTAutograd's cache would give back what Inductor compiled of the same graph
    with functorch_config.patch(enable_autograd_cache=False):
        return compile_fx(
            module, list(inputs), functools.partial(_inner, asked), config_patches=patches
        )


def _inner(
    options: BackendOptions, module: torch.fx.GraphModule, inputs: Sequence[Any], **given: Any
) -> Any:
    """Compile one graph of ATen: what Inductor calls in the place of its own compiler."""
    kind = "backward" if given.get("is_backward") else "forward"
    kind = "inference" if given.get("is_inference") else kind
    found, report = _chosen(options, module, inputs, kind, given)
    note(report)
    if options.report:
        print(f"refold: {report}", flush=True)
    return found


@dataclass(frozen=True)
class _Ours:
    """What we would run of a graph. call: the whole of it; or else module: the graph with operators
    of ours in it, which Inductor compiles. facts: for the report."""

    call: Boxed | None
    module: torch.fx.GraphModule | None
    facts: Mapping[str, Any]

    def compiled(self, inputs: Sequence[Any], given: Mapping[str, Any]) -> Boxed:
        if self.call is not None:
            return self.call
        from torch._inductor.compile_fx import compile_fx_inner

        found: Boxed = compile_fx_inner(self.module, inputs, **given)  # type: ignore[arg-type]
        return found


def _chosen(
    options: BackendOptions,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    kind: str,
    given: Mapping[str, Any],
) -> tuple[Any, GraphReport]:
    """What computes a graph, and why it is that."""
    from torch._inductor.compile_fx import compile_fx_inner

    start = time.perf_counter()
    metas = _metas(module)
    flops, ours, reason = 0.0, None, ""
    try:
        with torch.utils._python_dispatch._disable_current_modes():
            flops = flops_of(module.graph)
            ours = _ours(options, module, flops)
    except Declined as why:
        reason = str(why)
    except Exception as error:  # whatever it is, PyTorch's own code is there
        reason = _failed(module, metas, options, error)
    said: dict[str, Any] = {"flops": flops}
    taken, beside = time.perf_counter() - start, 0.0
    run: Any = None
    if ours is not None:
        start = time.perf_counter()
        try:
            run = ours.compiled(inputs, given)
        except Exception as error:
            reason = _failed(module, metas, options, error)
        beside = time.perf_counter() - start
        said |= ours.facts
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
                ratio = said["ratio"] = timed(run, other, metas).ratio
            reason = f"measured {ratio:.2f} times as fast as Inductor's"
            run = run if ratio >= FASTER else None
        except Exception as error:  # out of memory above all: the price decides
            reason = f"by price; it could not be timed: {_first_line(error)}"
    said["compiling"] = taken, beside
    if run is None:
        _tell(strides)
        said |= {"ours": 0.0, "text": None}
        return other, GraphReport(kind, "inductor", reason, **said)
    assert ours is not None
    if ours.call is not None:
        _tell(_traced_strides(module))
    return run, GraphReport(kind, "refold", reason, **said)


def _ours(options: BackendOptions, module: torch.fx.GraphModule, flops: float) -> _Ours:
    """The whole graph where that gains by price, or else its parts that do. Raises Declined."""
    try:
        derived = derive(module.graph, options)
        if derived.gains:
            text = derived.text()
            left = derived.left() + opaque_flops(derived.plan, module.graph)
            facts = _facts([derived]) | {"ours": max(flops - left, 0.0), "text": text}
            return _Ours(load(text, module), None, facts)
        reason = "it gains nothing by price"
    except Declined as why:
        reason = str(why)
    parts = parts_of(module, options)
    if not parts:
        raise Declined(reason)
    found, texts = mixed(module, parts)
    own = sum(flops_of(p.graph.graph) - p.derived.left() for p in parts)
    facts = {"ours": min(max(own, 0.0), flops), "text": "\n\n".join(texts), "parts": len(parts)}
    return _Ours(None, found, _facts([p.derived for p in parts]) | facts)


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


def _traced_strides(module: torch.fx.GraphModule) -> list[Any]:
    """Those of our results, which lie as they were traced."""
    metas = [
        n.meta.get("val") if isinstance(n, torch.fx.Node) else n for n in results_of(module.graph)
    ]
    return [tuple(m.stride()) if isinstance(m, torch.Tensor) else None for m in metas]
