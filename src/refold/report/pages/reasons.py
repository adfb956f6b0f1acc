"""Why ops stayed as they are, in words; equal answers stand once."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refold.engine import Refusal, Untouched
from refold.report.pages.drawing import size_of
from refold.report.terminal import seconds

_TOLD = 4  # refusals of one op
_WORST = {"price": 0, "accuracy": 1, "promise": 2, "guard": 3}


@dataclass(frozen=True)
class Reason:
    """One op, or several alike. sizes: of the first. answers: a rule's name, and what it said."""

    op: str
    sizes: str
    times: int
    head: str
    answers: tuple[tuple[str, str], ...]
    more: int


def reasons(left: Sequence[Untouched]) -> list[Reason]:
    """The ops in order; those of one op with equal answers together."""
    groups: dict[tuple[object, ...], list[Untouched]] = {}
    for one in left:
        told = tuple((r.rule.name, r.kind, r.more is None) for r in one.refusals)
        groups.setdefault((one.node.op, told), []).append(one)
    return [_reason(alike) for alike in groups.values()]


def _reason(alike: Sequence[Untouched]) -> Reason:
    one = alike[0]
    ordered = sorted(one.refusals, key=lambda r: (_WORST[r.kind], r.more or 0.0))
    answers = tuple((r.rule.name, said(r)) for r in ordered[:_TOLD])
    head = ""
    if not one.rules:
        head = "no rule speaks of this op"
    elif not one.refusals:
        head = f"{one.rules} rules speak of this op; what each looks for is not there"
    name = str(one.node["target"]) if one.node.op == "aten" else one.node.op
    return Reason(name, size_of(one.node), len(alike), head, answers, max(0, len(ordered) - _TOLD))


def said(r: Refusal) -> str:
    """One rule's answer."""
    if r.kind == "guard":
        text = guard_text(r.rule.where)
        return f"its guard said no: {text}" if text else "the sizes that it asks for are not there"
    if r.kind == "accuracy":
        lost = {"cancels": "digits", "range": "range", "unsafe": "a NaN"}.get(r.rule.mark or "")
        return f"it might lose {lost} in float32" if lost else "it was given up for accuracy"
    if r.kind == "promise":
        return "it holds for finite values only, which --strict does not assume"
    if r.more is None:
        return f"it would give {r.after}, which by itself is cheaper; the whole plan was not"
    if r.more < 1e-9:
        return f"it would give {r.after}, which costs the same"
    return f"it would give {r.after}, which costs {seconds(r.more)} a call more"


def _helpers(body: ast.expr, names: Mapping[str, Any]) -> str:
    """What functions that a guard asks say of themselves."""
    found = {}
    for node in ast.walk(body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            told = inspect.getdoc(names.get(node.func.id))
            if told and node.func.id not in vars(builtins):
                found[node.func.id] = told.partition("\n\n")[0].replace("\n", " ")
    return "".join(f" ({name}: {told.rstrip('.')})" for name, told in found.items())


@functools.cache
def guard_text(guard: Callable[..., Any] | None) -> str:
    """What a guard asks, as its source says it; empty where there is none to be had."""
    if guard is None:
        return ""
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(guard)))  # type: ignore[arg-type]
    except (OSError, TypeError, SyntaxError):
        return guard.__name__.strip("<>")
    code = guard.__code__
    for node in ast.walk(tree):
        if getattr(node, "lineno", 0) != code.co_firstlineno:
            continue
        if isinstance(node, ast.Lambda) and [a.arg for a in node.args.args] == list(
            code.co_varnames[: code.co_argcount]
        ):
            return ast.unparse(node.body) + _helpers(node.body, guard.__globals__)
        if isinstance(node, ast.FunctionDef) and node.name == guard.__name__:
            told = ast.get_docstring(node)
            return told.splitlines()[0] if told else node.name.replace("_", " ")
    return guard.__name__.strip("<>").replace("_", " ")
