"""Pointwise values of one space, each element once."""

from refold.codegen.cpp import Cpp
from refold.families.family import Family
from refold.families.pointwise.claim import claim, grow
from refold.families.pointwise.kernel import FORM, cuda
from refold.families.rows.schedules import schedule
from refold.families.walk import made_at_hand, overwrites

FAMILY = Family(
    "pointwise",
    "rows",
    claim,
    grow,
    FORM,
    Cpp("rows.h", "rows(body, rows, width)"),
    cuda,
    computes=made_at_hand,
    overwrites=overwrites,
    schedule=schedule,
)
