"""Prove a rule: run its two sides in float64 on many random instances and compare.

Instances that the left side's ops do not take, or that the guard refuses, are drawn again
(instances.py); a proof that compared too few says so and fails.

A guard is proved too: without it, some instance must fail. A guard that may be dropped is useless.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from refold.ir import Node
from refold.ir.evaluate import run
from refold.rules.instances import F64, SPATIAL_RANKS, Instance, as_terms, draw_instance
from refold.rules.match import arguments
from refold.rules.rule import Rule

SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0], dtype=F64)


@dataclass(frozen=True)
class Failure:
    """An instance on which the two sides differ."""

    rule: str
    reason: str
    shapes: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason} at {self.shapes}"


class ProofError(Exception):
    """Too few instances satisfy the left side and the guard, so nothing was shown."""


def prove(
    rule: Rule, *, seed: int = 0, instances: int | None = None, tries: int = 15000
) -> Failure | None:
    """The first instance that refutes `rule`, or None after `instances` that agree.

    These are 25 unless given, and as many for each number of spatial axes that images can have.
    Raises ProofError where fewer can be drawn in `tries` attempts.
    """
    draw = random.Random(f"{rule.name} {seed}")
    compared = 0
    instances = instances or 25 * (len(SPATIAL_RANKS) if rule.is_of_images else 1)
    for _ in range(tries):
        if compared >= instances:
            return None
        instance = draw_instance(rule, draw)
        if instance is None:
            continue
        outcome = _compare(rule, instance, draw)
        if isinstance(outcome, Failure):
            return outcome
        compared += outcome
    raise ProofError(
        f"{rule.name}: expected {instances} instances, {compared} of {tries} draws satisfy its left"
        " side and guard; give the variables sizes, or the guard less to ask"
    )


def unguarded(rule: Rule) -> Rule:
    """The same rule without its guard: a proof of it must fail."""
    return replace(rule, where=None)


def prove_guard(rule: Rule) -> bool:
    """Does the rule fail without its guard, as it must?"""
    return rule.where is None or _refuted(unguarded(rule))


def prove_marks(rule: Rule) -> bool:
    """Does the rule fail where a value may have any sign, if it asks for one?"""
    names = [h.name for h in rule.holes.values() if h.nonnegative or h.nonpositive]
    return all(_refuted(_unmarked(rule, name)) for name in names)


def _unmarked(rule: Rule, name: str) -> Rule:
    words = [w.rstrip("+-") if w.startswith(name) else w for w in rule.signature.split()]
    return replace(rule, signature=" ".join(words))


def _refuted(rule: Rule) -> bool:
    for seed in range(8):
        try:
            if prove(rule, seed=seed, instances=60) is not None:
                return True
        except ProofError:
            continue
    return False


# --- comparing ----------------------------------------------------------------------------------
def _compare(rule: Rule, instance: Instance, draw: random.Random) -> Failure | int:
    """A failure, or 1 where something was compared and 0 where the left side is all NaN."""
    shapes = {
        k: (v.op if v.op == "scalar" else v.shape) if isinstance(v, Node) else v
        for k, v in instance.found.items()
    }
    left = [t.node for t in as_terms(rule.lhs(**arguments(rule, instance.found)))]
    try:
        right = [t.node for t in as_terms(rule.rhs(**arguments(rule, instance.found)))]
        if [n.shape for n in left] != [n.shape for n in right]:
            return Failure(rule.name, "the sides have different shapes", shapes)
        done = run([*left, *right], instance.data, {}, F64)
    except (ValueError, RuntimeError, IndexError, TypeError) as error:
        return Failure(rule.name, f"the right side does not exist: {error}", shapes)
    compared = 0
    for a, b in zip(left, right, strict=True):
        reason = _differ(rule, done[a], done[b])
        if reason:
            return Failure(rule.name, reason, shapes)
        compared |= int(bool(done[a].isfinite().any()))
    infinite = [done[n].isinf() for n in right]
    reason = _special(rule, instance, left, right, infinite, draw)
    return Failure(rule.name, reason, shapes) if reason else compared


def _special(
    rule: Rule,
    instance: Instance,
    left: list[Node],
    right: list[Node],
    infinite: list[torch.Tensor],
    draw: random.Random,
) -> str:
    """NaN and infinities: `bits` must be bitwise, `reals` must be NaN where the left side is.

    infinite: where the right side is of itself, after a division by zero: there, too, what is left
    of infinities of both signs is a matter of order.
    """
    if rule.exact == "finite" or not instance.data:
        return ""
    # sums of infinities of both signs depend on their order, so `reals` is tried with NaN alone
    values = SPECIAL if rule.exact == "bits" else SPECIAL[:1]
    data = {}
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    for node, tensor in instance.data.items():
        if not node.is_float:
            data[node] = tensor
            continue
        mask = torch.rand(tensor.shape, generator=generator) < 0.2
        special = values[torch.randint(len(values), tensor.shape, generator=generator)]
        data[node] = torch.where(mask, special, tensor)
    done = run([*left, *right], data, {}, F64)
    for a, b, unknown in zip(left, right, infinite, strict=True):
        x, y = done[a], done[b]
        if rule.exact == "bits":
            reason = _differ(rule, x, y)
        else:
            reason = "NaN is lost" if (x.isnan() & ~y.isnan() & ~unknown).any() else ""
        if reason:
            return reason
    return ""


def _differ(rule: Rule, x: torch.Tensor, y: torch.Tensor) -> str:
    if rule.exact == "bits":
        same = ((x == y) & (x.signbit() == y.signbit())) | (x.isnan() & y.isnan())
        return "" if bool(same.all()) else "bits differ"
    # where the left side is no number, values promise nothing; `_special` looks at NaN
    a, b = x.numpy(), y.numpy()
    known = np.isfinite(a)
    if not known.all():
        a, b = a[known], b[known]
    scale = float(np.abs(a).max()) if a.size else 0.0
    return "" if (np.abs(a - b) <= 1e-9 * (1 + scale)).all() else "values differ"


__all__ = [
    "Failure",
    "Instance",
    "ProofError",
    "as_terms",
    "draw_instance",
    "prove",
    "prove_guard",
    "prove_marks",
    "unguarded",
]
