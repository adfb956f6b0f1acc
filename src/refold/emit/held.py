"""What a mode keeps in memory beside the parameters: folded parameters and packed ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from refold.codegen.text import describe
from refold.ir import Node, numel
from refold.plan import Plan

# a packed element is two 16-bit halves, whatever its dtype was
_PACKED = 4


@dataclass(frozen=True)
class Held:
    """One tensor that is kept. size: its bytes, but for the padding of what is packed."""

    name: str
    words: str
    size: int


def held(plan: Plan) -> tuple[Held, ...]:
    """What the module keeps for a plan once it has been called, until it is freed itself."""
    return tuple(_held(plan))


def _held(plan: Plan) -> Iterator[Held]:
    names = {f.node: f.name for f in plan.folds}
    for fold in plan.folds:
        yield Held(fold.name, describe(fold.node), _elements(fold.node) * fold.node.dtype.itemsize)
    for node, form in plan.buffers.prepared.packs:
        name = names.get(node) or str(node["name"])
        yield Held(f"{name}, packed", form, _PACKED * _elements(node))


def _elements(node: Node) -> int:
    count = numel(node.shape)
    assert isinstance(count, int)  # what follows from parameters alone has fixed sizes
    return count


def own_bytes(module: torch.nn.Module) -> int:
    """The bytes of a module's parameters and buffers that are dense, each memory once."""
    held = (*module.parameters(), *module.buffers())
    tensors = [t for t in held if t.layout is torch.strided]
    found = {(t.untyped_storage()._cdata, t.storage_offset(), t.shape): t for t in tensors}
    return sum(t.numel() * t.element_size() for t in found.values())
