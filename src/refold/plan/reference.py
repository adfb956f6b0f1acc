"""Run a plan by PyTorch alone: what its kernels compute, step by step, without any kernel.

A step reads only what it declares, of what steps before it have stored, in the dtype that it lies
in there. So a plan that forgets a value, orders steps wrongly, or rounds what it should not is
found here, and nothing has to be compiled for it. Values that a plan keeps in 16 bits by blocks
(`Quantized`) are taken as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from refold.ir import Node
from refold.ir.evaluate import concrete
from refold.ir.graph import within
from refold.ir.rounded import run_exact, value_of
from refold.plan.plan import Call, Group, Plan, is_rematerialized, reads

Values = Mapping[Node, torch.Tensor]
_LEAVES = ("param", "constant", "input", "state", "scalar")


class Incomplete(Exception):
    """A step reads what no step before it made."""


def run_plan(plan: Plan, leaves: Values, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """The outputs of a plan, in their true shapes and in the dtypes that they have in memory.

    leaves: a tensor for every parameter, constant, input and state of the plan's graph. sizes: the
    value of every named size.

    Raises:
        Incomplete: a step reads a value that is not declared, or that nothing has made.
        NotImplementedError: a call of PyTorch cannot be made from its text.
    """
    return _Run(plan, leaves, sizes).outputs()


class _Run:
    def __init__(self, plan: Plan, leaves: Values, sizes: Mapping[str, int]) -> None:
        self.plan, self.leaves, self.sizes = plan, leaves, sizes
        self.memory: dict[Node, torch.Tensor] = {}
        self.calls: dict[Any, Any] = {}

    def outputs(self) -> list[torch.Tensor]:
        for fold in self.plan.folds:
            exact = run_exact([fold.node], self.leaves, self.sizes)[fold.node]
            self.memory[fold.node] = exact.to(fold.node.dtype) if fold.node.is_float else exact
        for step in self.plan.steps:
            if isinstance(step, Group):
                self._group(step)
            else:
                self._call(step)
        return [
            self._load(o.value, "a result").reshape([concrete(d, self.sizes) for d in o.shape])
            for o in self.plan.outputs
        ]

    def _load(self, wanted: Node, reader: str) -> torch.Tensor:
        """A value as it lies in memory, or what its readers compute for themselves of such."""
        done: dict[Node, torch.Tensor] = {}
        for node in within([wanted], lambda n: n not in self.memory):
            if node.op not in _LEAVES and not is_rematerialized(node):
                raise Incomplete(f"{reader} reads {node}, which no step before it made")
            inner = [done[i] if i in done else self.memory[i] for i in node.inputs]
            done[node] = value_of(node, inner, self.leaves, self.sizes, False, self.calls)
        return done[wanted] if wanted in done else self.memory[wanted]

    def _group(self, group: Group) -> None:
        """One kernel: loads widen what lies in fewer bits, stores round."""
        done: dict[Node, torch.Tensor] = {}
        declared = set(group.inputs)
        inside = {*group.nodes, *group.turned}
        for counter, buffer in group.counters:
            self.memory[counter] = self._computed(counter, {buffer: self._load(buffer, group.name)})

        def is_here(node: Node) -> bool:
            return node not in declared and (node in inside or is_rematerialized(node))

        for node in within(group.outputs, is_here):
            for i in node.inputs:
                if i in done:
                    continue
                if i not in declared and i.op != "scalar":
                    raise Incomplete(f"{group.name} reads {i}, which is none of its inputs")
                done[i] = self._load(i, group.name).to(i.dtype)
            done[node] = self._computed(node, done)
        for node in group.outputs:
            self.memory[node] = done[node].to(group.stored(node))

    def _computed(self, node: Node, known: Values) -> torch.Tensor:
        inner = [known[i] if i in known else self._load(i, node.op) for i in node.inputs]
        return value_of(node, inner, {}, self.sizes, False, self.calls)

    def _call(self, call: Call) -> None:
        """PyTorch computes in the dtype that its operands lie in."""
        node = call.node
        if node in self.memory:  # a counter, which a kernel has written
            return
        as_stored = reads(node) != node.inputs
        inner = []
        for given, read in zip(node.inputs, reads(node), strict=True):
            value = self._load(read, node.op)
            inner.append(value if as_stored else value.to(given.dtype))
        made = value_of(node, inner, {}, self.sizes, False, self.calls)
        self.memory[node] = made.to(self.plan.stored(node))


__all__ = ["Incomplete", "run_plan"]
