"""The guards of an emitted module: when its kernels may stand in for the original forward."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

import torch

from refold.capture import Captured, Field
from refold.ir import Sym
from refold.runtime.settings import _refold_is_plain

Refusal = tuple[str, str]  # the texts of a condition and of the reason to take the original then


def obstacle_lines(captured: Captured, device: str) -> list[str]:
    """Statements that return a reason where the fast path does not apply.

    They read forward's own parameters and `self`. Sizes are compared with those captured; a named
    size only with its range, and with its other occurrences.
    """
    lines: list[str] = []
    for field in captured.fields:
        lines += _field_lines(field, device)
    seen: dict[str, str] = {}
    for field in captured.tensors:
        assert field.shape is not None
        for i, dim in enumerate(field.shape):
            here = f"{field.path}.shape[{i}]"
            if isinstance(dim, int):
                continue
            text = dim.text(seen) if dim.names() <= set(seen) else None
            if text is not None:
                lines.append(f"if {here} != {text}:")
                lines.append(f'    return f"{field.path} has size {{{here}}} in dimension {i}"')
                continue
            name = next(iter(dim.names()))
            seen[name] = here
            low, high = captured.ranges.get(name, (2, None))
            test = f"{here} < {low}" + (f" or {here} > {high}" if high is not None else "")
            lines.append(f"if {test}:")
            lines.append(f'    return f"{field.path} has size {{{here}}} in dimension {i}"')
    for condition in dict.fromkeys(captured.conditions):
        lines.append(f"if not ({condition}):")
        lines.append(f'    return "the sizes do not satisfy {_quoted(condition)}"')
    return lines


def refusal_lines(refusals: Iterable[Refusal]) -> list[str]:
    """Statements that return the reason of the first refusal whose condition holds."""
    return [line for test, reason in refusals for line in (f"if {test}:", f"    return {reason}")]


def repeated(module: torch.nn.Module, captured: Captured) -> list[str] | None:
    """Conditions under which a call whose tensors are like those of the last accepted one is not
    like it: of the arguments that are no tensors. None where arguments have to be looked for.
    """
    if not all(f.path.isidentifier() for f in captured.fields):
        return None
    values = [_value_refusal(f) for f in captured.fields if f.shape is None]
    return [test for test, _ in (*values, *default_refusals(module, captured))]


def default_refusals(module: torch.nn.Module, captured: Captured) -> list[Refusal]:
    """Of the parameters of forward that the captured call left at their defaults."""
    given = {re.split(r"[.\[]", f.path)[0] for f in captured.fields}
    refusals: list[Refusal] = []
    for p in parameters_of(module):
        if p.kind is p.VAR_POSITIONAL and p.name in given:
            used = {f.path.split("]")[0] for f in captured.fields if f.path.startswith(p.name)}
            reason = f'f"{{len({p.name})}} arguments in {p.name}, not {len(used)}"'
            refusals.append((f"len({p.name}) != {len(used)}", reason))
            continue
        if p.name in given:
            continue
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            refusals.append((p.name, f'"more arguments are given in {p.name}"'))
            continue
        test = f"{p.name} is not {_default_text(p)}"
        if _refold_is_plain(p.default) and not isinstance(p.default, (bool, type(None))):
            kind = type(p.default).__name__
            test = f"type({p.name}) is not {kind} or {p.name} != {p.default!r}"
        refusals.append((test, f'"{p.name} is not its default"'))
    return refusals


def dtype_refusals(captured: Captured) -> list[Refusal]:
    """Of PyTorch's default dtype, where values have it."""
    if captured.default_dtype is None:
        return []
    test = f"torch.get_default_dtype() is not {captured.default_dtype}"
    return [
        (
            test,
            f'f"the default dtype is {{torch.get_default_dtype()}}, not {captured.default_dtype}"',
        )
    ]


def _value_refusal(field: Field) -> Refusal:
    """Of an argument that is no tensor."""
    kind, value = type(field.value).__name__, repr(field.value)
    test = f"type({field.path}) is not {kind} or {field.path} != {value}"
    if field.value is None or isinstance(field.value, bool):
        test = f"{field.path} is not {value}"
    made_for = f"{_quoted(value)}, the value that the kernels were made for"
    return test, f'"{_quoted(field.path)} is not {made_for}"'


def _field_lines(field: Field, device: str) -> list[str]:
    if field.shape is None:
        return refusal_lines([_value_refusal(field)])
    path = field.path
    fixed = [
        f"{path}.shape[{i}] != {d}" for i, d in enumerate(field.shape) if not isinstance(d, Sym)
    ]
    shape = "[" + ", ".join("n" if isinstance(d, Sym) else str(d) for d in field.shape) + "]"
    wrong = " or ".join([f"{path}.dim() != {len(field.shape)}", *fixed])
    label = _quoted(path)
    return [
        f"if type({path}) is not torch.Tensor or {path}.layout is not torch.strided"
        f" or {path}.is_neg():",
        f'    return "{label} is not a plain dense tensor"',
        f"if {path}.dtype is not {field.dtype} or not {path}.is_{device}:",
        f'    return f"{label} is {{{path}.dtype}} on {{{path}.device}},'
        f' not {field.dtype} on {device}"',
        f"if {wrong}:",
        f'    return f"{label} has the shape {{tuple({path}.shape)}}, not {shape}"',
    ]


def _quoted(text: str) -> str:
    return text.replace('"', "'").replace("{", "(").replace("}", ")")


def parameters_of(module: torch.nn.Module) -> list[inspect.Parameter]:
    """The parameters of forward, without `self`."""
    return list(inspect.signature(type(module).forward).parameters.values())[1:]


def signature_text(module: torch.nn.Module) -> str:
    """forward's parameters as text, `self` first, annotations left out."""
    parts = ["self"]
    starred = False
    for p in parameters_of(module):
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{p.name}")
            starred = True
            continue
        if p.kind is p.VAR_KEYWORD:
            parts.append(f"**{p.name}")
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        default = "" if p.default is p.empty else f"={_default_text(p)}"
        parts.append(p.name + default)
    return ", ".join(parts)


def _default_text(p: inspect.Parameter) -> str:
    if _refold_is_plain(p.default):
        return repr(p.default)
    return f'__import__("inspect").signature(Model.forward).parameters[{p.name!r}].default'


def forwarded_arguments(module: torch.nn.Module) -> str:
    """The text that passes forward's parameters on to the original."""
    parts = []
    for p in parameters_of(module):
        prefix = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        parts.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else prefix + p.name)
    return ", ".join(parts)


def attribute(path: str) -> str:
    """The text that reads a dotted parameter name from self, numbers included."""
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text


__all__ = [
    "attribute",
    "default_refusals",
    "dtype_refusals",
    "forwarded_arguments",
    "obstacle_lines",
    "parameters_of",
    "refusal_lines",
    "repeated",
    "signature_text",
]
