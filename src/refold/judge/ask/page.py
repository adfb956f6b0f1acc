"""A verdict as one self-contained HTML page: jinja2 for the text, inline SVG for the plots."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from refold.judge.ask.cli import reproduce, seconds
from refold.judge.ask.look import Bar, bars, render
from refold.judge.verdict.verdict import ErrorStats, Quartiles, Timing, Verdict

_WIDTH, _HEIGHT, _PAD = 380, 120, 24
_DOTS = 400  # of a side


def page(verdict: Verdict) -> str:
    """The page's text. Everything that came from a candidate is escaped."""
    worst = sorted(verdict.errors, key=lambda e: -e.ratio)[:12]
    return render(
        "judge/ask",
        "page.jinja",
        v=verdict,
        worst=next(iter(worst), None),
        passed=sum(t.outcome == "passed" for t in verdict.tests),
        again=reproduce(verdict, verdict.failures[0]) if verdict.failures else "",
        ratios=_ratios(worst),
        errors=[(e, Markup(histogram(e))) for e in worst if any(e.histogram)],
        speed=_speed(verdict.timing) if verdict.timing else [],
        samples=Markup(strip(verdict.timing)) if verdict.timing else "",
    )


def _ratios(worst: Sequence[ErrorStats]) -> list[Bar]:
    """The candidate's error over eager's."""
    rows = []
    for e in worst:
        ratio = e.ratio if 0 < e.ratio < math.inf else 1e-3 if e.ratio == 0 else 1e3
        told = f"{e.ratio:.2f} of eager's, {e.rmse:.1e}"
        rows.append((f"{e.case}, {e.output}", ratio, ratio, ratio, told, True))
    return bars(rows, 1.0)


def _speed(timing: Timing) -> list[Bar]:
    """Seconds a call of all sides, and what the device needs at least."""
    sides: list[tuple[str, Quartiles]] = [("eager", timing.eager)]
    sides += [(f"torch.compile {name}", q) for name, q in timing.compiled.items()]
    sides.append(("the candidate", timing.candidate))
    rows = []
    for name, q in sides:
        told = f"{seconds(q.median)} [{seconds(q.low)}, {seconds(q.high)}]"
        low, middle, high = (max(t, 1e-9) for t in (q.low, q.median, q.high))
        rows.append((name, low, middle, high, told, name == "the candidate"))
    if timing.roofline_seconds > 0:
        at = timing.roofline_seconds
        rows.append(("at least, by the device's rates", at, at, at, seconds(at), False))
    return bars(rows)


def histogram(errors: ErrorStats) -> str:
    """Counts of errors by their power of two: eager grey, the candidate outlined over it."""
    both = (errors.histogram_eager, errors.histogram)
    top = max([1, *both[0], *both[1]])
    step = (_WIDTH - 2 * _PAD) / max(len(errors.histogram), 1)
    parts = [_open()]
    for counts, style in zip(
        both,
        (
            'fill="var(--dim)" fill-opacity=".45"',
            'fill="none" stroke="var(--accent)"',
        ),
        strict=True,
    ):
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
        ("eager", timing.samples_eager, "var(--dim)"),
        ("candidate", timing.samples_candidate, "var(--accent)"),
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
        shown = [s for s in samples if s > 0]
        for j, sample in enumerate(shown[:: -(-len(shown) // _DOTS) or 1]):
            jitter = (j * 7) % 13 - 6
            parts.append(
                f'<circle cx="{at(sample):.1f}" cy="{y + jitter}" r="2.5" '
                f'fill="{colour}" fill-opacity="0.6"/>'
            )
    y = _HEIGHT - 8
    parts.append(f'<text x="{left}" y="{y}">{seconds(min(values))}</text>')
    end = f'<text x="{_WIDTH - 4}" y="{y}" text-anchor="end">{seconds(max(values))}</text>'
    parts.append(end)
    return "".join([*parts, "</svg>"])


def _open() -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="10" role="img">'
