"""A captured, rewritten and planned model -> the text of the one emitted file."""

from __future__ import annotations

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
from refold.emit.facts import facts_text
from refold.emit.fold import fold_lines
from refold.emit.forward import ForwardText, ForwardWriter
from refold.emit.guards import (
    attribute,
    default_refusals,
    forwarded_arguments,
    obstacle_lines,
    parameters_of,
    query_refusals,
    refusal_lines,
    repeated,
    signature_text,
)
from refold.emit.held import held, own_bytes
from refold.emit.results import image_paths
from refold.emit.target import Target
from refold.emit.template import render
from refold.ir import Dim, Kind, Node, Sym
from refold.ir.graph import topological
from refold.ir.op import Contraction, Rounding
from refold.plan import Call, Fold, Plan


@dataclass(frozen=True)
class Mode:
    """One mode of the model in the emitted file.

    name: "train", "eval", or "both" where the two are the same function.
    kept: why the original forward is kept in this mode; None where captured and plan are given.
    steps: the derivation in words, one line each. rewrites: the weakest label among them.
    accuracy: what was measured of the rewritten graph's error, in words; empty where nothing was.
    unsafe: whether NaN of finite or masked inputs may be lost.
    """

    name: str
    captured: Captured | None
    plan: Plan | None
    steps: tuple[str, ...] = ()
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
    calls = [s.node for s in plan.steps if isinstance(s, Call)]
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
    source = target.source(named, any(t.alone for t in texts.values()))
    context: dict[str, Any] = {
        "version": __version__,
        "target": target.name,
        "device": target.device,
        "story": _story(emission, target),
        "docstring": _docstring(emission),
        "source": emission.source.strip("\n"),
        "cpp": source,
        "build": target.build(named, source).strip("\n"),
        "folds": [],
        "class_names": class_names,
        "classes": [(class_names[kind], text) for kind, text in classes.items()],
        "facts": facts_text(emission.module, _assigned(live)),
        "runtime": runtime_text(),
        "assumes_finite": any(m.rewrites != "bits" for m in live),
        "signature": signature_text(emission.module),
        "signature_plain": ", ".join(["self", *names]),
        "forwarded": forwarded_arguments(emission.module),
        "arguments": ", ".join(names),
        "modes": [],
        "falls_back": bool(live),
    }
    functions: dict[Any, str] = {}
    for i, mode in enumerate(emission.modes):
        context["modes"].append(
            _mode_context(mode, i, emission, texts.get(mode.name), functions, context, target)
        )
    _share_misfits([m for m in context["modes"] if not m["kept"]])
    text = render("module.py.jinja", **context)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n") + "\n"


def _share_misfits(modes: Sequence[dict[str, Any]]) -> None:
    """Let one function look at the arguments of all modes that take the same."""
    for i, mode in enumerate(modes):
        same = (m["name"] for m in modes[:i] if m["obstacles"] == mode["obstacles"])
        mode["same_misfit"] = next(same, None)


def _classes(modes: Sequence[Mode]) -> dict[type, str]:
    """The classes of the containers that calls take and give, and the text that gives each."""
    found: dict[type, str] = {}
    for mode in modes:
        found |= mode.captured.classes if mode.captured else {}
    return found


def _assigned(modes: Sequence[Mode]) -> set[str]:
    """The paths of attributes that forward itself sets."""
    return {path for m in modes if m.captured for path in m.captured.assigned}


def _mode_context(
    mode: Mode,
    index: int,
    emission: Emission,
    text: ForwardText | None,
    functions: dict[Any, str],
    context: dict[str, Any],
    target: Target,
) -> dict[str, Any]:
    several = len(emission.modes) > 1
    condition = ("if self.training" if index == 0 else "else") if several else ""
    common = {
        "name": mode.name,
        "condition": condition,
        "indent": "    " if several else "",
        "kept": mode.kept,
        "words": {"train": " in train mode", "eval": " in eval mode"}.get(mode.name, ""),
    }
    if text is None:
        return common
    assert mode.captured is not None
    indices = {n: i for i, n in enumerate(text.sources)}
    recipes, values = [], []
    for fold in text.folds:
        recipes.append(
            {
                "function": _fold_function(fold, text, functions, context),
                "indices": repr(tuple(indices[s] for s in fold.sources)),
            }
        )
        values.append(text.names[fold.node])
    for node in text.reads:
        how = "detach" if node in text.as_they_lie else "contiguous"
        recipes.append({"function": f"torch.Tensor.{how}", "indices": f"({indices[node]},)"})
        values.append(text.names[node])
    for node, form in text.packs:
        base = len(text.sources) + values.index(text.names[node])
        # looked up when it is called: what packs stands below the tables
        recipes.append({"function": f"lambda x: _refold_{form}(x)", "indices": f"({base},)"})
    values += [text.packed[pack] for pack in text.packs]
    return common | {
        "obstacles": [
            *obstacle_lines(mode.captured, target.device, context["class_names"]),
            *refusal_lines(default_refusals(emission.module, mode.captured)),
            *target.guards([f.path for f in mode.captured.tensors]),
        ]
        or ["pass"],
        "flags": [
            *target.flags(),
            *query_refusals(mode.captured),
            *layout_refusals(mode.captured),
        ],
        "repeated": repeated(emission.module, mode.captured),
        "sources": [_expected(n["name"], emission.module) for n in text.sources],
        "states": [_expected(name, emission.module) for name in text.states],
        "unread": _unread(mode.captured, text.sources, emission.module),
        "all_tensors": [f.path for f in mode.captured.tensors],
        "recipes": recipes,
        "assigned": tuple(mode.captured.assigned),
        "counters": _counters(text.sources, emission.module),
        "audit": AUDIT,
        "prepared": values,
        "lines": text.lines,
    }


def _unread(
    captured: Captured, sources: Sequence[Node], module: torch.nn.Module
) -> tuple[str, ...]:
    """Parameters that forward reads and the kernels do not, because they cannot change the result
    (a bias that is taken off again): eager's result wants gradients because of them, too."""
    read = {str(n["name"]) for n in captured.graph.nodes() if n.op == "param"}
    read -= {str(n["name"]) for n in sources}
    return tuple(n for n, p in module.named_parameters() if n in read and p.is_floating_point())


AUDIT = 1  # KiB of parameters that a call looks through for writes that nothing else shows


def _counters(sources: Sequence[Node], module: torch.nn.Module) -> list[tuple[int, str]]:
    """For running statistics, which PyTorch's kernels write uncounted: (the source's index, the
    path of the batch norm's counter, which is counted)."""
    found = []
    for i, node in enumerate(sources):
        parent, _, name = str(node["name"]).rpartition(".")
        counter = f"{parent}.num_batches_tracked" if parent else "num_batches_tracked"
        if name in ("running_mean", "running_var"):
            try:
                _lookup(module, counter)
            except (AttributeError, AssertionError):
                continue  # none is kept
            found.append((i, counter))
    return found


def layout_refusals(captured: Captured) -> list[tuple[str, str]]:
    """Tests of images that lie otherwise than any for which eager's results are known, and why."""
    first, *rest = image_paths(captured) or [""]
    follows = any(o.other_strides is not None for o in captured.graph.outputs)
    if captured.fixed_layout:
        told = repr("the images do not lie in memory as those of the example")
        given = zip(image_paths(captured), captured.images_last, strict=True)
        return [(f"_refold_in_channels({path}) is not {last}", told) for path, last in given]
    told = repr("of the images some lie with their channels last and others do not")
    lie = f"_refold_in_channels({{}}) is not _refold_in_channels({first})"
    return [(lie.format(path), told) for path in rest] if follows else []


def _fold_function(
    fold: Fold, text: ForwardText, functions: dict[Any, str], context: dict[str, Any]
) -> str:
    """The name of the function that computes a fold; equal folds of two modes share one."""
    last = fold.node in text.channels_last
    if (fold.node, last) not in functions:
        name = f"_refold_fold{len(functions)}"
        arguments, lines = fold_lines(fold, last)
        functions[fold.node, last] = name
        context["folds"].append(
            {
                "function": name,
                "arguments": arguments,
                "lines": lines,
                "words": f"{describe(fold.node)}, of shape {list(stripped(fold.node.shape, 1))}.",
            }
        )
    return functions[fold.node, last]


def _expected(name: str, module: torch.nn.Module) -> dict[str, str]:
    """How a parameter or buffer is read from self, and what the kernels take it to be."""
    tensor = _lookup(module, name)
    return {
        "text": attribute(name),
        "name": name,
        "shape": repr(tuple(tensor.shape)),
        "dtype": str(tensor.dtype),
    }


def _lookup(module: torch.nn.Module, name: str) -> torch.Tensor:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    assert isinstance(value, torch.Tensor)
    return value


def _story(emission: Emission, target: Target) -> list[str]:
    own = own_bytes(emission.module)
    lines = [f"{emission.title}."]
    if any(m.unsafe for m in emission.modes):
        lines.append(
            "Made with --unsafe: NaN that Model makes of finite or masked inputs may be lost."
        )
    for mode in emission.modes:
        where = {"train": "In train mode", "eval": "In eval mode"}.get(mode.name, "In every mode")
        if mode.kept is not None:
            lines.append(f"{where} the original forward is kept: {mode.kept}.")
            continue
        lines.append(f"{where} ({_promise(mode.label)}):")
        for i, step in enumerate(mode.steps or ("nothing is rewritten",), 1):
            lines += textwrap.wrap(
                f"{i}. {step}", 96, initial_indent="  ", subsequent_indent="     "
            )
        if mode.accuracy:
            lines += textwrap.wrap(
                f"{mode.accuracy[0].upper()}{mode.accuracy[1:]}.",
                96,
                initial_indent="  ",
                subsequent_indent="  ",
            )
        kept = sum(h.size for h in held(mode.plan)) if mode.plan is not None else 0
        if kept:
            lines.append(
                f"  Folded and packed parameters take {kept:,} bytes beside the {own:,} of the"
                " parameters."
            )
    return lines


def _promise(label: str) -> str:
    return {
        "bits": "identical arithmetic",
        "reals": "equal in the reals: sums and products are taken in another order",
        "finite": "equal for finite values",
    }[label]


def _docstring(emission: Emission) -> list[str]:
    lines: list[str] = ["Assumed, and checked at every call:"]
    for mode in emission.modes:
        if mode.captured is None:
            continue
        for f in mode.captured.tensors:
            assert f.shape is not None
            lines.append(f"- {f.path} is a dense {f.dtype} tensor of shape {_shape(f.shape)}.")
        break
    lines += [
        "- parameters have the shapes and dtypes that they had when the kernels were made;",
        "- modules are of the same classes, with the same settings and no hooks;",
        "- no gradient is wanted.",
        "Any other call takes the original forward and says why, once.",
    ]
    return lines


def _shape(shape: Sequence[Dim]) -> str:
    return "[" + ", ".join("n" if isinstance(d, Sym) else str(d) for d in shape) + "]"
