"""The text of kernels of columns (cpu/columns.h, cuda/columns.cuh)."""

from __future__ import annotations

from refold.codegen.kernel import Form, GroupKernel
from refold.families.column_results import finish_columns
from refold.ir import Dim, numel


def functor(kernel: GroupKernel) -> list[str]:
    lines = [f"using Monoids = {kernel.monoids(kernel.reductions)};"]
    for r in kernel.reductions:
        statements, texts = kernel.body.statements([r.source], {})
        lines += kernel.function(
            f"template <class V, class C> RF_FN V term(Step<{r.index}>, long row, C col)",
            [*statements, f"return {texts[r.source]};"],
        )
    return [*lines, *finish_columns(kernel, kernel.reductions, "long outer, ", "outer * width + ")]


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    dims, axes = kernel.group.dims, kernel.group.reductions[0]["axes"]
    count = numel(dims[a] for a in axes)
    outer = numel(dims[: min(a for a in axes if dims[a] != 1)])
    return [("outer", outer), ("count", count), ("width", kernel.group.width)]


FORM = Form(functor, sizes, "ColumnsBody", filled=lambda kernel: "count")
