"""Values in 16 bits between two kernels (planner/quantize.py), in emitted Python."""

from __future__ import annotations

from collections.abc import Mapping

from refold.ir import Dim, Sym
from refold.plan.plan import Group


def memory(product: Group, least: int, empty: str, sizes: Mapping[str, str]) -> str:
    """Memory for the product's value, or 0 where it has few rows: codes, and for each block of rows
    a centre and a step of each column (kernels/cuda/quantized.cuh). least: from how many rows on
    there are any."""
    rows, width = _factor(product.rows, sizes), _factor(product.width, sizes)
    words = f"({rows} * {width} + 7) // 8 * 4 + ({rows} + 127) // 128 * {width} * 2"
    some = f"{empty}(({words},), (1,), torch.float32)"
    return f"{some} if {rows} >= {least} else 0"


def _factor(dim: Dim, sizes: Mapping[str, str]) -> str:
    text = dim.text(sizes) if isinstance(dim, Sym) else str(dim)
    return f"({text})" if "+" in text else text
