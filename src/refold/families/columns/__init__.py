"""Reductions over the rows for each column, of each outer slice: batch statistics."""

from refold.codegen.cpp import Cpp
from refold.families.columns.claim import claim, grow, reduced
from refold.families.columns.cuda_kernel import ColumnsKernel
from refold.families.columns.kernel import FORM
from refold.families.columns.price import charges, price
from refold.families.columns.samples import SAMPLES
from refold.families.family import Family

FAMILY = Family(
    name="columns",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp("columns.h", "columns({body}, outer, count, width)", 9),
    cuda=ColumnsKernel,
    charges=charges,
    price=price,
    samples=SAMPLES,
    fusible_inputs=reduced,
)
