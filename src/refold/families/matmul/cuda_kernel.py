"""A product for CUDA as text: its kernels by its sizes, and how its sides are given.

Which kernels, and in which form each side is read, the plan says (plan/product.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.launch import Scope
from refold.families.matmul.kernel import FORM, reductions_down
from refold.ir import OPS, Dim, Kind
from refold.ir.literals import CPP_TYPES
from refold.plan import Group
from refold.plan.product import ProductKernel
from refold.schedule import SKINNY_ROWS

# of an epilogue, in multiply-adds an element: up to so many, an unrolled loop of it is small
_LIGHT = 6.0


def mode_of(kind: str) -> str:
    """The C++ type that stands for the arithmetic of a kind of products of float32."""
    return {"ieee": "Ieee", "tf32": "Tf32"}[kind]


class CudaProduct(CudaKernel):
    """A product with its epilogue. plan: what is decided of it."""

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)
        self.plan = planned(group, group.kernel, ProductKernel)
        x = group.stored(group.sides[0])
        self.narrow = f"rf::{CPP_TYPES[x]}" if self.plan.is_narrow else None

    def headers(self) -> list[str]:
        narrow = ["narrow.cuh"] if self.group.has_narrow else []
        narrow += ["native.cuh"] if self.narrow else []
        cores = self.plan.on_tensor_cores
        tensor = ["packed.cuh", self.plan.schedule.kernels.header] if cores else []
        tensor += ["hi_lo_split_columns.cuh"] if self.group.transposed else []
        tensor += ["mainloop_rs_sm90.cuh"] if cores and self.plan.is_direct else []
        plain = ["packed.cuh", "launch_plain.cuh"] if self.plan.sometimes_plain else []
        finish = ["finalize.cuh"] if self.reductions else []
        finish += ["quantized_store.cuh"] if self.may_quantize else []
        return [*narrow, *tensor, *plain, *finish]

    def functor(self) -> list[str]:
        epilogue = [n for n in self.group.nodes if OPS[n.op].kind is Kind.POINTWISE]
        work = sum(n.row.flops.in_a_loop for n in epilogue if n not in self.group.column_results)
        lines = super().functor()
        if work > _LIGHT:
            lines.append("static constexpr bool kLight = false;")
        along = [o for o in self.body.pointers() if self.body.is_along_width(o)]
        reads = [o.member for o in along if o.kind != "column"]
        asked = [*reads, *map(self.member, self.full_outputs())]
        if self.is_batch:
            lines.append("static constexpr bool kBatched = true;")
        if reads:
            lines.append(f"static constexpr int kReads = {len(reads)};")
        if asked:
            pairs = " && ".join(f"rf::in_pairs({member}, width)" for member in asked)
            lines += self.function("RF_FN bool in_pairs()", [f"return {pairs};"])
        if self.may_quantize:
            moments = [
                r.monoid == "Moments" and r.source is self.group.value
                for r in reductions_down(self)
            ]
            lines.append(f"static constexpr int kQuantized = {moments.index(True)};")
        return lines

    @property
    def may_quantize(self) -> bool:
        return self.plan.quantized_from is not None

    @property
    def is_batch(self) -> bool:
        """Whether it is of several products, each with a weight of its own."""
        return self.group.batches != 1

    def sizes(self) -> list[tuple[str, Dim]]:
        return [*super().sizes(), *([("batches", self.group.batches)] if self.is_batch else [])]

    @property
    def mode(self) -> str:
        """The C++ type of the product's arithmetic."""
        if self.narrow is None:
            return mode_of(self.plan.kind)
        return f"Native<{self.narrow}{', 2' if self.plan.parts == 2 else ''}>"

    # --- which kernels ----------------------------------------------------------------------------
    def _schedules(self) -> list[tuple[str, str]]:
        """(C++ condition, schedule) of each kernel that sizes may choose; the last one holds."""
        found = []
        if self.plan.sometimes_plain:
            plain = "rf::Plain"
            if self.narrow is not None:
                weight = self.narrow if self.plan.parts == 1 else "float"
                plain = f"rf::PlainOf<{self.narrow}, {weight}>"
            found.append((f"rows <= {SKINNY_ROWS}" if self.plan.on_tensor_cores else "true", plain))
        if self.plan.unaligned is not None:
            found.append(("depth % 4 != 0", self.plan.unaligned.text(self.mode)))
        if self.plan.on_tensor_cores:
            for limit, schedule in self.plan.by_rows:
                condition = "true" if limit is None else f"rows <= {limit}"
                found.append((condition, schedule.text(self.mode)))
        return found

    def _choose(self, text: str) -> str:
        """C++: `text` with the schedule of the sizes at hand in the place of @."""
        *some, (_, last) = self._schedules()
        words = [f"{condition} ? {text.replace('@', s)}\n      : " for condition, s in some]
        return "".join(words) + text.replace("@", last)

    def asked(self, sizes: Sequence[str]) -> str:
        body = f"rf::{self.struct_name()}"  # depth: 0 if all is given packed
        given = ", ".join([*sizes[:3], "size", *sizes[3:]])
        return self._choose(f"rf::matmul_workspace_size<@, {body}>({given})")

    def run(self) -> str:
        text = self._choose("rf::matmul<@>(body, a_operand, w_operand, depth, work, on)")
        if not self.may_quantize:
            return text
        _, last = self._schedules()[-1]
        memory = "rf::Quantized(quantized, rows, width)"
        body = f"rf::Quantizing<rf::{self.struct_name()}>{{body, {memory}}}"
        called = f"rf::matmul<{last}>({body}, a_operand, w_operand, depth, work, on)"
        return f"quantized ? {called}\n      : {text}"

    # --- its sides --------------------------------------------------------------------------------
    def sides(self) -> tuple[list[tuple[str, str]], list[str]]:
        found = []
        packed = [node for node, _ in self.plan.packs]
        for node, name in zip(self.group.sides, ("a", "w"), strict=True):
            found.append((self.pointer(node), name))
            if node in packed and not (name == "a" and self.plan.is_direct):
                found.append((f"{self.narrow or 'float'}*", f"{name}_packed"))
        of_a = self._side("a", "rows")
        of_w = self._side("w", "width * batches" if self.is_batch else "width")
        transposed_a, transposed_w = self.group.is_transposed
        if transposed_a:
            of_a = f"rf::transposed({of_a}, rows{' / batches' if self.is_batch else ''})"
        if transposed_w:
            of_w = f"rf::transposed({of_w}, width)"
        if self.is_batch:
            of_w = f"rf::batch_of({of_w}, batches)"
        texts = (("a", of_a), ("w", of_w))
        return found, [f"  const rf::Operand {side}_operand = {text};" for side, text in texts]

    def _side(self, name: str, count: str) -> str:
        """C++ that describes one side of the product."""
        if self.narrow is None:
            if not self.plan.on_tensor_cores:
                return f"rf::plain_operand({name}, {count}, depth)"
            mode = f"rf::{self.mode}"
            if name == "a" and self.plan.is_direct:
                return f"rf::packed_operand<{mode}>(nullptr, a, rows, depth)"
            return f"rf::packed_operand<{mode}>({name}_packed, {name}, {count}, depth)"
        if name == "a" or self.plan.parts == 1:
            return f"rf::native_operand({name}, {count}, depth)"
        if not self.plan.on_tensor_cores:
            return f"rf::plain_operand({name}, {count}, depth)"
        return f"rf::hi_lo_operand({name}_packed, {name}, {count}, depth)"

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        lines, sides = [], []
        cores = self.plan.on_tensor_cores
        copied = self.narrow and cores and self.plan.schedule.kernels.copies_tiles
        for i, side in zip(self.group.sides, ("a", "w"), strict=True):
            name = scope.operands[i]
            sides.append(name)
            if (side == "a" and self.plan.is_direct) or (copied and i not in scope.packed):
                # TMA reads from multiples of 16 bytes
                lines += [f"if {name}.data_ptr() % 16:", f"    {name} = {name}.clone()"]
            elif i in scope.packed:
                sides.append(scope.packed[i])
            elif any(i is node for node, _ in self.plan.packs):
                sides.append("0")
        return lines, sides

    def sizes_of_needs(self, scope: Scope) -> list[str]:
        texts = zip(self.given_sizes(scope.sizes), self.sizes(), strict=True)
        late = self._packs_late(scope)
        return ["0" if name == "depth" and not late else text for text, (name, _) in texts]

    def works_in_memory(self, scope: Scope) -> bool:
        return bool(self.reductions) or self.plan.shares_tiles or self._packs_late(scope)

    def _packs_late(self, scope: Scope) -> bool:
        """Whether the kernel packs its first side itself."""
        itself = self.plan.itself
        return itself is not None and (self.plan.is_direct or itself[0] not in scope.packed)
