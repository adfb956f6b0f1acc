"""The algebra: tables of rules, each proved in float64 by the row's own two sides."""

from refold.rules import (
    compose,
    conv,
    conv_compose,
    distribute,
    embedding,
    groups,
    largest,
    linear,
    nested,
    norm,
    pointwise,
    pools,
    reduce,
    reshape_permute,
    schemas,
    unit_axes,
)
from refold.rules.rule import EXACT, Exact, Rule, RuleError

# in the order in which the directed pass tries them
RULES: tuple[Rule, ...] = (
    *pointwise.RULES,
    *norm.RULES,
    *reduce.RULES,
    *distribute.RULES,
    *linear.RULES,
    *schemas.RULES,
    *nested.RULES,
    *groups.RULES,
    *compose.RULES,
    *conv.RULES,
    *conv_compose.RULES,
    *pools.RULES,
    *largest.RULES,
    *embedding.RULES,
    *reshape_permute.RULES,
    *unit_axes.RULES,
)

__all__ = ["EXACT", "RULES", "Exact", "Rule", "RuleError"]
