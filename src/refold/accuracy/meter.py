"""Rewrite until the bar is met: which rule costs accuracy, and what is left without it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from refold.accuracy.errors import (
    FACTOR,
    FACTOR_TF32,
    Found,
    another_function,
    error_of,
    inaccurate,
    measure,
    ratio_of,
    words,
)
from refold.accuracy.samples import Sample, Samples, Unmeasured, first_line, samples_of
from refold.capture import Captured, Example
from refold.engine import Ban, Optimized
from refold.ir import Graph, Node
from refold.ir.graph import is_parametric
from refold.ir.rounded import run_exact, run_rounded
from refold.rules import Rule

TRIES = 6  # how many steps are tried without when the bar is not met
BANS = 4  # how many are banned one by one


@dataclass(frozen=True)
class Accuracy:
    """What was measured.

    ratio: the largest of rewritten over eager errors (each plus half a unit in the last place), on
    `where`. banned: the rules of which a step, or all, were given up for it. skipped:
    why nothing was measured, or None.
    """

    ratio: float = 0.0
    where: str = ""
    banned: tuple[str, ...] = ()
    skipped: str | None = None

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"accuracy was not measured: {self.skipped}"
        text = f"error against float64: {self.ratio:.2g} of eager's at most ({self.where})"
        if self.banned:
            text += f"; for accuracy's sake without {', '.join(self.banned)}"
        return text


Rewriting = Callable[[Sequence[Ban]], Optimized]  # rewrites a graph without some steps


class Inaccurate(Exception):
    """No derivation meets the bar; the text is the reason."""


class Meter:
    """Measures rewritings of one captured graph.

    graph: the captured one, its 16-bit arithmetic made plain. module: in any mode; it is called in
    the captured one, and left as it was.
    """

    def __init__(
        self, module: torch.nn.Module, example: Example, captured: Captured, graph: Graph
    ) -> None:
        self.banned: list[Ban] = []
        self.inaccurate: str | None = None  # empty: it is not; None: nobody has looked
        self.samples: Samples | None = None
        self.skipped = ""
        on_gpu = any(isinstance(v, torch.Tensor) and v.is_cuda for v in example.leaves())
        tf32 = on_gpu and torch.get_float32_matmul_precision() != "highest"
        self.bar = FACTOR_TF32 if tf32 else FACTOR
        try:
            self.samples = samples_of(module, example, captured, graph)
        except Unmeasured as reason:
            self.skipped = str(reason)

    def again(self) -> Meter:
        """For rewritings from the start, with what eager makes of the samples as it is known."""
        other = copy.copy(self)
        other.banned = []
        return other

    def accurate(self, rewrite: Rewriting) -> tuple[Optimized, Accuracy]:
        """The first rewriting that meets the bar, and what was measured.

        What was banned stays banned
        for the next call. Raises Inaccurate where the graph as captured fails already.
        """
        if self.samples is not None and self.inaccurate is None:
            self.inaccurate = another_function(self.samples) or inaccurate(self.samples) or ""
        if self.inaccurate:
            raise Inaccurate(self.inaccurate)
        done = rewrite(self.banned)
        if self.samples is None:
            return done, Accuracy(skipped=self.skipped)
        try:
            found = measure(self.samples, done.graph, self.bar)
        except (NotImplementedError, RuntimeError) as error:  # out of memory, above all
            return done, Accuracy(skipped=first_line(error))
        while found.failed is not None:
            done, found = self._without_one(rewrite, done, found)
        return done, Accuracy(found.ratio, words(found.where), self._names())

    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self.banned))

    def _without_one(
        self, rewrite: Rewriting, done: Optimized, found: Found
    ) -> tuple[Optimized, Found]:
        """Ban the step without which the bar is met, or else the one that costs most accuracy."""
        assert self.samples is not None and found.failed is not None
        best: tuple[float, Ban, Optimized, Found] | None = None
        bans = suspects(found.failed, done)
        for ban in bans[:TRIES] if len(self.banned) < BANS else ():
            other = rewrite([*self.banned, ban])
            measured = measure(self.samples, other.graph, self.bar)
            if measured.failed is None:
                self.banned.append(ban)
                return other, measured
            if best is None or measured.ratio < best[0]:
                best = measured.ratio, ban, other, measured
        if best is not None and best[0] < 0.9 * found.ratio:
            self.banned.append(best[1])
            return best[2], best[3]
        # no rule stands out: those that may cancel go together, and then all that round
        rest = {r.rule.name for r in done.rewrites if r.rule.mark == "cancels"}
        rest = rest or {r.rule.name for r in done.rewrites if r.rule.exact != "bits"}
        if not rest:
            return done, Found(found.ratio, found.where)  # as accurate as the graph as captured
        self.banned += [(name, None) for name in sorted(rest)]
        other = rewrite(self.banned)
        return other, measure(self.samples, other.graph, self.bar)


def suspects(sample: Sample, done: Optimized) -> list[Ban]:
    """The steps that may have cost accuracy: those of marked rules first, then by what each loses
    on the sample."""
    steps = list(_steps(done))
    given = sample.leaves, sample.sizes
    try:
        truth = run_exact([before for _, before, _ in steps], *given)
        old = run_rounded([before for _, before, _ in steps], *given)
        new = run_rounded([after for _, _, after in steps], *given, {})
    except (NotImplementedError, KeyError, RuntimeError):
        return list(dict.fromkeys((rule.name, before) for rule, before, _ in steps))
    found: dict[Ban, tuple[bool, float]] = {}
    for rule, before, after in steps:
        one = error_of(old[before], new[after].reshape(old[before].shape), truth[before])
        found[rule.name, before] = rule.mark == "cancels", ratio_of([[one]])
    return sorted(found, key=lambda ban: found[ban], reverse=True)


def _steps(done: Optimized) -> Iterator[tuple[Rule, Node, Node]]:
    memo: dict[Node, bool] = {}
    for r in done.rewrites:
        if r.rule.exact != "bits" and r.before.is_float and not is_parametric(r.before, memo):
            yield r.rule, r.before, r.after
