"""How a GPU computes a product: its kernels by the number of rows, and the form of its sides.

A product of float32 reads both sides packed (hi_lo_split.cuh): a parameter is packed once until it
changes, a value at each call; on Hopper by the product itself, some rows at a time, unless several
products read it; or element by element on its way to the tensor cores (mainloop_rs_sm90.cuh).
One of 16 bits reads its sides as they are; a folded weight, which has more bits, as two 16-bit
parts. Of a batch of products both sides are packed before, but for rows that are split on their
way, and so is a side that lies the other way round (hi_lo_split_columns.cuh): it is never copied.

families/matmul/schedules.py chooses; what stands here is what it has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from refold.ir import Node
from refold.schedule import SKINNY_ROWS, Schedule

PACKED, TRANSPOSED = (
    "pack",
    "pack_transposed",
)  # as rows lie, and from what lies the other way round

Pack = tuple[Node, str]  # a value, and the form that it is packed in: "pack", "hi_lo_float16", ...


@dataclass(frozen=True)
class ProductKernel:
    """What is decided of a product before its text is written.

    kind: of its elements and accuracy (schedule.PACES). parts: in how many 16-bit parts the weight
    is given. schedule: for the sizes that the model was captured with. by_rows: (limit, schedule)
    of what runs on tensor cores: up to `limit` rows are cut so, and by the last one (None) any
    more. unaligned: of a batch, the schedule at depths at which TMA cannot take the first side as
    it is, if there may be such a call. sometimes_plain: whether some sizes take CUDA cores. packs:
    what the kernel reads packed. itself: what it packs itself unless it is given it packed.
    quantized_from: from how many rows on its value is stored in 16 bits; None for never.
    """

    kind: str
    parts: int
    schedule: Schedule
    by_rows: tuple[tuple[int | None, Schedule], ...]
    unaligned: Schedule | None
    sometimes_plain: bool
    packs: tuple[Pack, ...]
    itself: Pack | None
    quantized_from: int | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether its operands have 16 bits."""
        return self.kind not in ("ieee", "tf32")

    @property
    def on_tensor_cores(self) -> bool:
        return not self.schedule.plain

    @property
    def is_direct(self) -> bool:
        """Whether some schedule takes the first side as it is: it is never given packed."""
        return any(s.rs for _, s in self.by_rows)

    @property
    def shares_tiles(self) -> bool:
        """Whether several blocks may share a tile, by `splits`, or on Hopper where tiles are left
        over: they leave their parts in memory."""
        schedules = (s for _, s in self.by_rows)
        return self.on_tensor_cores and any(
            s.splits > 1 or s.kernels.shares_left_over for s in schedules
        )

    def __str__(self) -> str:
        """In words: how it is cut by rows, what lies packed, what is stored in 16 bits."""
        found = []
        if self.sometimes_plain and self.on_tensor_cores:
            found.append(f"plain up to {SKINNY_ROWS} rows")
        if self.unaligned is not None:
            found.append(f"{_words(self.unaligned)} at depths that are no multiple of 4")
        for limit, schedule in self.by_rows:
            end = f" up to {limit} rows" if limit is not None else ""
            found.append(f"{_words(schedule)}{end}")
        words = f"{self.kind}: {'; '.join(found)}"
        if self.quantized_from is not None:
            words += f"; stored in 16 bits from {self.quantized_from} rows on"
        return words


def _words(schedule: Schedule) -> str:
    if schedule.plain:
        return "plain"
    high, wide = schedule.sizes
    split = f", {schedule.splits} blocks a tile" if schedule.splits > 1 else ""
    rs = ", x split on its way" if schedule.rs else ""
    return f"{schedule.kernels.name} tiles of {high} x {wide}{split}{rs}"


__all__ = ["PACKED", "TRANSPOSED", "Pack", "ProductKernel"]
