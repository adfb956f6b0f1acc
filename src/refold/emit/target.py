"""What a target (CPU, CUDA) has to give the emitter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from refold.codegen.launch import Launch
from refold.emit.alike import Member
from refold.emit.guards import Refusal
from refold.emit.source import Source
from refold.plan import Group


class Target(Protocol):
    """A back end: how it names itself, writes its kernels and calls them.

    name: for people and the command line, e.g. "cpu" or "cuda:sm_90".
    device: torch's device type. empty: the name, in a fast forward, of what gives memory for sizes,
    strides and a dtype.
    """

    empty: str

    @property
    def name(self) -> str: ...

    @property
    def device(self) -> str: ...

    def launch(self, group: Group, name: str) -> Launch:
        """How emitted Python calls the kernel `name` of a group."""
        ...

    def prologue(self, prepared: bool, allocates: bool, alone: bool, device: str) -> list[str]:
        """Statements that begin a fast forward, after the guards, whose cache is `rf_cache`.

        device: text of the number of the device that the arguments are on. prepared: whether there
        are folded parameters. allocates: whether `empty` is called. alone: whether what is prepared
        is read by PyTorch's kernels alone.
        """
        ...

    def guards(self, names: Sequence[str]) -> list[Refusal]:
        """Of the tensor arguments `names`."""
        ...

    def flags(self, groups: Sequence[Group]) -> list[Refusal]:
        """Of PyTorch's settings, where some groups are computed."""
        ...

    def text(self, group: Group, name: str) -> str:
        """The C++ of a group's kernel."""
        ...

    def source(self, groups: Sequence[Member], looks: bool) -> Source:
        """The C++ of the kernels. Groups of one name are computed by one kernel. looks: whether a
        kernel that only looks at parameters is among them."""
        ...

    def build(self, groups: Sequence[Member], source: Source) -> str:
        """Python text with `_refold_build`, which compiles `_REFOLD_SOURCE` and gives the kernels
        and None, or None and the reason why they could not be built."""
        ...
