"""The text of pointwise kernels: the functor of a walk over rows that has no pass."""

from __future__ import annotations

from refold.codegen.kernel import Form, GroupKernel
from refold.families.rows.kernel import BASE, functor
from refold.families.rows.kernel import sizes as of_rows
from refold.ir import Dim, numel


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    """One row, if each operand is whole or one number."""
    if all(o.kind in ("full", "scalar", "number") for o in kernel.body.operands):
        return [("rows", 1), ("width", numel(kernel.group.dims))]
    return of_rows(kernel)


FORM = Form(functor, sizes, BASE)
