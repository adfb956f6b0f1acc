"""The backend: each graph is ours or Inductor's, by price and by measurement."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refold.backend import repro
from refold.backend.graphs import Declined, Derived, derive, flops_of, load, opaque_flops
from refold.backend.options import BackendOptions
from refold.backend.report import GraphReport, note
from refold.backend.timing import FASTER, timed

log = logging.getLogger("refold")
Inner = Callable[..., Any]


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
    from torch._inductor.compile_fx import compile_fx_inner

    def other() -> Any:
        return compile_fx_inner(module, inputs, **given)

    kind = "backward" if given.get("is_backward") else "forward"
    kind = "inference" if given.get("is_inference") else kind
    found, report = _chosen(options, module, inputs, kind, other)
    note(report)
    if options.report:
        print(f"refold: {report}", flush=True)
    return found


def _chosen(
    options: BackendOptions,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    kind: str,
    other: Callable[[], Any],
) -> tuple[Any, GraphReport]:
    """What computes a graph, and why it is that."""
    start = time.perf_counter()
    flops, derived, ours, text = 0.0, None, None, None
    reason = ""
    metas = _metas(module)
    try:
        with torch.utils._python_dispatch._disable_current_modes():
            flops = flops_of(module.graph)
            derived = derive(module.graph, options)
            if derived.gains:
                text = derived.text()
                ours = load(text, module)
            else:
                reason = "it gains nothing by price"
    except Declined as why:
        reason = str(why)
    except Exception as error:  # whatever it is, PyTorch's own code is there
        reason = _failed(module, metas, options, error)
    taken = time.perf_counter() - start
    facts = _facts(derived, module, flops)
    ratio, beside = None, 0.0
    compiled: Any = None
    if ours is None or options.measure:
        start = time.perf_counter()
        compiled = other()
        beside = time.perf_counter() - start
    if ours is not None and options.measure:
        try:
            with torch.utils._python_dispatch._disable_current_modes():
                ratio = timed(ours, compiled, metas).ratio
        except Exception as error:  # out of memory above all: the price decides
            reason = f"by price; it could not be timed: {_first_line(error)}"
        if ratio is not None and ratio < FASTER:
            ours, reason = None, f"measured {ratio:.2f} times as fast as Inductor's"
        elif ratio is not None:
            reason = f"measured {ratio:.2f} times as fast as Inductor's"
    said: dict[str, Any] = {"flops": flops, "ratio": ratio, "compiling": (taken, beside)}
    if ours is None:
        return compiled, GraphReport(kind, "inductor", reason, **(facts | said | {"ours": 0.0}))
    _tell_strides(module)
    reason = reason or "it gains by price"
    return ours, GraphReport(kind, "refold", reason, text=text, **facts, **said)


def _facts(derived: Derived | None, module: torch.fx.GraphModule, flops: float) -> dict[str, Any]:
    if derived is None:
        return {}
    left = derived.left() + opaque_flops(derived.plan, module.graph)
    return {
        "ours": max(flops - left, 0.0),
        "rules": tuple(dict.fromkeys(s.rule for s in derived.optimized.steps)),
        "seconds": derived.seconds,
        "rival": derived.rival,
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


def _tell_strides(module: torch.fx.GraphModule) -> None:
    """Tell AOTAutograd how our results lie: as they were traced."""
    from refold.capture.aot import results_of

    context = torch._guards.TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    context.output_strides.clear()
    for node in results_of(module.graph):
        meta = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        strides = tuple(meta.stride()) if isinstance(meta, torch.Tensor) else None
        context.output_strides.append(strides)
