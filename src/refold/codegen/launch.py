"""What a target tells of its kernels to the writer of forward: how each is called, on what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from refold.ir import Node
from refold.plan import Group


@dataclass(frozen=True)
class Scope:
    """The Python text of what a launch reads and writes.

    operands: tensors of `group.inputs` (parameters, inputs, values). results: of `group.outputs`.
    sizes: named sizes. packed: of each of the launch's `packs` its packed form, by its value.
    quantized: where the group's value is quantized; 0 for nowhere.
    """

    operands: Mapping[Node, str]
    results: Mapping[Node, str]
    sizes: Mapping[str, str]
    packed: Mapping[Node, str] = field(default_factory=dict)
    quantized: str = "0"


Pack = tuple[Node, str]  # a value, and the function that packs it


@dataclass(frozen=True)
class Launch:
    """How a target calls one group's kernel.

    packs: operands that the kernel reads in a form of the target's own, and the emitted Python
    function that makes it: once for a parameter until it changes, at each call for a value.
    itself: the one of them that the kernel makes itself if it is given none.
    overwrites: operands whose memory the kernel may write its one full-size result to, because it
    reads each element before it writes that of the same place. quantized_from: from how many
    rows on a product stores its value quantized; None for never.
    """

    group: Group
    statements: Callable[[Scope], list[str]]
    packs: tuple[Pack, ...] = ()
    itself: Pack | None = None
    overwrites: tuple[Node, ...] = ()
    quantized_from: int | None = None
