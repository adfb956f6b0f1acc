"""The C++ functions by which emitted Python packs the sides of products on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refold.families.matmul.cuda_kernel import mode_of
from refold.plan import Group
from refold.plan.product import PACKED, TRANSPOSED


def entries(groups: Iterable[Group], float32: str) -> Iterator[str]:
    """Those that some products need, of an accuracy."""
    forms = {form for g in groups if g.kernel is not None for _, form in g.kernel.packs}
    mode = mode_of(float32)
    if PACKED in forms:
        yield packing_text("packed_bytes", "pack", mode)
    if TRANSPOSED in forms:
        yield _TRANSPOSED.replace("@MODE@", mode)


def packing_text(bytes_name: str, name: str, mode: str) -> str:
    """A function that says how many bytes rows take packed, and one that packs them."""
    return _PACK.replace("@BYTES@", bytes_name).replace("@NAME@", name).replace("@MODE@", mode)


_PACK = """\
RF_FUNCTION(@BYTES@, (long rows, long depth), packed_bytes<@MODE@>(rows, depth))
RF_ON_STREAM(@NAME@, (float* x, float* packed, long rows, long depth),
    pack<@MODE@>(x, packed, rows, depth, on))
"""

_TRANSPOSED = """\
RF_FUNCTION(transposed_bytes, (long batches, long depth, long cols),
    transposed_bytes<@MODE@>(batches, depth, cols))
RF_ON_STREAM(pack_transposed, (float* x, float* packed, long batches, long depth, long cols),
    pack_transposed<@MODE@>(x, packed, batches, depth, cols, on))
"""
