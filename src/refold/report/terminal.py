"""Tables and progress on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from refold import turns
from refold.baselines import COMPILE, EAGER

_err = Console(stderr=True)
_out = Console()
if not _out.is_terminal:
    _out = Console(width=160)


@contextmanager
def progress(enabled: bool) -> Iterator[Callable[..., None]]:
    """Shows which long step is running; gives the function that names the next one, and what of it
    is under way, which only a terminal shows. Between two steps other processes may time."""
    turns.take_part()
    if not enabled:
        yield lambda text, part="": turns.pause()
        return
    with _err.status("starting") as status:

        def step(text: str, part: str = "") -> None:
            turns.pause()
            if not (part or _err.is_terminal):
                _err.print(f"refold: {text}")
            status.update(f"{text}: {part}" if part else text)

        yield step


def seconds(value: float | None) -> str:
    """A duration with three figures and its unit."""
    if value is None:
        return "n/a"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def size(count: int) -> str:
    """Bytes with three figures and their unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B" if count else "none"


_TIMES = ("eager_s", "compile_s", "ours_s")


def left_out(rows: list[dict[str, Any]]) -> None:
    """Name the baselines that could not be timed, and those that the table has no column for."""
    for row in rows:
        more = {k: v for k, v in row.get("baselines", {}).items() if k not in (EAGER, COMPILE)}
        for name, times in more.items():
            _out.print(f"{row['mode']}: {name} {seconds(times['s'])}, refold {times['ratio']:.2f}x")
        for name, why in row.get("left_out", {}).items():
            _out.print(f"{row['mode']}: {name} was left out: {escape(why)}")


def optimized(report: dict[str, Any]) -> None:
    """The final table of `refold optimize`."""
    table = Table(title=f"{report['reference']} -> {report['output']} ({report['target']})")
    for column in (
        "mode",
        "verdict",
        "promise",
        "error / eager's",
        "eager",
        "torch.compile",
        "refold",
        "over eager",
        "over the best",
        "fold, pays after",
        "its memory",
    ):
        table.add_column(column)
    errors = report["errors"]
    for row in report["modes"]:
        if row.get("kept"):
            times = [seconds(row.get(k)) if k in row else "" for k in _TIMES]
            over = f"{row['speedup_to_best']:.2f}x {row['best']}" if "best" in row else ""
            told = (*times, "", over, escape(row["kept"]), "")
            table.add_row(row["mode"], "original kept", "", "", *told)
            continue
        low, high = row["ratio_quartiles"]
        error = errors.get(row["mode"]) or {}
        shown = f"{error['candidate']:.1e} / {error['eager']:.1e}" if error else "n/a"
        fold = "none"
        if row["fold_s"]:
            fold = f"{seconds(row['fold_s'])}, {row['break_even_calls']} calls"
        table.add_row(
            row["mode"],
            report["verdict"],
            row["label"],
            shown,
            *(seconds(row[k]) for k in _TIMES),
            f"{row['ratio']:.2f}x [{low:.2f}, {high:.2f}]",
            f"{row['ratio_to_best']:.2f}x {row['best']}",
            fold,
            size(row["prepared_bytes"]),
        )
    _out.print(table)
    left_out(report["modes"])
    for i in report["independent_outputs"]:
        _out.print(
            f"[bold]Output {i} does not depend on the input[/bold]: it is computed as such, but"
            " this is likely a bug in the model."
        )
    if report["working_bytes"]:
        _out.print(f"kernels work in {size(report['working_bytes'])} besides, kept for each stream")
    _out.print(f"the judge's {report['judged']} verdict stands in the file's header")
    _out.print(
        f"algebra, plan and text {seconds(report['algebra_s'])}; compilation"
        f" {seconds(report['build_s'])}; {report['threads']} threads"
    )


def unrun(output: Path, target: str) -> None:
    _out.print(
        f"[bold]written[/bold] to {output} for {target}, which is not at hand: the kernels compile,"
        " but they were neither run nor judged; judge the file on such a machine"
    )


def written(page: Path) -> None:
    _out.print(f"[bold]written[/bold] to {page}; open it in a browser")


def kept(output: Path, reason: str) -> None:
    _out.print(f"[bold]original kept[/bold] at {output}: {escape(reason)}")


def explained(title: str, rows: list[dict[str, Any]]) -> None:
    """What `refold explain` prints."""
    for row in rows:
        where = {"both": "train and eval"}.get(row["mode"], row["mode"])
        _out.rule(f"{title}, {where}")
        if row.get("kept"):
            _out.print(f"The original forward is kept: {escape(row['kept'])}.")
            continue
        for i, step in enumerate(row["steps"], 1):
            _out.print(
                f"{i}. [bold]{step['rule']}[/bold] \\[{step['label']}], saves"
                f" {seconds(step['saves_s'])}: {escape(step['why'])}"
            )
            _out.print(f"     {escape(step['before'])}\n  -> {escape(step['after'])}")
        if not row["steps"]:
            _out.print("Nothing is rewritten.")
        table = Table("kernel", "family", "space", "ops")
        for g in row["groups"]:
            space = " x ".join(d for d in g.get("space", []) if d != "1")
            table.add_row(g["kernel"], g["family"], space, " ".join(g["ops"]))
        _out.print(table)
        for f in row["folds"]:
            _out.print(f"{f['name']} = {escape(f['is'])}")
        if row["held"]:
            each = ", ".join(f"{h['name']} {size(h['bytes'])}" for h in row["held"])
            total = size(sum(h["bytes"] for h in row["held"]))
            _out.print(
                f"kept beside {size(row['parameter_bytes'])} of parameters: {total} ({each})"
            )
        _out.print(
            f"predicted {seconds(row['predicted_before_s'])} -> {seconds(row['predicted_s'])},"
            f" floor {seconds(row['floor_s'])}; promise: {row['label']}"
        )
        _out.print(f"{escape(row['accuracy'])}.")
        for i in row["independent_outputs"]:
            _out.print(f"Output {i} does not depend on the input: likely a bug in the model.")
        for key in ("captured_graph", "graph", "planned_graph", "plan"):
            if key in row:
                _out.print(f"[bold]{key.replace('_', ' ')}[/bold]\n{escape(row[key])}")
