"""Every row of the tables is proved, and so is every guard; false rules are refuted."""

import random
from collections import Counter

import pytest
import torch

from refold.rules import RULES, Rule
from refold.rules.match import allowed
from refold.rules.prove import Instance, draw_instance, prove, prove_guard, prove_marks

from .false_rules import FALSE
from .laws import fewer, further

FURTHER = further(RULES)
pytestmark = pytest.mark.filterwarnings("ignore:var\\(\\). degrees of freedom")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_sides_are_equal(rule: Rule, request: pytest.FixtureRequest) -> None:
    instances = None
    if fewer(request, rule, FURTHER):
        instances = 8
    elif rule.is_of_images and not request.config.getoption("--all"):
        # of 70 rules of images that are false 36 instances show 65, the 75 of `make test-all` 67
        instances = 36
    failure = prove(rule, instances=instances)
    assert failure is None, str(failure)


@pytest.mark.parametrize("rule", [r for r in RULES if r.where], ids=lambda r: r.name)
def test_guard_is_needed(rule: Rule) -> None:
    assert prove_guard(rule), f"{rule.name} holds without its guard: drop the guard"


MARKED = [r for r in RULES if any(h.nonnegative or h.nonpositive for h in r.holes.values())]


@pytest.mark.parametrize("rule", MARKED, ids=lambda r: r.name)
def test_sign_is_needed(rule: Rule) -> None:
    assert prove_marks(rule), f"{rule.name} holds for any sign: drop the mark"


@pytest.mark.parametrize("rule", FALSE, ids=lambda r: r.name)
def test_false_rule_is_refuted(rule: Rule) -> None:
    assert prove(rule, instances=60) is not None


def test_what_is_further_of_a_law() -> None:
    """Slices of a third and fourth function are one law; two rules written by hand are not."""
    assert {"slice-of-tanh", "slice-of-sigmoid"} & FURTHER
    assert not {"two-maps-as-one", "sum-of-scaled", "max-of-shifted"} & FURTHER
    assert 100 < len(FURTHER) < len(RULES) / 2 + 100


def test_names_are_unique() -> None:
    assert [n for n, k in Counter(r.name for r in RULES).items() if k > 1] == []


def test_tables_are_not_empty() -> None:
    assert len(RULES) > 300
    assert len(MARKED) > 5
    assert len(FALSE) > 20


@pytest.mark.parametrize("rule", RULES[::40], ids=lambda r: r.name)
def test_the_guard_before_the_data_takes_the_same_instances(rule):
    def drawn(guarded: bool) -> list[Instance]:
        draw = random.Random(rule.name)
        found = [draw_instance(rule, draw, guarded=guarded) for _ in range(300)]
        return [i for i in found if i is not None and allowed(rule, i.found)]

    before, behind = drawn(True), drawn(False)
    assert [i.found for i in before] == [i.found for i in behind]
    for a, b in zip(before, behind, strict=True):
        assert all(torch.equal(a.data[n], b.data[n]) for n in b.data)
