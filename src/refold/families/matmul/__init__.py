"""Products: rows of x with a weight, and what follows on each element of the result."""

from refold.families.family import Family
from refold.families.matmul.claim import claim, grow
from refold.families.matmul.schedules import schedule, to_tune

FAMILY = Family("matmul", "matmul", claim, grow, whole=frozenset({"logsumexp"}), schedule=schedule)

__all__ = ["FAMILY", "to_tune"]
