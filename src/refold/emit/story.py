"""The head of an emitted file: what it promises, and by which steps it was derived."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from refold.emit.held import held, own_bytes
from refold.engine import Step

if TYPE_CHECKING:
    from refold.emit.module import Emission

_WIDTH = 98  # of a line, behind the sign of a comment
_UNBROKEN = "\xa0"  # a space at which no line is broken


def story(emission: Emission) -> list[str]:
    """The lines, without the sign of a comment."""
    own = own_bytes(emission.module)
    lines = [f"{emission.title}."]
    if any(m.unsafe for m in emission.modes):
        lines.append(
            "Made with --unsafe: NaN that Model makes of finite or masked inputs may be lost."
        )
    explained: set[str] = set()
    taken: list[str] = []
    for mode in emission.modes:
        where = {"train": "In train mode", "eval": "In eval mode"}.get(mode.name, "In every mode")
        if mode.kept is not None:
            lines += _wrapped(f"{where} the original forward is kept: {mode.kept}.", "", "  ")
            continue
        lines.append(f"{where} ({_promise(mode.label)}):")
        for i, (first, formula) in enumerate(_steps(mode.steps, explained), 1):
            kept_whole = formula.replace(" ", _UNBROKEN)
            wrapped = _wrapped(f"{i}. {first} {kept_whole}".rstrip(), "  ", "     ")
            lines += [line.replace(_UNBROKEN, " ") for line in wrapped]
        if mode.accuracy:
            lines += _wrapped(f"{mode.accuracy[0].upper()}{mode.accuracy[1:]}.", "  ", "  ")
        kept = sum(h.size for h in held(mode.plan)) if mode.plan is not None else 0
        where = "" if mode.name == "both" else f" {where[0].lower()}{where[1:]}"
        taken += [f"{kept:,} bytes{where}"] if kept else []
    if taken:
        both = f"Folded and packed parameters take {', '.join(taken)} beside {own:,} of parameters."
        lines += _wrapped(both, "", "")
    return lines


def _steps(steps: Sequence[Step | str], explained: set[str]) -> Iterator[tuple[str, str]]:
    """A sentence for each rule, in the order in which they were first applied, and what the rule
    did then, if a line has room for that. explained: rules that need no sentence any more."""
    rules = Counter(s.rule for s in steps if isinstance(s, Step))
    seen: set[str] = set()
    for step in steps or ("nothing is rewritten",):
        if isinstance(step, str):
            yield step, ""
        elif step.rule not in seen:
            seen.add(step.rule)
            times = f", {rules[step.rule]} times" if rules[step.rule] > 1 else ""
            head = f"{step.rule} ({step.label}{times}):"
            known = step.rule in explained
            explained.add(step.rule)
            room = _WIDTH - 5 - (len(head) + 1 if known else 0)
            forms = (f for f in step.forms if len(f) <= room and _says_something(f))
            formula = next(forms, "")
            yield head if known and formula else f"{head} {step.why}", formula


def _says_something(formula: str) -> bool:
    """Whether there are names on both sides, and not only values that are left out."""
    return all(re.search("[a-z]", side) for side in formula.split("->"))


def _wrapped(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _promise(label: str) -> str:
    return {
        "bits": "identical arithmetic",
        "reals": "equal in the reals: sums and products are taken in another order",
        "finite": "equal for finite values",
    }[label]
