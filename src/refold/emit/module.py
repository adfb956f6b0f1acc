"""A captured, rewritten and planned model -> the text of the one emitted file."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold import __version__
from refold.capture import Captured
from refold.codegen.text import describe, stripped
from refold.emit.alike import Member, shared_names
from refold.emit.embed import runtime_text
from refold.emit.facts import facts_lines
from refold.emit.fold import fold_lines
from refold.emit.forward import ForwardText, ForwardWriter
from refold.emit.guards import (
    forwarded_arguments,
    parameters_of,
    signature_text,
)
from refold.emit.lines import all_fitted, literal
from refold.emit.small_images import least_sizes
from refold.emit.story import story
from refold.emit.tables import checks, choice, tables
from refold.emit.target import Target
from refold.emit.template import render
from refold.engine import Step
from refold.ir import Dim, Kind, Node, Sym
from refold.ir.graph import topological
from refold.ir.literals import bare
from refold.ir.op import Contraction, Rounding
from refold.meanwhile import uncollected
from refold.plan import ExternCall, Fold, Plan


@dataclass(frozen=True)
class Mode:
    """One mode of the model in the emitted file.

    name: "train", "eval", or "both" where the two are the same function.
    kept: why the original forward is kept in this mode; None where captured and plan are given.
    steps: the derivation, also in words. rewrites: the weakest label among them.
    accuracy: what was measured of the rewritten graph's error, in words; empty where nothing was.
    unsafe: whether NaN of finite or masked inputs may be lost.
    """

    name: str
    captured: Captured | None
    plan: Plan | None
    steps: tuple[Step | str, ...] = ()
    rewrites: str = "bits"
    kept: str | None = None
    accuracy: str = ""
    unsafe: bool = False

    @property
    def label(self) -> str:
        """What the whole mode promises: kernels that sum do so in an order of their own."""
        same = self.plan is None or _same_bits(self.plan)
        return "reals" if self.rewrites == "bits" and not same else self.rewrites


def _same_bits(plan: Plan) -> bool:
    """Do the kernels give the very bits that PyTorch's calls would?

    A product and a sum in one kernel may be rounded once instead of twice.
    """
    for group in plan.groups:
        for n in group.nodes:
            inner = (i.row.contraction for i in n.inputs if i in group.nodes)
            fused = n.row.contraction is Contraction.SUM and Contraction.PRODUCT in inner
            if not n.row.is_exact or fused:
                return False
    calls = [s.node for s in plan.steps if isinstance(s, ExternCall)]
    if not all(n.kind in (Kind.MOVE, Kind.OPAQUE) or n.row.is_exact for n in calls):
        return False
    return all(f.node.dtype == torch.float64 or _rounds_once(f.node) for f in plan.folds)


def _rounds_once(folded: Node) -> bool:
    """Is a value that was computed in float64 and rounded once what PyTorch computes in its dtype?

    So it is where at most one op rounds: float64 has more than twice the digits of the others.
    """
    inner = topological([folded])
    computed = [n.row.rounding for n in inner if n.inputs]
    numbers = (n["value"] for n in inner if n.op == "scalar")
    return (
        Rounding.LIBRARY not in computed
        and computed.count(Rounding.ONCE) <= 1
        and all(not isinstance(v, float) or v == torch.tensor(v).item() or v != v for v in numbers)
    )


@dataclass(frozen=True)
class Emission:
    """What goes into the file: the original text and what stands in for its forward."""

    module: torch.nn.Module
    source: str
    modes: tuple[Mode, ...]
    title: str


@uncollected
def emit(emission: Emission, target: Target) -> str:
    """The text of the file. Stable: the same emission gives the same text."""
    live = [m for m in emission.modes if m.plan is not None]
    prefixes = {m.name: f"{m.name}_" if len(live) > 1 else "" for m in live}
    groups = [(prefixes[m.name] + g.name, g) for m in live if m.plan for g in m.plan.groups]
    same = shared_names(groups, target.text)
    texts: dict[str, ForwardText] = {}
    classes = _classes(live)
    class_names = {kind: f"_refold_class{i}" for i, kind in enumerate(classes)}
    for mode in live:
        assert mode.captured is not None and mode.plan is not None
        launches = {
            g.name: target.launch(g, same[prefixes[mode.name] + g.name]) for g in mode.plan.groups
        }
        writer = ForwardWriter(mode.captured, mode.plan, launches, target, class_names)
        texts[mode.name] = writer.write()
    names = [p.name for p in parameters_of(emission.module)]
    named = [
        Member(same[prefixes[m.name] + g.name], g, texts[m.name].names)
        for m in live
        if m.plan
        for g in m.plan.groups
    ]
    looks = target.device == "cuda" and any(t.folds or t.reads for t in texts.values())
    source = target.source(named, looks)
    context: dict[str, Any] = {
        "version": __version__,
        "target": target.name,
        "device": target.device,
        "story": story(emission),
        "docstring": _docstring(emission),
        "source": emission.source.strip("\n"),
        "imports_torch": not _imports_torch(emission.source),
        "cpp": source,
        "looks": looks,
        "build": target.build(named, source).strip("\n"),
        "folds": [],
        "classes": [(class_names[kind], text) for kind, text in classes.items()],
        "facts": facts_lines(emission.module, _assigned(live), _inside(live)),
        "runtime": runtime_text(target.device),
        "assumes_finite": any(m.rewrites != "bits" for m in live),
        "signature": signature_text(emission.module),
        "signature_plain": ", ".join(["self", *names]),
        "forwarded": forwarded_arguments(emission.module),
        "arguments": ", ".join(names),
    }
    functions: dict[Any, str] = {}
    context["live"] = [
        _mode_context(mode, emission, texts[mode.name], functions, context) for mode in live
    ]
    context["checks"] = checks(emission.module, live, context["live"], class_names, target)
    context["facts"] += tables(emission.module, live, texts, context["live"])
    context |= choice(emission.modes, context["live"], context["forwarded"])
    text = render("module.py.jinja", **context)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"


def _classes(modes: Sequence[Mode]) -> dict[type, str]:
    """The classes of the containers that calls take and give, and the text that gives each."""
    found: dict[type, str] = {}
    for mode in modes:
        found |= mode.captured.classes if mode.captured else {}
    return found


def _assigned(modes: Sequence[Mode]) -> set[str]:
    """The paths of attributes that forward itself sets."""
    found = [m.captured for m in modes if m.captured]
    return {path for c in found for path in (*c.assigned, *c.varied)}


def _inside(modes: Sequence[Mode]) -> set[tuple[Any, ...]]:
    """The places of numbers that vary inside what attributes hold."""
    return {place for m in modes if m.captured for place in m.captured.inside}


def _mode_context(
    mode: Mode,
    emission: Emission,
    text: ForwardText,
    functions: dict[Any, str],
    context: dict[str, Any],
) -> dict[str, Any]:
    """A mode's fast forward. values: what it reads of the cache, and how each is made, as the
    runtime's `_refold_mode` takes it."""
    values: dict[str, str] = {}
    for fold in text.folds:
        paths = (literal(s["name"]) for s in fold.sources)
        function = _fold_function(fold, text, functions, context)
        made = f"({', '.join([function, *paths])})" if fold.sources else function
        values[text.names[fold.node]] = made
    for node in text.reads:
        made = literal(node["name"])
        as_it_lies = node in text.as_they_lie
        values[text.names[node]] = f"(torch.Tensor.detach, {made})" if as_it_lies else made
    for pack in text.packs:
        node, form = pack
        values[text.packed[pack]] = literal((form, text.names[node]))
    names = ", ".join(values) + ("," if len(values) == 1 else "")
    unpacked = [f"{names} = rf_cache.values"] if values else []
    return {
        "name": mode.name,
        "words": {"train": " in train mode", "eval": " in eval mode"}.get(mode.name, ""),
        "values": values,
        "inference": mode.captured is not None and mode.captured.inference,
        "lines": all_fitted([*unpacked, *text.lines], 4),
    }


def _fold_function(
    fold: Fold, text: ForwardText, functions: dict[Any, str], context: dict[str, Any]
) -> str:
    """The name of the function that computes a fold; equal folds of two modes share one."""
    last = fold.node in text.channels_last
    if (fold.node, last) not in functions:
        name = f"_refold_fold{len(functions)}"
        arguments, lines = fold_lines(fold, last, context["device"] == "cpu")
        functions[fold.node, last] = name
        found = (bare(describe(fold.node, depth)) for depth in (4, 3, 2))
        words = next((w for w in found if len(w) <= 60), fold.node.op)
        context["folds"].append(
            {
                "function": name,
                "arguments": arguments,
                "lines": all_fitted(lines, 4),
                "words": f"{words}, of shape {list(stripped(fold.node.shape, 1))}.",
            }
        )
    return functions[fold.node, last]


def _imports_torch(source: str) -> bool:
    """Whether the original's own text makes `torch` a name."""
    imports = (n for n in ast.parse(source).body if isinstance(n, ast.Import))
    return any(a.name == "torch" and a.asname is None for n in imports for a in n.names)


def _docstring(emission: Emission) -> list[str]:
    lines: list[str] = ["Assumed, and checked at every call:"]
    for mode in emission.modes:
        if mode.captured is None:
            continue
        for f in mode.captured.tensors:
            assert f.shape is not None
            lines.append(f"- {f.path} is a dense {f.dtype} tensor of shape {_shape(f.shape)}.")
        break
    least = {
        pair
        for m in emission.modes
        if m.captured is not None and m.plan is not None
        for pair in least_sizes(m.captured, m.plan).items()
    }
    for places, number in sorted(least):
        told = f"- {places} is at least {number}: of fewer places PyTorch's convolution is of fp32."
        lines += textwrap.wrap(told, 90, subsequent_indent="  ")
    lines += [
        "- parameters have the shapes and dtypes, modules the classes and settings that they had",
        "  when the kernels were made; there are no hooks, and no gradient is wanted.",
        "Any other call takes the original forward and says why, once.",
    ]
    return lines


def _shape(shape: Sequence[Dim]) -> str:
    return "[" + ", ".join("n" if isinstance(d, Sym) else str(d) for d in shape) + "]"
