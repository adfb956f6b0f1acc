"""A product for CUDA as text: its kernels by its sizes, and how its sides are given.

Which kernels, and in which form each side is read, the plan says (plan/product.py).
"""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.launch import Scope
from refold.codegen.names import at_commas
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
        lines += at_commas(f"using Schedules = BySize<{', '.join(self._schedules())}>;", 1, "")
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
    def _schedules(self) -> list[str]:
        """C++ of each kernel that sizes may choose, with the condition; the last one holds."""
        found = []
        if self.plan.sometimes_plain:
            plain = "Plain"
            if self.narrow is not None:
                weight = self.narrow if self.plan.parts == 1 else "float"
                plain = f"PlainOf<{self.narrow}, {weight}>"
            if self.plan.on_tensor_cores:
                plain = f"UpToRows<{SKINNY_ROWS}, {plain}>"
            found.append(plain)
        if self.plan.unaligned is not None:
            found.append(f"UnalignedDepth<{self.plan.unaligned.text(self.mode)}>")
        if self.plan.on_tensor_cores:
            for limit, schedule in self.plan.by_rows:
                text = schedule.text(self.mode)
                found.append(text if limit is None else f"UpToRows<{limit}, {text}>")
        return [text.replace("rf::", "") for text in found]

    def asked(self) -> str:
        kind = "batch" if self.is_batch else "matmul"  # depth: 0 if all is given packed
        return f"{kind}_workspace_size<{self.struct_name()}>"

    def run(self) -> str:
        sides = self._sides()
        text = f"rf::matmul({self.sized()}, rows, {sides}, depth, work, on)"
        if not self.may_quantize:
            return text
        last = self._schedules()[-1]
        body = f"quantizing({self.sized()}, quantized, rows)"
        return f"quantized ? rf::matmul<{last}>({body}, {sides}, depth, work, on) : {text}"

    # --- its sides --------------------------------------------------------------------------------
    def sides(self) -> list[tuple[str, str]]:
        found = []
        packed = [node for node, _ in self.plan.packs]
        for node, name in zip(self.group.sides, ("a", "w"), strict=True):
            unsplit = name == "a" and self.plan.is_direct
            if self.narrow is None and self.plan.on_tensor_cores:
                found.append((f"{'Unsplit' if unsplit else 'Packed'}<{self.mode}>", name))
                continue
            found.append((self.pointer(node), name))
            if node in packed and not unsplit:
                found.append((f"{self.narrow or 'float'}*", f"{name}_packed"))
        return found

    def _sides(self) -> str:
        """C++ that describes both sides."""
        of_a = self._side("a", "rows")
        of_w = self._side("w", "width * batches" if self.is_batch else "width")
        transposed_a, transposed_w = self.group.is_transposed
        if transposed_a:
            of_a = f"transposed({of_a}, rows{' / batches' if self.is_batch else ''})"
        if transposed_w:
            of_w = f"transposed({of_w}, width)"
        if self.is_batch:
            of_w = f"batch_of({of_w}, batches)"
        return f"{of_a}, {of_w}"

    def _side(self, name: str, count: str) -> str:
        """C++ that describes one side of the product."""
        if self.narrow is None:
            if not self.plan.on_tensor_cores:
                return f"plain_operand({name}, {count}, depth)"
            return f"{name}({count}, depth)"
        if name == "a" or self.plan.parts == 1:
            return f"native_operand({name}, {count}, depth)"
        if not self.plan.on_tensor_cores:
            return f"plain_operand({name}, {count}, depth)"
        return f"hi_lo_operand({name}_packed, {name}, {count}, depth)"

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

    @property
    def may_work_in_memory(self) -> bool:
        return bool(self.reductions) or self.plan.shares_tiles or self.plan.itself is not None

    def _packs_late(self, scope: Scope) -> bool:
        """Whether the kernel packs its first side itself."""
        itself = self.plan.itself
        return itself is not None and (self.plan.is_direct or itself[0] not in scope.packed)
