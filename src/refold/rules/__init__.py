"""The algebra: tables of rules, each proved in float64 by the row's own two sides."""

from refold.rules import (
    apart,
    conv,
    embedding,
    largest,
    linear,
    maps,
    move,
    norm,
    pointwise,
    pools,
    reduce,
    schemas,
    space,
)
from refold.rules.rule import EXACT, Exact, Rule, RuleError

# in the order in which the directed pass tries them
RULES: tuple[Rule, ...] = (
    *pointwise.RULES,
    *norm.RULES,
    *reduce.RULES,
    *apart.RULES,
    *linear.RULES,
    *schemas.RULES,
    *maps.RULES,
    *conv.RULES,
    *pools.RULES,
    *largest.RULES,
    *embedding.RULES,
    *move.RULES,
    *space.RULES,
)

__all__ = ["EXACT", "RULES", "Exact", "Rule", "RuleError"]
