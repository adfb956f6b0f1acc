"""Whose a graph is: ours or Inductor's, by price and by measurement."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.utils import BoxedBool

from refold.backend import repro
from refold.backend.accurate import Unmeasured, measured
from refold.backend.arguments import Forward, as_called
from refold.backend.attention_dropout import Replaced, with_own_attention
from refold.backend.graphs import (
    Derived,
    derive,
    flops_of,
    has_batches,
    held_by,
    opaque_flops,
)
from refold.backend.inductor import (
    Inductors,
    compile_inner,
    copied,
    kind_of,
    parameters_of,
    tell_strides,
)
from refold.backend.kept import Kept
from refold.backend.loaded import Boxed, Declined, Operator, Unbuilt, load
from refold.backend.mixed import mixed
from refold.backend.options import BackendOptions
from refold.backend.parts import call_of, parts_of
from refold.backend.report import GraphReport
from refold.backend.timing import is_faster, timed
from refold.capture.aot import results_of

log = logging.getLogger("refold")


@dataclass(frozen=True)
class _Ours:
    """What we would run of a graph: text and run, a function of all of it; or module, the graph
    with operators of ours in it, which Inductor compiles. facts: for the report. said: what the
    reason says of its error."""

    text: str | None
    run: Boxed | None
    module: torch.fx.GraphModule | None
    operators: Sequence[Operator]
    facts: Mapping[str, Any]
    said: str = ""


def chosen(
    options: BackendOptions,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
    forward: Forward | None = None,
) -> tuple[Any, GraphReport, bool]:
    """What computes a graph, why it is that, and whether it may be kept: not where something
    failed, which the next process has to see. forward: of which the graph is the backward."""
    kind = kind_of(given)
    metas = _metas(module)
    captured, plain = _captured(given, metas), given
    if captured:  # for what is timed while compiling: a CUDA graph is made for the user's memory
        plain = dict(given) | {"cudagraphs": BoxedBool(False)}
    check = _Check(options, kind, parameters_of(module, kind, given), forward)
    graph = _Graph(options, module, inputs, plain, metas, check, captured)
    tried = graph.tried()
    taken, beside, other = tried.taken, tried.beside, None
    if tried.run is None or options.measure:
        again = captured or tried.run is not None  # it is read once more
        other = Inductors.of(copied(module) if again else module, inputs, plain)
        beside += other.seconds
    if tried.run is not None and other is not None:
        tried = graph.faster(tried, other)
        if tried.run is None and has_batches(module):
            second = graph.tried(apart=True)
            taken, beside = taken + second.taken, beside + second.beside
            if second.run is not None:
                tried = graph.faster(second, other, tried.reason)
    ours, run, reason, lasting = tried.ours, tried.run, tried.reason, tried.lasting
    said, inner = tried.said, None if captured else tried.run
    if run is None and captured:
        other = Inductors.of(module, inputs, given)
    elif captured and ours is not None and ours.module is not None:
        run = inner = compile_inner(ours.module, inputs, **given)
    said["compiling"] = taken, beside
    if run is None:
        assert other is not None
        tell_strides(other.strides)
        said |= {"ours": 0.0, "text": None, "parts": 0}
        report = GraphReport(kind, "inductor", reason, **said)
        if not isinstance(other.run, CompiledFxGraph):  # a graph without a call
            return other.run, report, False
        return Kept(other.run, report, inner=other.run, aloud=options.report), report, lasting
    assert ours is not None
    report = GraphReport(kind, "refold", reason + ours.said, **said)
    if ours.text is None:
        kept = Kept(run, report, operators=ours.operators, inner=inner, aloud=options.report)
        return kept, report, lasting
    metas = _result_metas(module)
    tell_strides([tuple(m.stride()) if isinstance(m, torch.Tensor) else None for m in metas])
    laid = [_expressions(m) for m in metas]
    kept = Kept(
        run, report, text=ours.text, held=held_by(module), operators=ours.operators, strides=laid,
        aloud=options.report,
    )  # fmt: skip
    return kept, report, lasting


@dataclass(frozen=True)
class _Tried:
    """What may compute a graph. run: None where that is Inductor's, for the reason. lasting:
    whether it is so in another process, too. taken, beside: seconds of ours and of Inductor."""

    ours: _Ours | None
    run: Any
    reason: str
    lasting: bool
    said: dict[str, Any]
    taken: float = 0.0
    beside: float = 0.0


@dataclass(frozen=True)
class _Graph:
    """A graph while it is chosen. given: to Inductor, for what is timed. captured: whether a CUDA
    graph will be made of it."""

    options: BackendOptions
    module: torch.fx.GraphModule
    inputs: Sequence[Any]
    given: Mapping[str, Any]
    metas: Sequence[Any]
    check: _Check
    captured: bool

    def tried(self, apart: bool = False) -> _Tried:
        """Ours by price; apart: in parts between batches of products."""
        start = time.perf_counter()
        flops, ours, reason, lasting = 0.0, None, "it gains by price", True
        run: Any = None
        try:
            with as_called():
                flops = flops_of(self.module.graph)
                ours = _ours(self, flops, apart)
                run = ours.run
        except Declined as why:
            reason, lasting = str(why), not isinstance(why, Unbuilt)
        except Exception as error:  # whatever it is, PyTorch's own code is there
            reason, lasting = self._failed(error), False
        said = {**({} if ours is None else ours.facts), "flops": flops}
        taken, beside = time.perf_counter() - start, 0.0
        if ours is not None and ours.module is not None:
            start = time.perf_counter()
            try:
                if self.captured:  # and once more for CUDA graphs, where it is chosen
                    run = Inductors.of(copied(ours.module), self.inputs, self.given).run
                else:
                    run = compile_inner(ours.module, self.inputs, **self.given)
            except Exception as error:
                reason, lasting = self._failed(error), False
            beside = time.perf_counter() - start
        return _Tried(ours, run, reason, lasting, said, taken, beside)

    def faster(self, tried: _Tried, other: Inductors, before: str = "") -> _Tried:
        """The same where it is faster than Inductor's; else without a function that runs. before:
        what was said of another way."""
        said, lasting, run = dict(tried.said), tried.lasting, tried.run
        try:
            check = self.check
            known = check.parameters, check.forward
            timing = timed(run, other.run, self.module, *known, self.inputs)
            said["ratio"] = timing.ratio
            reason = f"measured {timing.ratio:.2f} times as fast as Inductor's"
            if not is_faster(timing):
                run = None
                reason += f", {timing.low:.2f} in a quarter of the pairs" * (timing.ratio > 1)
            if before:
                reason += f" between batches of products; with them {before}"
        except Exception as error:  # out of memory above all: the price decides
            reason = f"by price; it could not be timed: {_first_line(error)}"
            lasting = False
        return dataclasses.replace(tried, run=run, reason=reason, lasting=lasting, said=said)

    def _failed(self, error: Exception) -> str:
        return _failed(self.module, self.metas, self.options, error)


# --- how accurate it is ---------------------------------------------------------------------------
@dataclass(frozen=True)
class _Checked:
    """good: ours may be taken. error: over eager's. said: what the reason of a graph says of it."""

    good: bool = True
    error: float | None = None
    said: str = ""


@dataclass(frozen=True)
class _Check:
    """Measures functions of a graph, or of its parts. parameters: names of placeholders. forward:
    of which the graph is the backward, where it is known."""

    options: BackendOptions
    kind: str
    parameters: frozenset[str]
    forward: Forward | None

    def of(
        self, module: torch.fx.GraphModule, run: Any, parameters: frozenset[str] | None = None
    ) -> _Checked:
        """Warns of what is inaccurate, and leaves a script of it. parameters: of a part."""
        if not self.options.check:
            return _Checked()
        asked = self.options.float32
        tf32 = None if asked is None else asked == "tf32"
        moved = self.kind != "backward"
        try:
            if parameters is None:
                names, forward = self.parameters, self.forward
            else:
                names, forward = parameters, None
            with as_called():
                found = measured(module, run, names, moved=moved, tf32=tf32, forward=forward)
        except Unmeasured as why:
            return _Checked(said=f"; its error was not measured: {why}")
        if found.good:
            return _Checked(error=found.ratio)
        said = f"ours has {found}"
        _warn(module, _metas(module), self.options, Inaccurate(said), f"because {said}")
        return _Checked(False, found.ratio, said)


class Inaccurate(Exception):
    """Our function of a graph does not meet the bar."""


# --- what is ours ---------------------------------------------------------------------------------
def _captured(given: Mapping[str, Any], metas: Sequence[Any]) -> bool:
    """Is a graph to be captured as a CUDA graph?"""
    on_gpu = any(isinstance(m, torch.Tensor) and m.device.type == "cuda" for m in metas)
    return on_gpu and bool(given.get("cudagraphs"))


def _ours(asked: _Graph, flops: float, apart: bool) -> _Ours:
    """The whole graph where that gains by price, or else its parts that do and that are accurate;
    parts alone where CUDA graphs are made of it, which Inductor does, and between batches of
    products. Raises Declined."""
    options, check, captured = asked.options, asked.check, asked.captured
    declined = Declined("it gains nothing by price")
    # CUDA graphs would take PyTorch's calls anyway, which alone can draw there
    own = Replaced(asked.module) if captured else with_own_attention(asked.module, options)
    module = own.module
    try:
        if captured or apart:
            raise declined
        derived = derive(module.graph, options)
        if derived.gains:
            text = derived.text()
            run = load(text, held_by(module))
            checked = check.of(asked.module, run)
            left = derived.left() + opaque_flops(derived.plan, module.graph)
            facts = _facts([derived]) | {"ours": max(flops - left, 0.0), "text": text}
            if checked.good:
                facts["error"] = checked.error
                return _Ours(text, run, None, own.operators, facts, checked.said)
            declined = Declined(checked.said)
    except Declined as why:
        declined = why  # as what it is: without a compiler the next process tries again
    parts, errors, words = [], [], dict.fromkeys([""])
    known: dict[tuple[str, frozenset[str]], _Checked] = {}  # equal parts are measured once
    for part in parts_of(module, options, captured, apart):
        names = part.arguments_among(check.parameters)
        key = part.operator.name, names
        if key not in known:
            known[key] = check.of(part.graph, call_of(part), names)
        checked = known[key]
        if not checked.good:
            declined = Declined(checked.said)
            continue
        parts.append(part)
        errors += [checked.error] if checked.error is not None else []
        words[checked.said] = None
    if not parts and not own.operators:
        raise declined
    found, operators = mixed(module, parts)
    operators += own.operators
    ours = own.flops + sum(flops_of(p.graph.graph) - p.derived.left() for p in parts)
    texts = "\n\n".join(o.text for o in operators)
    facts = {"ours": min(max(ours, 0.0), flops), "text": texts, "parts": len(parts)}
    facts["error"] = max(errors, default=None)
    facts = _facts([p.derived for p in parts]) | facts
    return _Ours(None, None, found, operators, facts, "".join(words))


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
    _warn(module, metas, options, error, f"because ours failed ({said})")
    return f"our part failed: {said}"


def _warn(
    module: torch.fx.GraphModule,
    metas: Sequence[Any],
    options: BackendOptions,
    error: Exception,
    why: str,
) -> None:
    """Say once why a graph is Inductor's, and leave a script of it."""
    left = ""
    with contextlib.suppress(Exception):  # the script is a help, and must not stand in the way
        path = repro.leave(module, metas, options, error)
        left = f"; {path} shows it" if path else f"; {repro.FOLDER}=DIR leaves a script of it"
    if why not in _told:
        _told.add(why)
        log.warning("refold: Inductor compiles a graph, %s%s", why, left)


_told: set[str] = set()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


# --- how results lie, which AOTAutograd is told of a forward graph --------------------------------
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
