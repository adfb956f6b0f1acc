"""Pointwise values of one space, each element once."""

from refold.codegen.cpp import Cpp
from refold.families.family import Family
from refold.families.pointwise.claim import claim, grow
from refold.families.pointwise.cuda_kernel import cuda
from refold.families.pointwise.images import lays_out
from refold.families.pointwise.kernel import FORM
from refold.families.pointwise.price import charges, price
from refold.families.pointwise.samples import SAMPLES
from refold.families.rows.schedules import schedule
from refold.families.walk import made_at_hand, overwrites

FAMILY = Family(
    name="pointwise",
    claim=claim,
    grow=grow,
    form=FORM,
    cpp=Cpp("rows.h", "rows({body}, rows, width)"),
    cuda=cuda,
    charges=charges,
    price=price,
    samples=SAMPLES,
    fusible_inputs=made_at_hand,
    overwrites=overwrites,
    lays_out=lays_out,
    schedule=schedule,
)
