"""What an emitted file assumes, what it looks at before a call, and how forward chooses a mode."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from refold.capture import Captured
from refold.emit.forward import ForwardText
from refold.emit.guards import (
    default_refusals,
    misfit_lines,
    query_refusals,
    repeated,
)
from refold.emit.lines import filled, fitted, literal
from refold.emit.results import image_paths
from refold.emit.small_images import class_refusals
from refold.emit.target import Target
from refold.ir import Node
from refold.ir.graph import draws_of

if TYPE_CHECKING:
    from refold.emit.module import Mode


def checks(
    module: torch.nn.Module,
    live: Sequence[Mode],
    contexts: Sequence[dict[str, Any]],
    class_names: Mapping[type, str],
    target: Target,
) -> list[dict[str, Any]]:
    """What is looked at before each call, of all modes that look at the same together."""
    found: list[dict[str, Any]] = []
    for mode, context in zip(live, contexts, strict=True):
        assert mode.captured is not None and mode.plan is not None
        paths = [f.path for f in mode.captured.tensors]
        others = [
            *default_refusals(module, mode.captured),
            *target.guards(paths),
            *layout_refusals(mode.captured),
            *class_refusals(mode.captured, mode.plan),
        ]
        flags = [*target.flags(mode.plan.groups), *query_refusals(mode.captured)]
        check = {
            "obstacles": misfit_lines(mode.captured, target.device, class_names, others),
            "flags": flags,
            "repeated": repeated(module, mode.captured),
            "tensors": paths,
        }
        same = next((c for c in found if c == check), check)
        if same is check:
            found.append(check)
        context["check"] = same
    for check in found:
        name = next(c["name"] for c in contexts if c["check"] is check)
        own = "" if len(found) == 1 else f"_{name}"
        check |= {"misfit": f"_refold_misfit{own}", "prepare": f"_refold_prepare{own}"}
    return found


def layout_refusals(captured: Captured) -> list[tuple[str, str]]:
    """Tests of tensors that lie otherwise than any for which eager's results are known, and why."""
    first, *rest = images = image_paths(captured) or [""]
    paths = [f.path for f in captured.tensors]
    told = "does not lie in memory in the order of the example's dimensions, which results follow"
    refusals = [
        (f"not _refold_is_ordered({paths[i]}, {order})", repr(f"{paths[i]} {told}"))
        for i, order in captured.orders.items()
    ]
    if captured.fixed_layout:
        told = repr("the images do not lie in memory as those of the example")
        given = zip(images, captured.images_last, strict=True)
        refusals += [(f"_refold_in_channels({path}) is not {last}", told) for path, last in given]
    elif any(o.other_strides is not None for o in captured.graph.outputs):
        told = repr("of the images some lie with their channels last and others do not")
        lie = f"_refold_in_channels({{}}) is not _refold_in_channels({first})"
        refusals += [(lie.format(path), told) for path in rest]
        told = repr("the images lie neither row after row nor with their channels last")
        shape = next(f.shape or () for f in captured.tensors if f.path == first)
        rows = f"_refold_is_ordered({first}, {(*range(len(shape)),)})"
        refusals.append((f"not (_refold_in_channels({first}) or {rows})", told))
    return refusals


def tables(
    module: torch.nn.Module,
    live: Sequence[Mode],
    texts: Mapping[str, ForwardText],
    contexts: Sequence[dict[str, Any]],
) -> list[str]:
    """The tables of what is read and written, as the runtime's `_refold_mode` takes them."""
    names = dict.fromkeys(
        name
        for text in texts.values()
        for name in (*(str(n["name"]) for n in text.sources), *text.states)
    )
    tensors = []
    for name in names:
        tensor = _lookup(module, name)
        tensors.append(f"{literal(name)}: ({literal(tuple(tensor.shape))}, {tensor.dtype}),")
    lines = ["_REFOLD_TENSORS = {", *(f"    {line}" for line in filled(tensors, 4))]
    lines += ["}", _OF_MODES]
    lines.append("_REFOLD_MODES = {")
    for mode, context in zip(live, contexts, strict=True):
        text = texts[mode.name]
        assert mode.captured is not None
        values = ", ".join(f"{literal(name)}: {how}" for name, how in context["values"].items())
        of_mode = [f'"values": {{{values}}}']
        more = {
            "writes": tuple(text.states),
            "unread": _unread(mode.captured, text.sources, module),
            "assigned": (*mode.captured.assigned, *sorted(mode.captured.varied)),
            "apart": tuple(sorted(mode.captured.apart)) if mode.captured.reads_mode else None,
        }
        for key, value in more.items():
            of_mode += [f'"{key}": {literal(value)}'] if value or value is None else []
        strides = _strides(mode.captured, text.sources, module)
        of_mode += [f'"strides": {{{", ".join(strides)}}}'] if strides else []
        if context["check"]["repeated"] is None:
            of_mode.append('"repeats": False')
        lines += fitted(f"    {literal(mode.name)}: {{{', '.join(of_mode)}}},")
    return [*lines, "}"]


_OF_MODES = (
    "# values, as forward reads them: a parameter, what is folded of some, another form of a value"
)


def _lookup(module: torch.nn.Module, name: str) -> torch.Tensor:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    assert isinstance(value, torch.Tensor)
    return value


def _strides(captured: Captured, sources: Sequence[Node], module: torch.nn.Module) -> list[str]:
    """The strides of parameters, as text, where forward draws random numbers: images follow the
    weights that they are made of, and draws the images. Those of one channel do so by strides
    alone."""
    if not draws_of(captured.graph.nodes()):
        return []
    read = {str(n["name"]): _lookup(module, str(n["name"])) for n in sources}
    return [f"{literal(n)}: {t.stride()}" for n, t in read.items() if t.dim() > 1]


def _unread(
    captured: Captured, sources: Sequence[Node], module: torch.nn.Module
) -> tuple[str, ...]:
    """Parameters that forward reads and the kernels do not, because they cannot change the result
    (a bias that is taken off again): eager's result wants gradients because of them, too."""
    read = {str(n["name"]) for n in captured.graph.nodes() if n.op == "param"}
    read -= {str(n["name"]) for n in sources}
    return tuple(n for n, p in module.named_parameters() if n in read and p.is_floating_point())


def choice(modes: Sequence[Mode], live: Sequence[dict[str, Any]], forwarded: str) -> dict[str, Any]:
    """How forward chooses its mode: the statements that do, of ModelNew and of `attempt`, and the
    texts of the mode's name, of what prepares it and of its fast forward."""
    chosen: list[str] = []
    attempted: list[str] = []
    if len(modes) == 1 or len(live) < 2:
        for i, kept in enumerate(modes):
            if kept.kept is not None:
                test = [f"if {'' if i == 0 else 'not '}self.training:"] if len(modes) > 1 else []
                lead = "    " * len(test)
                words = textwrap.wrap(
                    kept.kept, 86, initial_indent=f"{lead}# ", subsequent_indent=f"{lead}# "
                )
                chosen += [*test, *words, f"{lead}return super().forward({forwarded})"]
                attempted += [*test, f"{lead}return _RefoldReason()"]
        if not live:
            return {"chosen": chosen, "attempted": attempted}
        (only,) = live
        name, fast, prepare = (
            f'"{only["name"]}"',
            f"_refold_{only['name']}",
            only["check"]["prepare"],
        )
    else:
        name, fast = "rf_mode", "rf_fast"
        alike = len({m["check"]["prepare"] for m in live}) == 1
        prepare = live[0]["check"]["prepare"] if alike else "rf_prepare"
        for condition, mode in zip(("if self.training:", "else:"), live, strict=True):
            values = [f'"{mode["name"]}"', f"_refold_{mode['name']}"]
            values += [] if alike else [mode["check"]["prepare"]]
            taken = ", ".join([name, fast, *([] if alike else [prepare])])
            chosen += [condition, f"    {taken} = {', '.join(values)}"]
        attempted = chosen
    return {
        "chosen": chosen,
        "attempted": attempted,
        "mode_name": name,
        "fast": fast,
        "prepare": prepare,
    }
