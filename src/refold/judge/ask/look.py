"""What the pages of refold have in common: how they are rendered, bars with a spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup, escape

LARGEST = 300_000  # bytes of a page


@dataclass(frozen=True)
class Bar:
    """One line of a chart: a value with its spread, in per cent of the chart's width.

    told: the value in words. ours: drawn in another colour. mark: where a dashed line stands.
    """

    name: str
    low: float
    middle: float
    high: float
    told: str
    ours: bool = False
    mark: float | None = None


def bars(
    rows: Sequence[tuple[str, float, float, float, str, bool]], mark: float | None = None
) -> list[Bar]:
    """Rows of (name, low, middle, high, told, ours) on one scale, which is logarithmic; all values
    are above zero. mark: a value at which a dashed line stands."""
    values = [v for row in rows for v in row[1:4]] + ([mark] if mark else [])
    if not values:
        return []
    least, most = math.log(min(values)), math.log(max(values))
    wide = max(most - least, math.log(1.2))
    least -= 0.06 * wide
    wide *= 1.12

    def at(value: float) -> float:
        return min(99.0, max(0.0, 100 * (math.log(value) - least) / wide))

    line = at(mark) if mark else None
    return [Bar(n, at(a), at(b), at(c), told, ours, line) for n, a, b, c, told, ours in rows]


def breakable(name: str) -> Markup:
    """A name that may be broken behind its underscores and slashes."""
    text = escape(name)
    for at in "_/":
        text = text.replace(at, Markup(f"{at}<wbr>"))
    return text


def number(value: float) -> str:
    """Three figures, without an exponent as long as anybody would write it out."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"


def render(folder: str, template: str, **context: Any) -> str:
    """A page as text. folder: of the template, in refold; it may import "look.jinja". Everything
    is escaped that is no Markup."""
    loader = jinja2.ChoiceLoader(
        [jinja2.PackageLoader("refold", folder), jinja2.PackageLoader("refold", "judge/ask")]
    )
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader
    )
    environment.filters |= {"breakable": breakable, "number": number}
    return environment.get_template(template).render(**context).lstrip()
