"""In which dtype a value lies in memory.

Kernels compute in one accumulation type, float32 for values of up to 32 bits; what they load and
store may be narrower. A value that PyTorch itself keeps in 16 bits is kept so here: what travels
between kernels is as many bytes as in PyTorch, and no further from the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from refold.ir import HALF_DTYPES, OPS, Kind, Node

_COMPUTED = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Storage:
    """What is known of a graph's values beside the graph.

    known: for values that PyTorch computes too, the dtype that it keeps them in. other: what the
    large values that only the rewritten graph has may be stored as; None for their own dtype. It
    is never float16: nobody has shown that they are in its range. real: what kernels compute in.
    """

    known: Mapping[Node, torch.dtype] = field(default_factory=dict)
    other: torch.dtype | None = None
    real: torch.dtype = torch.float32

    @staticmethod
    def of(
        stored: Mapping[Node, torch.dtype],
        every: torch.dtype | None,
        originals: Mapping[Node, Node],
        kind: torch.dtype | None,
    ) -> Storage:
        """From a widened graph's stored dtypes, its values that are equal to original ones, and the
        dtype of the model's first tensor."""
        known = {n: stored.get(original, original.dtype) for n, original in originals.items()}
        real = torch.float64 if kind == torch.float64 else torch.float32
        return Storage(known, every if every is torch.bfloat16 else None, real)

    def moved(self, done: Mapping[Node, Node]) -> Storage:
        """The same knowledge of values that have been rebuilt."""
        return replace(self, known={done[n]: d for n, d in self.known.items() if n in done})


def is_widening(node: Node) -> bool:
    """A value of 16 bits read as float32, or a mask in memory read as zeros and ones.

    Both are exact, and done where the value is loaded.
    """
    if node.op != "cast":
        return False
    (x,) = node.inputs
    if x.dtype == torch.bool:
        return node.dtype in _COMPUTED and OPS[x.op].kind is not Kind.POINTWISE
    return node.dtype == torch.float32 and x.dtype in HALF_DTYPES


def is_narrowing(node: Node) -> bool:
    return node.op == "cast" and node.dtype in HALF_DTYPES


def source(node: Node) -> Node:
    """The value that is read from memory where `node` is wanted."""
    return node.inputs[0] if is_widening(node) else node


class Memory:
    """The dtype of each value in memory.

    made: whether a kernel of ours makes a value; asked once the value has its place.
    """

    def __init__(
        self,
        storage: Storage,
        roots: Sequence[Node],
        readers: Mapping[Node, Sequence[Node]],
        parametric: Mapping[Node, bool],
        made: Mapping[Node, object],
    ) -> None:
        self.storage, self.roots, self.readers = storage, set(roots), readers
        self.parametric, self.made = parametric, made
        self.found: dict[Node, torch.dtype] = {}

    def __call__(self, node: Node) -> torch.dtype:
        node = source(node)
        stack = [] if node in self.found else [node]
        while stack:
            n = stack[-1]
            waits = [i for i in map(source, n.inputs) if i not in self.found]
            if waits and self._is_as_its_inputs(n):
                stack.extend(waits)
            else:
                self.found.setdefault(n, self._of(n))
                stack.pop()
        return self.found[node]

    def _is_as_its_inputs(self, n: Node) -> bool:
        """Is it moved or multiplied by PyTorch, which keeps the dtype of what it reads?"""
        if n.dtype != torch.float32 or not n.inputs or self.parametric[n] or n in self.roots:
            return False
        if n in self.made or any(r.op == "aten" for r in self.readers.get(n, ())):
            return False
        return OPS[n.op].kind is Kind.MOVE or n.op == "linear"

    def _of(self, n: Node) -> torch.dtype:
        if n.dtype != torch.float32 or not n.inputs or self.parametric[n]:
            return n.dtype
        if n in self.roots or any(r.op == "aten" for r in self.readers.get(n, ())):
            return n.dtype
        if n not in self.made:
            if not self._is_as_its_inputs(n):
                return n.dtype
            inner = {self.found[source(i)] for i in n.inputs}
            if len(inner) > 1:
                return n.dtype
            # PyTorch's product of 16-bit operands is rounded to theirs: only where it is anyway
            own = self.storage.known.get(n, self.storage.other)
            return inner.pop() if n.op != "linear" or own in inner else n.dtype
        readers = self.readers.get(n, ())
        wanted = {r.dtype for r in readers}
        if len(wanted) == 1 and all(map(is_narrowing, readers)):
            return wanted.pop()
        if n in self.storage.known:
            return self.storage.known[n]
        small = n.shape[-1] == 1 or all(d == 1 for d in n.shape[:-1])
        return n.dtype if small or self.storage.other is None else self.storage.other
