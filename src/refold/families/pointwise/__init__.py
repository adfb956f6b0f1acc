"""Pointwise values of one space, each element once."""

from refold.families.family import Family
from refold.families.pointwise.claim import claim, grow
from refold.families.walk import made_at_hand

FAMILY = Family("pointwise", "rows", claim, grow, computes=made_at_hand)
