"""The shadow proof in float32: every row meets the bar, or carries a mark that it needs.

`python -m rules.test_shadow 60` in the folder tests tries 60 instances of each row instead of a
few, which takes minutes.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
import torch

from refold.rules import RULES, Rule
from refold.rules.rule import RuleError
from refold.rules.shadow import Loss, fits_float32, losses
from refold.rules.term import mean, sum

from .laws import fewer, further

pytestmark = pytest.mark.filterwarnings("ignore:var\\(\\). degrees of freedom")

FURTHER = further(RULES)
MARKED = [r for r in RULES if r.mark]
UNMARKED = [r for r in RULES if not r.mark]


def first(found: Iterator[Loss]) -> list[str]:
    return [str(loss) for loss in islice(found, 1)]


@pytest.mark.parametrize("rule", UNMARKED, ids=lambda r: r.name)
def test_unmarked_row_is_as_accurate(rule: Rule, request: pytest.FixtureRequest) -> None:
    # of the rows whose mark is needed 6 instances show 50 of 63, 12 show 54
    instances = 12 if request.config.getoption("--all") else 6
    if fewer(request, rule, FURTHER):
        instances = 2
    assert not first(losses(rule, marked=False, instances=instances))


@pytest.mark.parametrize("rule", MARKED, ids=lambda r: r.name)
def test_mark_is_needed(rule: Rule) -> None:
    tried = (first(losses(rule, marked=False, instances=30, seed=s)) for s in range(4))
    assert any(tried), f"{rule.name} loses nothing: drop the mark {rule.mark!r}"


@pytest.mark.parametrize("rule", [r for r in MARKED if r.mark != "unsafe" or r.safe])
def test_marked_row_is_as_accurate_where_it_is_safe(rule: Rule) -> None:
    assert not first(losses(rule, marked=True, instances=8))


# --- what the proof must find -------------------------------------------------------------------
def row(name: str) -> Rule:
    return next(r for r in RULES if r.name == name)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("shift-through-linear", "error"),
        ("mean-of-shifted", "error"),
        ("sum-of-difference", "error"),
        ("variance-of-scaled", "infinity"),
        ("scale-into-weight", "infinity"),
        ("divided-by-itself", "nan"),
        ("sum-of-softmax", "nan"),
    ],
)
def test_a_row_without_its_mark_is_found(name: str, what: str) -> None:
    bare = replace(row(name), mark=None, safe=None)
    found = (
        loss.what for s in range(4) for loss in losses(bare, marked=False, instances=20, seed=s)
    )
    assert what in found


def test_a_condition_that_allows_too_much_is_found() -> None:
    wrong = replace(row("mean-of-shifted"), safe=lambda x, b, axes: True)
    assert first(losses(wrong, marked=True, instances=60))


def test_a_worse_way_to_the_same_value_is_found() -> None:
    rule = Rule(
        "by-detour",
        "x @axes",
        lambda x, axes: mean(x, axes),
        lambda x, axes: mean((x + 4096.0) - 4096.0, axes),
        "reals",
        "The same value by a detour that costs twelve bits.",
    )
    assert first(losses(rule, marked=False))


def test_marks_are_declared_well() -> None:
    given = "named", "x @axes", lambda x, axes: sum(x, axes), lambda x, axes: x, "reals", "Why."
    with pytest.raises(RuleError, match="mark must be one of"):
        Rule(*given, mark="wrong")
    with pytest.raises(RuleError, match="give a mark"):
        Rule(*given, safe=lambda x, axes: True)


def test_what_fits_float32() -> None:

    def fits(*values: float) -> bool:
        return fits_float32(torch.tensor(values, dtype=torch.float64))

    assert fits() and fits(0.0) and fits(1.0, float("inf"), float("nan")) and fits(1.0, 1e-42)
    assert not fits(1e39, 1.0) and not fits(1e-42, 1e-39)


if __name__ == "__main__":
    for each in RULES:
        count = int(sys.argv[1]) * (2 if each.is_of_images else 1)
        for loss in losses(each, marked=bool(each.mark), instances=count, tries=200 * count):
            print(loss, flush=True)
