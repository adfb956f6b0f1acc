"""Which kernels a product gets on a GPU, and in which form they read its sides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from refold.devices import DeviceModel
from refold.families.family import Sizes
from refold.ir import HALF_DTYPES, Dim, Sym, hint
from refold.ir.graph import is_parametric
from refold.plan.plan import Group
from refold.plan.product import PACKED, TRANSPOSED, Pack, ProductKernel
from refold.schedule import (
    MMA_SYNC,
    SKINNY_ROWS,
    TILE_COSTS,
    Kernels,
    Schedule,
    ScheduleChooser,
    TileCost,
    batch_schedule,
    by_rows,
    by_rule,
    default_schedule,
    kernels_of,
    schedules,
)


def of_device(device: DeviceModel) -> list[Schedule]:
    """All that use a GPU's tensor cores; those that split x on its way are for full accuracy."""
    if device.device.toolchain != "cuda":
        return []
    return schedules(kernels_of(device.device.features), device.float32 == "ieee")


def schedule(group: Group, device: DeviceModel, choose: ScheduleChooser | None) -> Group:
    """The product with its kernels, where a GPU computes it.

    choose: how a product of some sizes and kind is cut; by rule where nothing is given.
    """
    if device.device.toolchain != "cuda":
        return group
    kernels = kernels_of(device.device.features)
    chooser = _Chooser(group, kernels, device.float32, choose or by_rule(kernels))
    return replace(group, kernel=chooser.kernel())


def to_tune(group: Group) -> tuple[str, Sizes] | None:
    """Kind and sizes of a product that timing may cut better than the rule does."""
    if group.kernel is None or group.batches != 1 or not _may_be_cut(group):
        return None
    return group.kernel.kind, sizes_of(group)


def sizes_of(group: Group) -> Sizes:
    """Rows, columns and depth that a product was captured with, of all its parts."""
    return hint(group.rows), hint(group.width), hint(_depth(group)) * _parts(group)


def _depth(group: Group) -> Dim:
    return group.product.inputs[0].shape[-1]


def _narrow(group: Group) -> bool:
    """Whether the product's operands have 16 bits."""
    return group.stored(group.sides[0]) in HALF_DTYPES


def _parts(group: Group) -> int:
    """How many parts the weight of 16-bit rows is given as: a folded one has more bits."""
    return 2 if _narrow(group) and group.stored(group.sides[1]) not in HALF_DTYPES else 1


def _may_be_cut(group: Group) -> bool:
    """Whether it has the device's best kernels: TMA wants rows of 16 bits at multiples of 16
    bytes."""
    return not _narrow(group) or hint(_depth(group)) % 8 == 0


@dataclass(frozen=True)
class _Chooser:
    """kernels: those that the device has. accuracy: of products of float32, "ieee" or "tf32"."""

    group: Group
    kernels: Kernels
    accuracy: str
    choose: ScheduleChooser

    def kernel(self) -> ProductKernel:
        return ProductKernel(
            self.kind,
            _parts(self.group),
            self.schedule,
            self.by_rows,
            self.unaligned,
            self.sometimes_plain,
            self.packs,
            self.itself,
            self.quantized_from,
        )

    @cached_property
    def sizes(self) -> Sizes:
        return sizes_of(self.group)

    @cached_property
    def kind(self) -> str:
        if not _narrow(self.group):
            return self.accuracy
        return str(self.group.stored(self.group.sides[0])).removeprefix("torch.")

    @property
    def tile_cost(self) -> TileCost:
        """What the product's parts take."""
        return TILE_COSTS[self.kind]

    @property
    def is_batch(self) -> bool:
        """Whether it is of several products, each with a weight of its own."""
        return self.group.batches != 1

    # --- schedules --------------------------------------------------------------------------------
    @cached_property
    def schedule(self) -> Schedule:
        """How the product is cut, for the sizes that the model was captured with."""
        if not _may_be_cut(self.group):
            return default_schedule(MMA_SYNC, *self.sizes, tile_cost=self.tile_cost)
        if self.is_batch:
            batches = hint(self.group.batches)
            return batch_schedule(
                self.kernels, batches, *self.sizes, self.may_be_rs, self.tile_cost
            )
        chosen = self.choose(*self.sizes, self.kind)
        if chosen.rs and not self.may_be_rs:
            return default_schedule(self.kernels, *self.sizes, tile_cost=self.tile_cost)
        return chosen

    @cached_property
    def by_rows(self) -> tuple[tuple[int | None, Schedule], ...]:
        if not isinstance(self.group.rows, Sym) or self.is_batch:
            return ((None, self.schedule),)
        return tuple(by_rows(self.schedule, *self.sizes, self.may_be_rs, self.tile_cost))

    @cached_property
    def may_be_rs(self) -> bool:
        """Whether TMA can take the first side as it is, rows of fp32 that start at multiples of 16
        bytes; a parameter is better packed once."""
        depth = _depth(self.group)
        if self.kind != "ieee" or hint(depth) % 4 or (isinstance(depth, Sym) and not self.is_batch):
            return False
        return not (self.group.is_transposed[0] or is_parametric(self.group.sides[0]))

    @cached_property
    def unaligned(self) -> Schedule | None:
        """How a batch is cut at depths at which TMA cannot take the first side as it is, if there
        may be such a call."""
        if not self.schedule.rs or not isinstance(_depth(self.group), Sym):
            return None
        return batch_schedule(
            self.kernels, hint(self.group.batches), *self.sizes, tile_cost=self.tile_cost
        )

    @property
    def sometimes_plain(self) -> bool:
        """Whether some sizes take the plain product: few rows do, where their number may vary."""
        group = self.group
        varies = isinstance(group.rows, Sym) and not self.is_batch and not group.transposed
        return self.schedule.plain or varies

    # --- the form of its sides --------------------------------------------------------------------
    @cached_property
    def packs(self) -> tuple[Pack, ...]:
        if self.schedule.plain:
            return ()
        x, w = self.group.sides
        if _narrow(self.group):
            kind = str(self.group.stored(x)).removeprefix("torch.")
            return ((w, f"hi_lo_{kind}"),) if _parts(self.group) == 2 else ()
        forms = (TRANSPOSED if transposed else PACKED for transposed in self.group.is_transposed)
        found = tuple(zip((x, w), forms, strict=True))
        return found[1:] if any(s.rs for _, s in self.by_rows) else found

    @property
    def itself(self) -> Pack | None:
        plain = self.schedule.plain or _narrow(self.group)
        if plain or not self.schedule.kernels.packs or self.group.is_transposed[0]:
            return None
        if self.is_batch and self.unaligned is None:
            return None
        return self.group.sides[0], PACKED

    @cached_property
    def quantized_from(self) -> int | None:
        """By products of TF32 whose teams have 128 rows of a tile to themselves."""
        group = self.group
        if group.quantized is None or self.kind != "tf32" or self.schedule.plain:
            return None
        *some, (_, last) = self.by_rows
        if last.tile not in last.kernels.quantizes or last.splits > 1:
            return None
        limits = [SKINNY_ROWS, *(limit or 0 for limit, _ in some)]
        rows = max(group.quantized.rows, 1 + max(limits))
        return rows if isinstance(group.rows, Sym) or group.rows >= rows else None
