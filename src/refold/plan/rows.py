"""How a GPU passes over rows, or over channels: in how many passes, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowsSchedule:
    """What is decided of a kernel of rows, or of a pointwise one, before its text is written.

    one_pass: statistics that need each other (maximum and sum of exponentials, mean and variance)
    are taken in one pass, because no block holds a row. blocks: how many blocks hold rows on a
    multiprocessor: while one waits for its rows the others compute. may_split: whether several
    blocks may take a row, and leave their parts in memory. roomy: whether a thread of two blocks
    has room for twice as much of a row.
    """

    one_pass: bool
    blocks: int
    may_split: bool
    roomy: bool = True

    def __str__(self) -> str:
        held = "a block holds rows" if self.blocks == 1 else f"{self.blocks} blocks hold rows"
        words = [f"{held} on a multiprocessor"]
        words += ["statistics that need each other in one pass"] * self.one_pass
        words += ["several blocks a row where it is long"] * self.may_split
        return "; ".join(words)


@dataclass(frozen=True)
class ChannelsSchedule:
    """What is decided of a kernel of channels. held: registers hold all channels of a place, which
    are read once; else each pass reads them."""

    held: bool

    def __str__(self) -> str:
        return "registers hold channels" if self.held else "each pass reads channels"
