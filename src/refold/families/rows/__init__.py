"""Passes over each row; a pass may use what the passes before it have reduced."""

from refold.families.family import Family
from refold.families.rows.claim import claim, grow
from refold.families.walk import made_at_hand

FAMILY = Family("rows", "rows", claim, grow, computes=made_at_hand)
