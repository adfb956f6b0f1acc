"""A verdict as one self-contained HTML page: jinja2 for the text, inline SVG for the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files

import jinja2
from markupsafe import Markup

from refold.judge.ask.cli import reproduce, seconds
from refold.judge.verdict.verdict import ErrorStats, Timing, Verdict

_WIDTH, _HEIGHT, _PAD = 460, 120, 24


def page(verdict: Verdict) -> str:
    """The page's text. Everything that came from a candidate is escaped."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = files("refold.judge.ask").joinpath("page.jinja").read_text(encoding="utf-8")
    worst = sorted(verdict.errors, key=lambda e: -e.ratio)[:12]
    return environment.from_string(text).render(
        v=verdict,
        again=reproduce(verdict, verdict.failures[0]) if verdict.failures else "",
        errors=[(e, Markup(histogram(e))) for e in worst],
        timing=Markup(strip(verdict.timing)) if verdict.timing else "",
        seconds=seconds,
    )


def histogram(errors: ErrorStats) -> str:
    """Counts of errors by their power of two: eager grey, the candidate outlined over it."""
    both = (errors.histogram_eager, errors.histogram)
    top = max([1, *both[0], *both[1]])
    step = (_WIDTH - 2 * _PAD) / max(len(errors.histogram), 1)
    parts = [_open()]
    for counts, style in zip(both, ('fill="#b8bcc4"', 'fill="none" stroke="#0a62c4"'), strict=True):
        for i, count in enumerate(counts):
            # Square roots, so that a few outliers can be seen beside millions.
            height = (_HEIGHT - 2 * _PAD) * math.sqrt(count / top)
            if count:
                x, y = _PAD + i * step, _HEIGHT - _PAD - height
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{step - 1:.1f}" '
                    f'height="{height:.1f}" {style}/>'
                )
    for i in range(0, len(errors.histogram), 4):
        x = _PAD + i * step
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}">2^{2 * i - 40}</text>')
    return "".join([*parts, "</svg>"])


def strip(timing: Timing) -> str:
    """Every block's seconds per call as a dot, on a logarithmic axis."""
    rows: list[tuple[str, Sequence[float], str]] = [
        ("eager", timing.samples_eager, "#7a808a"),
        ("candidate", timing.samples_candidate, "#0a62c4"),
    ]
    values = [s for _, samples, _ in rows for s in samples if s > 0]
    if not values:
        return ""
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    left, width = 80, _WIDTH - 80 - _PAD

    def at(value: float) -> float:
        return left + width * (math.log10(value) - low) / (high - low)

    parts = [_open()]
    for i, (name, samples, colour) in enumerate(rows):
        y = 34 + 32 * i
        parts.append(f'<text x="4" y="{y + 4}">{name}</text>')
        for j, sample in enumerate(s for s in samples if s > 0):
            jitter = (j * 7) % 13 - 6
            parts.append(
                f'<circle cx="{at(sample):.1f}" cy="{y + jitter}" r="2.5" '
                f'fill="{colour}" fill-opacity="0.6"/>'
            )
    for value in (min(values), max(values)):
        parts.append(f'<text x="{at(value) - 16:.1f}" y="{_HEIGHT - 8}">{seconds(value)}</text>')
    return "".join([*parts, "</svg>"])


def _open() -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-size="10" font-family="sans-serif" '
        f'fill="currentColor" role="img">'
    )
