"""Reductions over the rows for each column, of each outer slice: batch statistics."""

from refold.families.columns.claim import claim, grow, reduced
from refold.families.family import Family

FAMILY = Family("columns", "columns", claim, grow, computes=reduced)
