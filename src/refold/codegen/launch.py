"""What a target tells of its kernels to the writer of forward: how each is called, on what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from refold.ir import Node


@dataclass(frozen=True)
class Scope:
    """The Python text of what a launch reads and writes.

    operands: tensors of `group.inputs` (parameters, inputs, values). results: of `group.outputs`.
    sizes: named sizes. packed: of what the kernel is given packed its packed form, by its value.
    quantized: where the group's value is quantized; 0 for nowhere. as_they_lie: operands that are
    read by their strides, whatever these are.
    """

    operands: Mapping[Node, str]
    results: Mapping[Node, str]
    sizes: Mapping[str, str]
    packed: Mapping[Node, str] = field(default_factory=dict)
    quantized: str = "0"
    as_they_lie: frozenset[Node] = frozenset()


# the statements of emitted Python that call one group's kernel
Launch = Callable[[Scope], list[str]]
