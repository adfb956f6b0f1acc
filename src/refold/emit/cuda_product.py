"""A product for CUDA: which kernels its sizes choose, and how its sides are given.

A product of float32 reads both sides packed (kernels/cuda/split.cuh): a parameter is packed once
until it changes, a value at each call; on Hopper by the product itself, some rows at a time, unless
several products read it; or element by element on its way to the tensor cores (direct_sm90.cuh).
One of 16 bits reads its sides as they are; a folded weight, which has more bits, as two 16-bit
parts. Of a batch of products both sides are packed before, but for rows that are split on their
way, and so is a side that lies the other way round (split_columns.cuh): it is never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from refold.codegen.cuda import CudaKernel
from refold.codegen.launch import Launch, Pack, Scope
from refold.families.matmul.kernel import FORM, reductions_down
from refold.ir import NARROW, OPS, Dim, Kind, Sym, hint
from refold.ir.graph import is_parametric
from refold.ir.literals import CPP_TYPES
from refold.plan import Group
from refold.schedule import (
    FEW_ROWS,
    MMA_SYNC,
    PACES,
    Cut,
    Kernels,
    Pace,
    Schedule,
    batch_schedule,
    by_rows,
    default_schedule,
)

# of an epilogue, in multiply-adds an element: up to so many, an unrolled loop of it is small
_LIGHT = 6.0


class CudaProduct(CudaKernel):
    """A product with its epilogue.

    kernels: those that the device has. accuracy: of fp32 products, "Ieee" or "Tf32". cut: how a
    product is cut.
    """

    def __init__(
        self,
        group: Group,
        name: str,
        kernels: Kernels,
        accuracy: str,
        cut: Cut,
    ) -> None:
        super().__init__(group, name, FORM)
        self.kernels, self.accuracy, self.cut = kernels, accuracy, cut

    def launch(self) -> Launch:
        late = self._packed_late()
        packs, over = self.packings(), self.overwrites()
        return Launch(self.group, self.call, packs, late, over, self.quantized_from)

    def headers(self) -> list[str]:
        narrow = ["narrow.cuh"] if self.group.has_narrow else []
        narrow += ["native.cuh"] if self.narrow else []
        tensor = ["packed.cuh", self.schedule.kernels.header] if self.packs else []
        tensor += ["split_columns.cuh"] if self.group.turned else []
        tensor += ["direct_sm90.cuh"] if self.packs and self.is_direct else []
        plain = ["packed.cuh", "launch_plain.cuh"] if self.sometimes_plain else []
        finish = ["finish.cuh"] if self.reductions else []
        finish += ["quantized_store.cuh"] if self.may_quantize else []
        return [*narrow, *tensor, *plain, *finish]

    def functor(self) -> list[str]:
        epilogue = [n for n in self.group.nodes if OPS[n.op].kind is Kind.POINTWISE]
        work = sum(n.row.flops.in_a_loop for n in epilogue if n not in self.group.vectors)
        light = f"static constexpr bool kLight = {str(work <= _LIGHT).lower()};"
        lines = [*super().functor(), light]
        along = [o for o in self.body.pointers() if self.body.is_along_width(o)]
        reads = [o.member for o in along if o.kind != "column"]
        asked = [*reads, *map(self.member, self.full_outputs())]
        pairs = " && ".join(f"rf::in_pairs({member}, width)" for member in asked) or "true"
        lines.append(f"static constexpr bool kBatched = {str(self.is_batch).lower()};")
        lines.append(f"static constexpr int kReads = {len(reads)};")
        lines.append(f"RF_FN bool in_pairs() const {{ return {pairs}; }}")
        if self.may_quantize:
            moments = [
                r.monoid == "Moments" and r.source is self.group.value
                for r in reductions_down(self)
            ]
            lines.append(f"static constexpr int kQuantized = {moments.index(True)};")
        return lines

    @property
    def may_quantize(self) -> bool:
        return self.quantized_from is not None

    @cached_property
    def quantized_from(self) -> int | None:
        """From how many rows on the value is stored quantized, if ever: by products of TF32 whose
        teams have 128 rows of a tile to themselves."""
        if self.group.quantized is None or self.mode != "Tf32" or not self.packs:
            return None
        *some, (_, last) = self._ways
        if last.tile not in last.kernels.quantizes or last.splits > 1:
            return None
        limits = [FEW_ROWS, *(limit or 0 for limit, _ in some)]
        rows = max(self.group.quantized.rows, 1 + max(limits))
        return rows if isinstance(self.group.rows, Sym) or self.group.rows >= rows else None

    # --- which kernels ----------------------------------------------------------------------------
    @cached_property
    def schedule(self) -> Schedule:
        """How the product is cut, for the sizes that the model was captured with."""
        if not self.may_be_cut:
            return default_schedule(MMA_SYNC, *self.hints, pace=self.pace)
        if self.is_batch:
            batches = hint(self.group.batches)
            sizes = batches, *self.hints, self._may_be_direct
            return batch_schedule(self.kernels, *sizes, self.pace)
        way = self.cut(*self.hints, self.kind)
        if way.direct and not self._may_be_direct:
            return default_schedule(self.kernels, *self.hints, pace=self.pace)
        return way

    @property
    def hints(self) -> tuple[int, int, int]:
        """Rows, columns and depth that the product was captured with, of all its parts."""
        rows, cols, depth = (hint(d) for _, d in self.sizes()[:3])
        return rows, cols, depth * self.parts

    @property
    def is_batch(self) -> bool:
        """Whether it is of several products, each with a weight of its own."""
        return self.group.batches != 1

    def sizes(self) -> list[tuple[str, Dim]]:
        return [*super().sizes(), *([("batches", self.group.batches)] if self.is_batch else [])]

    @property
    def may_be_cut(self) -> bool:
        """Whether it has the device's best kernels: TMA wants rows of 16 bits at multiples of 16
        bytes."""
        return self.narrow is None or hint(dict(self.sizes())["depth"]) % 8 == 0

    @property
    def kind(self) -> str:
        """What the product is to whoever cuts it."""
        if self.narrow is None:
            return self.accuracy.lower()
        return str(self.group.stored(self.group.sides[0])).removeprefix("torch.")

    @property
    def pace(self) -> Pace:
        """What the product's parts take."""
        return PACES[self.kind]

    @cached_property
    def narrow(self) -> str | None:
        """The 16-bit element type of the product's operands, if they have one."""
        x = self.group.stored(self.group.sides[0])
        return f"rf::{CPP_TYPES[x]}" if x in NARROW else None

    @property
    def parts(self) -> int:
        """How many parts the weight of 16-bit rows is given as: a folded one has more bits."""
        folded = self.narrow is not None and self.group.stored(self.group.sides[1]) not in NARROW
        return 2 if folded else 1

    @property
    def mode(self) -> str:
        if self.narrow is None:
            return self.accuracy
        return f"Native<{self.narrow}{', 2' if self.parts == 2 else ''}>"

    def packings(self) -> tuple[Pack, ...]:
        """What the kernel reads packed."""
        if not self.packs:
            return ()
        if self.narrow is None:
            pairs = zip(self.group.sides, self.group.is_turned, strict=True)
            found = [(i, f"_refold_pack{'_turned' if turned else ''}") for i, turned in pairs]
            return tuple(found[self.is_direct :])
        x, w = self.group.sides
        kind = str(self.group.stored(x)).removeprefix("torch.")
        return ((w, f"_refold_parts_{kind}"),) if self.parts == 2 else ()

    def _packed_late(self) -> Pack | None:
        """What the kernel packs itself unless it is given packed."""
        if not self.packs or self.narrow or not self.schedule.kernels.packs:
            return None
        if self.group.is_turned[0] or (self.is_batch and self._unaligned is None):
            return None
        return self.group.sides[0], "_refold_pack"

    @cached_property
    def is_direct(self) -> bool:
        """Whether some way takes the first side as it is: the kernel is never given it packed."""
        return any(way.direct for _, way in self._ways)

    @property
    def packs(self) -> bool:
        """Whether the kernel runs on tensor cores."""
        return not self.schedule.plain

    @property
    def sometimes_plain(self) -> bool:
        """Whether some sizes take the plain product: few rows do, where their number may vary."""
        varies = isinstance(self.group.rows, Sym) and not self.is_batch and not self.group.turned
        return self.schedule.plain or varies

    @cached_property
    def _ways(self) -> list[tuple[int | None, Schedule]]:
        """How a product on tensor cores is cut, by the most rows of which each way holds."""
        if not isinstance(self.group.rows, Sym) or self.is_batch:
            return [(None, self.schedule)]
        return by_rows(self.schedule, *self.hints, self._may_be_direct, self.pace)

    @property
    def _may_be_direct(self) -> bool:
        """Whether TMA can take the first side as it is, rows of fp32 that start at
        multiples of 16 bytes; a parameter is better packed once."""
        depth = dict(self.sizes())["depth"]
        if self.mode != "Ieee" or hint(depth) % 4 or (isinstance(depth, Sym) and not self.is_batch):
            return False
        return not (self.group.is_turned[0] or is_parametric(self.group.sides[0]))

    @cached_property
    def _unaligned(self) -> Schedule | None:
        """How a batch is cut at depths at which TMA cannot take the first side as it
        is, if there may be such a call."""
        if not self.schedule.direct or not isinstance(dict(self.sizes())["depth"], Sym):
            return None
        batches = hint(self.group.batches)
        return batch_schedule(self.kernels, batches, *self.hints, pace=self.pace)

    def _schedules(self) -> list[tuple[str, str]]:
        """(C++ condition, schedule) of each kernel that sizes may choose; the last one holds."""
        found = []
        if self.sometimes_plain:
            plain = "rf::Plain"
            if self.narrow is not None:
                weight = self.narrow if self.parts == 1 else "float"
                plain = f"rf::PlainOf<{self.narrow}, {weight}>"
            found.append((f"rows <= {FEW_ROWS}" if self.packs else "true", plain))
        if self._unaligned is not None:
            found.append(("depth % 4 != 0", self._unaligned.text(self.mode)))
        if self.packs:
            for limit, way in self._ways:
                condition = "true" if limit is None else f"rows <= {limit}"
                found.append((condition, way.text(self.mode)))
        return found

    def _choose(self, text: str) -> str:
        """C++: `text` with the schedule of the sizes at hand in the place of @."""
        *some, (_, last) = self._schedules()
        words = [f"{condition} ? {text.replace('@', s)}\n      : " for condition, s in some]
        return "".join(words) + text.replace("@", last)

    def asked(self, sizes: Sequence[str]) -> str:
        body = f"rf::{self.struct_name()}"  # depth: 0 if all is given packed
        given = ", ".join([*sizes[:3], "needs", *sizes[3:]])
        return self._choose(f"rf::matmul_needs<@, {body}>({given})")

    def run(self) -> str:
        text = self._choose("rf::matmul<@>(body, a_side, w_side, depth, work, on)")
        if not self.may_quantize:
            return text
        _, last = self._schedules()[-1]
        memory = "rf::Quantized(quantized, rows, width)"
        body = f"rf::Quantizing<rf::{self.struct_name()}>{{body, {memory}}}"
        called = f"rf::matmul<{last}>({body}, a_side, w_side, depth, work, on)"
        return f"quantized ? {called}\n      : {text}"

    # --- its sides --------------------------------------------------------------------------------
    def sides(self) -> tuple[list[tuple[str, str]], list[str]]:
        found = []
        packed = [node for node, _ in self.packings()]
        for node, name in zip(self.group.sides, ("a", "w"), strict=True):
            found.append((self.pointer(node), name))
            if node in packed and not (name == "a" and self.is_direct):
                found.append((f"{self.narrow or 'float'}*", f"{name}_packed"))
        of_a = self._side("a", "rows")
        of_w = self._side("w", "width * batches" if self.is_batch else "width")
        turned_a, turned_w = self.group.is_turned
        if turned_a:
            of_a = f"rf::turned({of_a}, rows{' / batches' if self.is_batch else ''})"
        if turned_w:
            of_w = f"rf::turned({of_w}, width)"
        if self.is_batch:
            of_w = f"rf::batch_of({of_w}, batches)"
        texts = (("a", of_a), ("w", of_w))
        return found, [f"  const rf::Side {side}_side = {text};" for side, text in texts]

    def _side(self, name: str, count: str) -> str:
        """C++ that describes one side of the product."""
        if self.narrow is None:
            if not self.packs:
                return f"rf::plain_side({name}, {count}, depth)"
            mode = f"rf::{self.accuracy}"
            if name == "a" and self.is_direct:
                return f"rf::packed_side<{mode}>(nullptr, a, rows, depth)"
            return f"rf::packed_side<{mode}>({name}_packed, {name}, {count}, depth)"
        if name == "a" or self.parts == 1:
            return f"rf::native_side({name}, {count}, depth)"
        if not self.packs:
            return f"rf::plain_side({name}, {count}, depth)"
        return f"rf::parts_side({name}_packed, {name}, {count}, depth)"

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        lines, sides = [], []
        copied = self.narrow and self.packs and self.schedule.kernels.copies_tiles
        for i, side in zip(self.group.sides, ("a", "w"), strict=True):
            name = scope.operands[i]
            sides.append(name)
            if (side == "a" and self.is_direct) or (copied and i not in scope.packed):
                # TMA reads from multiples of 16 bytes
                lines += [f"if {name}.data_ptr() % 16:", f"    {name} = {name}.clone()"]
            elif i in scope.packed:
                sides.append(scope.packed[i])
            elif any(i is node for node, _ in self.packings()):
                sides.append("0")
        return lines, sides

    def sizes_of_needs(self, scope: Scope) -> list[str]:
        texts = zip(self.given_sizes(scope.sizes), self.sizes(), strict=True)
        late = self._packs_late(scope)
        return ["0" if name == "depth" and not late else text for text, (name, _) in texts]

    def works_in_memory(self, scope: Scope) -> bool:
        # blocks share tiles by `splits`, or on Hopper where tiles are left over
        shares = self.packs and any(
            way.splits > 1 or way.kernels.shares_left_over for _, way in self._ways
        )
        return bool(self.reductions) or shares or self._packs_late(scope)

    def _packs_late(self, scope: Scope) -> bool:
        """Whether the kernel packs its first side itself."""
        late = self._packed_late()
        return late is not None and (self.is_direct or late[0] not in scope.packed)
