"""Kernels on a roofline, as SVG: what each is predicted to reach, under what the device can."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from refold.devices import DeviceModel

_WIDE, _TALL = 380, 278
_MOST = 24  # dots
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 48


@dataclass(frozen=True)
class Dot:
    """A kernel: its number, name, floating-point operations, bytes moved, predicted seconds."""

    number: int
    name: str
    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        return self.flops / self.seconds


def roofline(dots: Sequence[Dot], device: DeviceModel) -> Markup:
    """The picture; empty where nothing has arithmetic and memory traffic."""
    shown = [d for d in dots if d.flops > 0 and d.bytes > 0 and d.seconds > 0]
    if not shown:
        return Markup("")
    peak, bandwidth = device.product_flops, device.bandwidth
    ridge = peak / bandwidth
    x = _Axis([ridge / 8, ridge * 4, *(d.intensity for d in shown)], _LEFT, _WIDE - _RIGHT)
    y = _Axis([peak * 1.5, *(d.rate for d in shown)], _TALL - _BOTTOM, _TOP)
    rates = f"{_number(peak)}FLOP/s, {_number(bandwidth)}B/s"
    parts = [
        f'<path class="rule" d="M{_LEFT} {_TOP}V{_TALL - _BOTTOM}H{_WIDE - _RIGHT}"/>',
        *(_tick(x.at(v), _TALL - _BOTTOM + 21, _number(v)) for v in x.ticks()),
        *(_tick(_LEFT - 6, y.at(v) + 4, _number(v), "end") for v in y.ticks()),
        _roof(x, y, peak, bandwidth),
        _tick((_LEFT + _WIDE - _RIGHT) / 2, _TALL - 6, "operations for each byte moved"),
        _tick(_WIDE - _RIGHT, y.at(peak) - 6, rates, "end"),
        *_dots(shown, x, y, (_WIDE - _RIGHT - 3.4 * len(rates), y.at(peak) - 10)),
    ]
    return Markup(
        f'<svg viewBox="0 0 {_WIDE} {_TALL}" role="img" font-size="11"'
        f' aria-label="Roofline of {len(shown)} kernels">{"".join(parts)}</svg>'
    )


class _Axis:
    """A logarithmic axis in whole powers of ten between two pixels."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.low = math.floor(math.log10(min(values)) - 0.05)
        self.high = math.ceil(math.log10(max(values)) + 0.05)
        self.first, self.last = first, last

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + min(max(share, 0.0), 1.0) * (self.last - self.first)

    def ticks(self) -> list[float]:
        step = max(1, math.ceil((self.high - self.low) / 5))
        return [10.0**e for e in range(self.low, self.high + 1, step)]


def _roof(x: _Axis, y: _Axis, peak: float, bandwidth: float) -> str:
    start = max(10.0**x.low, 10.0**y.low / bandwidth)
    ridge = peak / bandwidth
    return (
        f'<path d="M{x.at(start):.1f} {y.at(start * bandwidth):.1f}'
        f"L{x.at(ridge):.1f} {y.at(peak):.1f}H{_WIDE - _RIGHT}"
        '" fill="none" stroke="var(--dim)" stroke-width="1.6"/>'
    )


def _dots(shown: Sequence[Dot], x: _Axis, y: _Axis, rates: tuple[float, float]) -> list[str]:
    """Dots and their numbers, each beside its dot where there is room for it; the table has all.

    rates: the middle of the text that says the roof's.
    """
    total = sum(d.seconds for d in shown)
    largest = sorted(shown, key=lambda d: -d.seconds)[:_MOST]
    spots = [
        (d, x.at(d.intensity), y.at(d.rate), 3 + 5 * math.sqrt(d.seconds / total)) for d in largest
    ]
    taken = [(px, py, radius, radius) for _, px, py, radius in spots]
    taken.append((*rates, _WIDE - _RIGHT - rates[0], 8))
    parts = [
        f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{radius:.1f}" fill="var(--accent)"'
        f' fill-opacity=".6"><title>{escape(d.name)}</title></circle>'
        for d, px, py, radius in spots
    ]
    for d, px, py, radius in spots:
        half = 3.6 * len(str(d.number))
        ways = [(1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)]
        for dx, dy in ways:
            cx, cy = px + dx * (radius + half + 2), py + dy * (radius + 7)
            inside = _LEFT + half < cx < _WIDE - half and _TOP + 5 < cy < _TALL - _BOTTOM - 5
            if inside and not any(
                abs(cx - a) < half + w and abs(cy - b) < 6 + h for a, b, w, h in taken
            ):
                taken.append((cx, cy, half, 6))
                parts.append(
                    f'<text x="{cx:.1f}" y="{cy + 4:.1f}" text-anchor="middle">{d.number}</text>'
                )
                break
    return parts


def _tick(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" class="dim">{escape(text)}</text>'


def _number(value: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} "
