"""A target whose kernels are PyTorch: emitted modules without a compiler.

Each group is the op table's meaning of its nodes, in order, on values padded to rank 5. What the
tests of random models so run is all of the emitted file but the C++ text.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.launch import Launch, Scope
from refold.codegen.text import shape_text
from refold.emit.guards import Refusal
from refold.emit.source import Source
from refold.ir import OPS, Node, Sym
from refold.ir.shapes import RANK
from refold.plan import Group
from refold.plan.memory import source


class TorchTarget:
    name = "cpu"
    device = "cpu"
    empty = "_refold_empty"

    def launch(self, group: Group, name: str) -> Launch:
        return lambda scope: _statements(group, scope)

    def text(self, group: Group, name: str) -> str:
        return str(id(group))  # none is another's

    def source(self, groups: Sequence[tuple[str, Group]], alone: bool) -> Source:
        return Source("", "")

    def build(self, groups: Sequence[tuple[str, Group]], source: Source) -> str:
        return _STAND_IN

    def guards(self, names: Sequence[str]) -> list[str]:
        return []

    def flags(self, groups) -> list[Refusal]:
        return []

    def prologue(self, prepared: bool, allocates: bool, alone: bool, device: str) -> list[str]:
        return []


def _statements(group: Group, scope: Scope) -> list[str]:
    texts: dict[Node, str] = {}
    lines = []
    for i, node in enumerate(group.inputs):
        if node.op == "scalar":
            value = node["value"]
            number = value.text(scope.sizes) if isinstance(value, Sym) else repr(value)
            texts[node] = f"torch.full({(1,) * RANK}, {number}, dtype={node.dtype})"
        else:
            shape = shape_text(node.shape, scope.sizes)
            lies = ""
            if node in group.channels_last:
                last = "channels_last" if group.images == 2 else "channels_last_3d"
                lies = f"memory_format=torch.{last}"
            assert_text = f"assert {scope.operands[node]}.is_contiguous({lies})"
            lines.append(assert_text)
            begins = ""
            if node.op == "slice":  # it may begin where the whole does, and is read by its address
                begins = f".flatten()[:__import__('math').prod({shape})]"
            lines.append(f"rf_i{i} = {scope.operands[node]}{begins}.reshape({shape})")
            wide = f".to({node.dtype})" if group.stored(node) != node.dtype else ""
            texts[node] = f"rf_i{i}{wide}"
    for i, node in enumerate(group.nodes):
        # a product widens its sides for itself
        read = []
        for n in node.inputs:
            if n in group.transposed and node.op == "linear":
                read.append(f"{texts[n.inputs[0]]}.mT")
            else:
                read.append(texts[n] if n in texts else f"{texts[source(n)]}.to({n.dtype})")
        row, attrs = OPS[node.op], dict(node.attrs)
        shape = ""
        if row.operand_ranks is not None:  # PyTorch's function takes images of their own rank
            ranks = row.operand_ranks(attrs)
            read = [f"{t}.flatten(0, -{r})" if r else t for t, r in zip(read, ranks, strict=True)]
            if (
                row.is_contraction
            ):  # a convolution's bias has one axis, and a number for each feature
                features = shape_text(node.shape[-len(attrs["strides"]) - 1 :][:1], scope.sizes)
                read[2] = f"{read[2]}.flatten().expand({features})"
            shape = f".reshape({shape_text(node.shape, scope.sizes)})"
        lines.append(f"rf_n{i} = {row.torch_text(read, attrs)}{shape}")
        texts[node] = f"rf_n{i}"
    for out in group.outputs:
        lines.append(
            f"{scope.results[out]}.data.copy_({texts[out]}.reshape({scope.results[out]}.shape))"
        )
    for value, state in group.counters:
        lines.append(f"{scope.operands[state]}.data.add_({value.inputs[1]['value']})")
    return lines


_STAND_IN = """\
class _refold_kernels:
    @staticmethod
    def watch(*things):
        return bytearray()

    @staticmethod
    def unchanged(*watched):
        return False

    @staticmethod
    def look(*tables):
        pass

    @staticmethod
    def altered(memory):
        return 0

    @staticmethod
    def written(memory):
        return 0

    @staticmethod
    def differing(before, after):
        return None


def _refold_build():
    global _REFOLD_FREE
    _REFOLD_FREE = inf  # each call is a change to `unchanged`, which puts nothing off here
    return _refold_kernels, None


_refold_empty = torch._C._dynamo.guards._empty_strided_cpu
inf, nan = float("inf"), float("nan")


def _refold_pack(x):
    # a plan for a GPU has products read sides packed; PyTorch reads them as they are
    return x


_refold_pack_transposed = _refold_hi_lo_float16 = _refold_hi_lo_bfloat16 = _refold_pack


def _refold_unsupported_device(device):
    return None


def _refold_folds_ready(cache):
    pass
"""
