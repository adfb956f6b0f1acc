"""Passes over each row; a pass may use what the passes before it have reduced."""

from refold.codegen.cpp import Cpp
from refold.families.family import Family
from refold.families.rows.claim import claim, grow
from refold.families.rows.cuda_kernel import RowsKernel
from refold.families.rows.kernel import FORM
from refold.families.rows.price import charges, price
from refold.families.rows.samples import SAMPLES
from refold.families.rows.schedules import schedule
from refold.families.walk import made_at_hand, overwrites

FAMILY = Family(
    name="rows",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp("rows.h", "rows({body}, rows, width)"),
    cuda=RowsKernel,
    charges=charges,
    price=price,
    samples=SAMPLES,
    fusible_inputs=made_at_hand,
    overwrites=overwrites,
    schedule=schedule,
)
