"""The C++ functions by which emitted Python packs the kernels of convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refold.families.convolution.cuda_kernel import MODES
from refold.families.matmul.packing import packing_text
from refold.plan import Group
from refold.plan.convolution import CONVOLUTION


def entries(groups: Iterable[Group], float32: str) -> Iterator[str]:
    """Those that some convolutions need. float32: of products."""
    for kind in sorted({g.kernel.kind for g in groups if g.kernel is not None and g.kernel.packs}):
        form = CONVOLUTION + kind
        yield packing_text(f"{form}_bytes", form, MODES[kind])
