"""What a plan does, from drafts that are complete: folds, then kernels and calls in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import torch

from refold.ir import Node
from refold.ir.graph import is_computed, topological, within
from refold.plan.draft import Draft
from refold.plan.memory import source
from refold.plan.plan import ExternCall, Fold, Group, Step, is_rematerialized, reads, values_read
from refold.plan.roles import roles
from refold.planner.drafts import Drafts


def folds_of(drafts: Drafts, parametric: Mapping[Node, bool]) -> tuple[Fold, ...]:
    """What kernels and calls of PyTorch read that follows from parameters alone."""
    found: dict[Node, None] = {}
    for n in drafts.order:
        if not parametric[n]:
            # a kernel compares for itself; a product or a move reads what lies in memory
            for i in map(source, values_read(n) if n in drafts.owner else n.inputs):
                if parametric[i] and is_computed(i):
                    found.setdefault(i)
    for root in drafts.graph.roots():
        if parametric[root] and is_computed(root):
            found.setdefault(root)
    role = roles(drafts.graph.nodes())
    bases = ["_".join(["folded", *([role[node]] if node in role else [])]) for node in found]
    counts: Counter[str] = Counter()
    folds = []
    for base, node in zip(bases, found, strict=True):
        counts[base] += 1
        name = base if counts[base] == 1 else f"{base}{counts[base]}"
        sources = tuple(n for n in topological([node]) if n.op in ("param", "constant"))
        folds.append(Fold(name, node, sources))
    return tuple(folds)


def ordered(
    drafts: Drafts,
    parametric: Mapping[Node, bool],
    memory: Callable[[Node], torch.dtype],
    real: torch.dtype,
) -> tuple[Step, ...]:
    """What the outputs need, each step after those that it reads."""
    order: list[Draft | Node] = []
    done: set[int] = set()
    begun: set[int] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(drafts.graph.roots())]
    while stack:
        node, ready = stack.pop()
        if parametric[node] or not is_computed(node):
            continue
        draft = drafts.owner.get(node)
        key = id(draft) if draft is not None else id(node)
        if key in done:
            continue
        if ready:
            done.add(key)
            order.append(node if draft is None else draft)
            continue
        if key in begun:
            raise RuntimeError(f"a plan in which {node} waits for itself")
        begun.add(key)
        stack.append((node, True))
        sources = reads(node) if draft is None else draft.inputs()
        # what is drawn last, or else all of a forward's draws would come first and lie there
        late = sorted(sources, key=lambda i: i.row.draws)
        stack.extend((i, False) for i in reversed(late))
    wanted = set(drafts.graph.roots())
    for item in order:
        wanted.update(item.inputs() if isinstance(item, Draft) else reads(item))
    steps: list[Step] = []
    number = 0  # of the next kernel
    for item in order:
        if isinstance(item, Node):
            steps.append(ExternCall(item))
            continue
        # masks appended for one reader may stand behind a node that shares them
        inside = set(item.nodes)
        nodes = tuple(within(item.nodes, inside.__contains__))
        outputs = tuple(n for n in nodes if n in wanted and not is_rematerialized(n))
        name = f"{item.family}{number}"
        number += 1
        inputs = tuple(item.inputs())
        stored = {n: memory(n) for n in (*inputs, *outputs)}
        steps.append(
            Group(
                name,
                item.family,
                item.dims,
                nodes,
                inputs,
                outputs,
                stored,
                real,
                tuple(item.counters),
                item.transposed,
                again=tuple(n for n in nodes if n in drafts.again),
            )
        )
    return tuple(steps)
