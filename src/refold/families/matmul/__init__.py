"""Products: rows of x with a weight, and what follows on each element of the result."""

from refold.families.family import Family
from refold.families.matmul.claim import claim, grow

FAMILY = Family("matmul", "matmul", claim, grow, whole=frozenset({"logsumexp"}))
