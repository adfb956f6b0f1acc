"""A captured, rewritten and planned function of tensors -> the text of a Python module that has it.

There is no class and nothing is checked: what calls such a function has guarded its arguments.
Parameters are arguments like others. Only what follows from no argument at all is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from refold import __version__
from refold.capture import Captured
from refold.codegen.text import describe, shape_text, stripped
from refold.emit.alike import Member, shared_names
from refold.emit.embed import runtime_imports
from refold.emit.fold import fold_lines
from refold.emit.forward import ForwardWriter
from refold.emit.lines import all_fitted
from refold.emit.target import Target
from refold.emit.template import render
from refold.ir import Node
from refold.ir.literals import bare, python_literal
from refold.plan import Plan
from refold.plan.fills import is_large_fill


class _FunctionWriter(ForwardWriter):
    """Writes the body of a function that is given all it reads."""

    def _leaves(self) -> None:
        # what is written to has to be the argument itself, not an ordered copy of it
        self.untouched |= {o.mutates for o in self.plan.outputs if o.mutates is not None}
        super()._leaves()

    def _written_place(self, name: str) -> str:
        return name

    def _first(self, allocates: bool) -> list[str]:
        device = f"{self.captured.tensors[0].path}.get_device()"
        return self.target.prologue(False, allocates, False, device)


def emit_function(
    captured: Captured, plan: Plan, target: Target, arguments: Sequence[str], story: Sequence[str]
) -> str:
    """The text of a module with `call(args)`, which empties the list of its arguments and gives the
    list of its results. arguments: their names, sizes among them. story: lines that say what was
    done.

    Raises ValueError for a plan that prepares more than constants.
    """
    prepared = plan.buffers.prepared
    if prepared.sources or prepared.packs or plan.buffers.states:
        raise ValueError("a function's plan prepares no parameters")
    same = shared_names([(g.name, g) for g in plan.groups], target.text)
    launches = {g.name: target.launch(g, same[g.name]) for g in plan.groups}
    text = _FunctionWriter(captured, plan, launches, target, {}).write()
    members = [Member(same[g.name], g, text.names) for g in plan.groups]
    source = target.source(members, False)
    constants: list[dict[str, Any]] = []
    written = [line for line in text.lines if line]
    for fold in text.folds:
        if is_large_fill(fold.node):
            written = _with_fill(written, text.names[fold.node], fold.node, str(captured.device))
            continue
        _, lines = fold_lines(fold, fold.node in text.channels_last)
        words = f"{bare(describe(fold.node, 2))}."
        constants.append(
            {"name": text.names[fold.node], "lines": all_fitted(lines, 8), "words": words}
        )
    taken = [f"[{', '.join(arguments)}] = args", "args.clear()"]
    turned = [a for a in captured.tensors if a.order is not None]
    taken += [f"{a.path} = {a.path}.permute({a.order})" for a in turned]
    body = [*taken, *released(written, arguments)]
    build = target.build(members, source).strip("\n")
    lines = all_fitted(body, 4)
    python = [build, *lines, *(line for c in constants for line in c["lines"])]
    made = render(
        "function.py.jinja",
        version=__version__,
        target=target.name,
        story=story,
        imports=runtime_imports("\n".join(python)),
        constants=constants,
        device=str(captured.device),
        lines=lines,
        cpp=source,
        build=build,
    )
    return "\n".join(line.rstrip() for line in made.splitlines()).rstrip("\n") + "\n"


def _with_fill(lines: Sequence[str], name: str, node: Node, device: str) -> list[str]:
    """Statements with one before them that fills the memory of `name`, right before it is read."""
    shape, value = shape_text(stripped(node.shape, 1), {}), node.inputs[0]["value"]
    about = f'dtype={node.dtype}, device="{device}"'
    fill = f"{name} = torch.full({shape}, {python_literal(value)}, {about})"
    first = next(i for i, line in enumerate(lines) if re.search(rf"\b{name}\b", line))
    while lines[first].startswith(" "):  # part of a statement
        first -= 1
    return [*lines[:first], fill, *lines[first:]]


def released(lines: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Statements that let go of each value, an argument or a variable, behind the last that reads
    it, so that its memory can be used again."""
    last: dict[str, int] = dict.fromkeys(arguments, -1)
    for i, line in enumerate(lines):
        found = re.match(r"(\w+) = ", line)
        if found:
            last.setdefault(found[1], i)
        for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*", line):
            if name in last:
                last[name] = i
    done: list[str] = []
    last.pop("rf_work", None)
    unread = [name for name, i in last.items() if i < 0]
    done += [f"del {', '.join(unread)}"] if unread else []
    for i, line in enumerate(lines):
        done.append(line)
        spent = [name for name, at in last.items() if at == i]
        # an indented line is part of a statement that is not at its end
        inside = line.startswith(" ") or (i + 1 < len(lines) and lines[i + 1].startswith(" "))
        spent += ["rf_work"] if "rf_work[0]" in line else []  # each call's is another
        if spent and i + 1 < len(lines) and not inside:
            done.append(f"del {', '.join(spent)}")
    return done
