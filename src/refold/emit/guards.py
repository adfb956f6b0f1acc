"""The guards of an emitted module: when its kernels may stand in for the original forward."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from refold.capture import Argument, Captured, Container
from refold.capture.captured import attribute
from refold.capture.containers import condition, plain_text
from refold.codegen.text import shape_text
from refold.emit.lines import fitted, literal
from refold.ir import Sym, hint
from refold.runtime.settings import _refold_is_plain

Refusal = tuple[str, str]  # the texts of a condition and of the reason to take the original then


def misfit_lines(
    captured: Captured,
    device: str,
    class_names: Mapping[type, str],
    others: Iterable[Refusal],
) -> list[str]:
    """Statements that return the reason where the fast path does not apply, or None.

    They read forward's own parameters and `self`. Sizes are compared with those captured; a named
    size only with its range, and with its other occurrences. others: further refusals.
    """
    refusals = [
        _container_refusal(c, class_names.get(c.tree.kind, c.tree.kind.__name__))
        for c in captured.containers
    ]
    seen = size_texts(captured)
    counted = {path: name for name, path in captured.numbers.items()}
    tensors, more = [], []
    for argument in captured.fields:
        if argument.path in captured.reals:
            more.append(_real_refusal(argument))
        elif argument.path in counted:
            more.append(_number_refusal(argument, captured.ranges.get(counted[argument.path])))
        elif argument.shape is None:
            more.append(_value_refusal(argument))
        else:
            tensors.append(_argument_text(argument, captured, seen, device))
            more += _layout_refusals(argument)
    more += _size_refusals(captured, seen)
    more += others
    plain = all(f.path.isidentifier() for f in captured.fields)
    looked = [f"{'or ' if i else ''}{text}" for i, text in enumerate(tensors)]
    if not refusals and not more and plain and tensors:
        return _bracketed("return", looked)
    checked = _bracketed("rf_reason =", looked) if tensors else []
    asked = ["if rf_reason is not None:", "    return rf_reason"] if tensors else []
    lines = [*refusal_lines(refusals), *checked, *asked, *refusal_lines(more)] or ["pass"]
    return [
        "try:",
        *(f"    {part}" for line in lines for part in fitted(line, 8)),
        "except (AttributeError, IndexError, KeyError, TypeError):",
        '    return "the arguments are not arranged as those that the kernels were made for"',
        "return None",
    ]


def size_texts(captured: Captured) -> dict[str, str]:
    """Where each named size is read, as text over forward's parameters."""
    sources = captured.symbol_sources()
    seen = {name: f"{argument.path}.shape[{i}]" for name, (argument, i) in sources.items()}
    seen |= captured.numbers
    for name, derived in captured.derived.items():
        seen[name] = derived.text(seen)
    return seen


def _bracketed(head: str, texts: list[str]) -> list[str]:
    """A statement of these texts, a line for each if there are several."""
    if len(texts) == 1:
        return [f"{head} {texts[0]}"]
    return [f"{head} (", *(f"    {text}" for text in texts), ")"]


def _argument_text(
    argument: Argument, captured: Captured, seen: Mapping[str, str], device: str
) -> str:
    """The call of the runtime that looks at a tensor: its sizes as fixed ones, as None for any from
    2 on, as (least, largest), or as ... where another size says it."""
    assert argument.shape is not None
    sizes = []
    for i, dim in enumerate(argument.shape):
        if not isinstance(dim, Sym):
            sizes.append(str(dim))
            continue
        (name, *_) = dim.names()
        found = captured.ranges.get(name, (2, None))
        is_first = seen[name] == f"{argument.path}.shape[{i}]"
        sizes.append("..." if not is_first else "None" if found == (2, None) else repr(found))
    shape = ", ".join(sizes) + ("," if len(sizes) == 1 else "")
    label = literal(_quoted(argument.path))
    return f'_refold_argument({label}, {argument.path}, ({shape}), {argument.dtype}, "{device}")'


def _size_refusals(captured: Captured, seen: dict[str, str]) -> list[Refusal]:
    """Of sizes that follow from others, and of conditions among sizes."""
    refusals = []
    for argument in captured.tensors:
        assert argument.shape is not None
        for i, dim in enumerate(argument.shape):
            here = f"{argument.path}.shape[{i}]"
            if isinstance(dim, Sym) and seen[next(iter(dim.names()))] != here:
                reason = f'f"{argument.path} has size {{{here}}} in dimension {i}"'
                refusals.append((f"{here} != {dim.text(seen)}", reason))
    for name in captured.derived:
        refusals.append((f"{seen[name]} < 2", f'"the size {_quoted(seen[name])} is less than 2"'))
    for test in dict.fromkeys(captured.conditions):
        refusals.append((f"not ({test})", f'"the sizes do not satisfy {_quoted(test)}"'))
    return refusals


def refusal_lines(refusals: Iterable[Refusal]) -> list[str]:
    """Statements that return the reason of the first refusal whose condition holds."""
    return [line for test, reason in refusals for line in (f"if {test}:", f"    return {reason}")]


def repeated(module: torch.nn.Module, captured: Captured) -> list[str] | None:
    """Conditions under which a call whose tensors are like those of the last accepted one is not
    like it: of the arguments that are no tensors. None where arguments have to be looked for.
    """
    if (
        captured.numbers
        or captured.containers
        or not all(f.path.isidentifier() or f.path in captured.reals for f in captured.fields)
    ):
        return None
    others = [f for f in captured.fields if f.shape is None]
    values = [(_real_refusal if f.path in captured.reals else _value_refusal)(f) for f in others]
    values += [_offset_refusal(f) for f in captured.tensors if f.offset is not None]
    return [test for test, _ in (*values, *default_refusals(module, captured))]


def default_refusals(module: torch.nn.Module, captured: Captured) -> list[Refusal]:
    """Of the parameters of forward that the captured call left at their defaults."""
    paths = [*(f.path for f in captured.fields), *(c.path for c in captured.containers)]
    given = {re.split(r"[.\[]", path)[0] for path in paths}
    refusals: list[Refusal] = []
    for p in parameters_of(module):
        if p.name in given:
            continue
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            refusals.append((p.name, f'"more arguments are given in {p.name}"'))
            continue
        test = f"{p.name} is not {_default_text(p)}"
        if _refold_is_plain(p.default) and not isinstance(p.default, (bool, type(None))):
            kind = type(p.default).__name__
            test = f"type({p.name}) is not {kind} or {_unlike(p.name, p.default)}"
        refusals.append((test, f'"{p.name} is not its default"'))
    return refusals


def query_refusals(captured: Captured) -> list[Refusal]:
    """Of PyTorch's settings, and of marks on tensors, that forward asks for."""
    refusals = []
    for text, value in captured.queries.items():
        simple = isinstance(value, (bool, type(None), torch.dtype))
        test = f"{text} is not {value!r}" if simple else f"{text} != {value!r}"
        words = "the default dtype" if text == "torch.get_default_dtype()" else text
        refusals.append((test, f'f"{words} is {{{text}}}, not {_quoted(repr(value))}"'))
    return refusals


def _container_refusal(container: Container, cls: str) -> Refusal:
    path, tree = container.path, container.tree
    if container.starred:
        if tree.kind is tuple:
            reason = f'f"{{len({path})}} arguments in {path}, not {len(tree.parts)}"'
            return f"len({path}) != {len(tree.parts)}", reason
        names = ", ".join(map(str, tree.keys))
        reason = f'f"the arguments in {path} are {{list({path})}}, not {names}"'
        return f"tuple({path}) != {tuple(tree.keys)!r}", reason
    words = f"a {tree.kind.__name__} arranged as the one that the kernels were made for"
    return condition(tree, path, cls), f'"{_quoted(path)} is not {words}"'


def _offset_refusal(argument: Argument) -> Refusal:
    reason = f'"{_quoted(argument.path)} does not begin where it did, which forward asks for"'
    return f"{argument.path}.storage_offset() != {argument.offset}", reason


def _layout_refusals(argument: Argument) -> list[Refusal]:
    """Of a tensor of whose layout forward asks."""
    if argument.strides is None or argument.shape is None:
        return []
    expected = _strides_text(argument)
    why = "which forward asks for" if argument.offset is not None else "which its views depend on"
    reason = f'"{_quoted(argument.path)} has other strides, {why}"'
    refusals = [(f"{argument.path}.stride() != {expected}", reason)]
    return refusals if argument.offset is None else [*refusals, _offset_refusal(argument)]


def _strides_text(argument: Argument) -> str:
    """The strides as products of sizes where they are those of densely laid elements, in any order
    of the dimensions; otherwise as they are."""
    assert argument.shape is not None and argument.strides is not None
    order = sorted(range(len(argument.shape)), key=lambda i: (-argument.strides[i], i))  # type: ignore[index]
    texts = [str(s) for s in argument.strides]
    step, factors = 1, list[str]()
    for i in reversed(order):
        if step != argument.strides[i]:
            return shape_text(argument.strides, {})
        texts[i] = " * ".join(factors) or "1"
        step *= hint(argument.shape[i])
        size = argument.shape[i]
        factors.insert(0, f"{argument.path}.shape[{i}]" if isinstance(size, Sym) else str(size))
    return "(" + ", ".join(texts) + ("," if len(texts) == 1 else "") + ")"


def _number_refusal(argument: Argument, bounds: tuple[int, int | None] | None) -> Refusal:
    """Of a whole number that varies."""
    least, most = bounds or (2, None)
    test = f"type({argument.path}) is not int or {argument.path} < {least}"
    test += "" if most is None else f" or {argument.path} > {most}"
    return test, f'"{_quoted(argument.path)} is no whole number as the kernels were made for"'


def _real_refusal(argument: Argument) -> Refusal:
    """Of a number of class float that varies."""
    return f"type({argument.path}) is not float", f'"{_quoted(argument.path)} is not a float"'


def _value_refusal(argument: Argument) -> Refusal:
    """Of an argument that is no tensor."""
    kind, value = type(argument.value).__name__, plain_text(argument.value)
    if isinstance(argument.value, (torch.dtype, torch.device)):
        kind = f"torch.{kind}"
    test = f"type({argument.path}) is not {kind} or {_unlike(argument.path, argument.value)}"
    if argument.value is None or isinstance(argument.value, bool):
        test = f"{argument.path} is not {value}"
    made_for = f"{_quoted(value)}, the value that the kernels were made for"
    return test, f'"{_quoted(argument.path)} is not {made_for}"'


def _unlike(path: str, value: Any) -> str:
    """Text of the condition that what is read at `path`, of a plain value's class, is another one.
    Python takes 0.0 and -0.0 for equal, and (1,) and (1.0,)."""
    if type(value) is tuple or value == 0.0 or value != value:
        return f"repr({path}) != {literal(repr(value))}"
    return f"{path} != {plain_text(value)}"


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


__all__ = [
    "attribute",
    "default_refusals",
    "forwarded_arguments",
    "misfit_lines",
    "parameters_of",
    "query_refusals",
    "refusal_lines",
    "repeated",
    "signature_text",
]
