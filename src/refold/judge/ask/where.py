"""``refold judge --where-time-goes``: runs of both sides, bytes and seconds, test by test."""

from __future__ import annotations

from collections.abc import Iterable

from refold.judge.wire.meter import FULL, METER, Cell

_LEAST = 0.005  # seconds of a kind of work that is shown by itself
_REFERENCE = ("reference", "life")
_WIDE = ("reference fp64", "life fp64")
_CANDIDATE = ("worker: call", "worker: live")
_HEAD = ("test", "seconds", "fp32", "fp64", "cand", "MB sent", "MB came", "where the seconds went")


def where() -> str:
    """The table of the last judgement in this process.

    Columns: seconds by the wall; runs of the reference in its own types and in float64, and of the
    candidate, a life being one (in brackets those with large outputs); megabytes to and from
    workers; seconds of each kind of work, without what is measured inside of it. "worker: call" is
    the wait for an answer, and its bytes.
    """
    rows = METER.rows()
    lines = [_line(_HEAD)]
    kinds: dict[str, Cell] = {}
    for name, seconds, cells in rows:
        lines.append(_line(_row(name, seconds, cells)))
        for kind, cell in cells.items():
            total = kinds.setdefault(kind, Cell())
            total.count += cell.count
            total.large += cell.large
            total.bytes += cell.bytes
            total.seconds += cell.seconds
    lines.append(_line(_row("all", sum(row[1] for row in rows), kinds)))
    lines.append(f"\nin brackets: with {FULL >> 20} MB and more\n")
    for kind, cell in sorted(kinds.items(), key=lambda pair: -pair[1].seconds):
        large = f" ({cell.large})" if cell.large else ""
        count = f"{cell.count}{large}"
        lines.append(f"{kind:24} {cell.seconds:8.2f} s {count:>12} {cell.bytes / 1e6:10.0f} MB")
    return "\n".join(lines)


def _row(name: str, seconds: float, cells: dict[str, Cell]) -> tuple[str, ...]:
    dear = sorted(((c.seconds, k) for k, c in cells.items() if c.seconds > _LEAST), reverse=True)
    told = sum(c.seconds for c in cells.values())
    words = [f"{kind} {spent:.2f}" for spent, kind in dear[:5]]
    if seconds - told > _LEAST:
        words.append(f"other {seconds - told:.2f}")
    sent = sum(c.bytes for k, c in cells.items() if k.startswith("to worker"))
    came = sum(c.bytes for k, c in cells.items() if k.startswith("worker: "))
    runs = (_count(cells, kinds) for kinds in (_REFERENCE, _WIDE, _CANDIDATE))
    moved = (f"{sent / 1e6:.0f}", f"{came / 1e6:.0f}")
    return (name, f"{seconds:.2f}", *runs, *moved, ", ".join(words))


def _count(cells: dict[str, Cell], kinds: Iterable[str]) -> str:
    found = [cells[kind] for kind in kinds if kind in cells]
    large = sum(cell.large for cell in found)
    return f"{sum(cell.count for cell in found)}" + (f" ({large})" if large else "")


def _line(row: Iterable[str]) -> str:
    first, *middle, last = row
    return f"{first:26} " + " ".join(f"{word:>9}" for word in middle) + f"  {last}".rstrip()
