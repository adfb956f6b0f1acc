"""Rules that a comprehension makes of one law, each for another op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import pytest

from refold.rules import Rule

FIRST = 3  # of a law


def further(rules: Sequence[Rule]) -> set[str]:
    """The names of those that say of another op what three rules before them say.

    Neither rules of schemas, whose ops differ in more, nor those of images are among them.
    """
    seen: Counter[Hashable] = Counter()
    found = set()
    for rule in rules:
        sides = rule.lhs.__code__, rule.rhs.__code__
        law = *sides, rule.exact, rule.mark, rule.where and rule.where.__code__
        seen[law] += 1
        of_schema = "body" in sides[0].co_freevars
        if seen[law] > FIRST and not of_schema and not rule.is_of_images:
            found.add(rule.name)
    return found


def fewer(request: pytest.FixtureRequest, rule: Rule, names: set[str]) -> bool:
    """Does the shorter command try fewer instances of a rule?"""
    return rule.name in names and not request.config.getoption("--all")
