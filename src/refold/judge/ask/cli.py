"""``refold judge REF.py CAND.py``: arguments, terminal report, exit codes 0, 1 and 2."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from refold.contract import ContractError
from refold.judge.verdict.verdict import Failure, Quartiles, Speed, Status, Timing, Verdict

ACCEPTED, REJECTED, USAGE = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``refold judge``."""
    parser.add_argument("reference", metavar="REF.py", help="has Model and get_inputs()")
    parser.add_argument("candidate", metavar="CAND.py", help="has ModelNew; runs in a worker only")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page")
    parser.add_argument("--quick", action="store_true", help="fewer cases, a short timing")
    parser.add_argument("--full", action="store_true", help="leave nothing out that takes long")
    parser.add_argument("--seed", type=int, default=0, help="reproduces everything drawn")
    parser.add_argument(
        "--secret", type=int, help="the secret that a verdict told: reproduces its secret draws"
    )
    parser.add_argument(
        "--only", action="append", metavar="TEST", help="run this test only (may be repeated)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="override a module-level constant of REF.py (may be repeated)",
    )
    parser.add_argument(
        "--small",
        action="append",
        metavar="NAME=VALUE",
        help="sizes for the tests of many calls, where one call at full size takes long",
    )
    parser.add_argument(
        "--inputs", metavar="FILE", help="recorded calls: a list of lists of arguments, saved"
    )
    parser.add_argument(
        "--sandbox",
        action="store_true",
        help="the candidate writes below a folder of its own only, and has no network",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: CUDA if there is one")
    parser.add_argument(
        "--require-speed", action="store_true", help="exit 1 unless it is FASTER as well"
    )
    parser.add_argument(
        "--where-time-goes",
        action="store_true",
        help="print runs, bytes and seconds of each test, too",
    )
    parser.add_argument("--no-timing", action="store_true", help="prove only")
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile baseline")
    parser.add_argument(
        "--strict", action="store_true", help="hold a 'finite values only' candidate to NaN too"
    )


def run(args: argparse.Namespace) -> int:
    """Judge, print, and return the exit code."""
    from refold.judge.run import judge

    progress = None
    if sys.stderr.isatty() and not args.json:
        progress = _Progress()
    try:
        if args.html and not Path(args.html).resolve().parent.is_dir():
            raise ContractError(f"the folder of {args.html} does not exist; create it first")
        verdict = judge(
            args.reference,
            args.candidate,
            sets=args.sets,
            device=args.device,
            quick=args.quick,
            full=args.full,
            inputs=args.inputs,
            sandbox=args.sandbox,
            seed=args.seed,
            only=args.only,
            timing=not args.no_timing,
            compile_baseline=not args.no_compile,
            finite_only=False if args.strict else None,
            progress=progress,
            semantic_sets=args.small,
            secret=args.secret,
        )
        if args.html:
            from refold.judge.ask.page import page

            Path(args.html).write_text(page(verdict), encoding="utf-8")
    except (ContractError, OSError) as error:
        if args.json:
            print(json.dumps({"schema": 1, "accepted": False, "error": str(error)}))
        else:
            print(f"refold judge: {error}", file=sys.stderr)
        return USAGE
    finally:
        if progress is not None:
            progress("")
    if args.json:
        print(json.dumps(verdict.to_dict(), indent=1))
    else:
        show(verdict)
    if args.where_time_goes:
        from refold.judge.ask.where import where

        print(where(), file=sys.stderr if args.json else sys.stdout)
    fast = not args.require_speed or verdict.speed is Speed.FASTER
    return ACCEPTED if verdict.accepted and fast else REJECTED


class _Progress:
    def __call__(self, step: str) -> None:
        sys.stderr.write(f"\r\033[K{step}" + (" ..." if step else ""))
        sys.stderr.flush()


def show(verdict: Verdict, console: Console | None = None) -> None:
    """Print a verdict for people."""
    out = console or Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("test", "outcome", "cases", "seconds", ""):
        table.add_column(name, justify="right" if name in {"cases", "seconds"} else "left")
    colours = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
    for test in verdict.tests:
        remark = test.note or (test.catches if test.outcome == "failed" else "")
        colour = colours.get(test.outcome, "")
        row = (f"[{colour}]{test.outcome}[/]", str(test.cases), f"{test.seconds:.2f}")
        table.add_row(test.name, *row, f"[dim]{_safe(remark)}[/]")
    out.print(table)
    for failure in verdict.failures[:6]:
        _show_failure(out, failure)
    if len(verdict.failures) > 6:
        out.print(f"  and {len(verdict.failures) - 6} more (--json lists all)")
    if verdict.errors:
        worst = max(verdict.errors, key=lambda e: e.ratio)
        out.print(
            f"\nerror against float64: at most {worst.ratio:.2f} times eager's "
            f"(rmse {worst.rmse:.2g} beside {worst.rmse_eager:.2g}; {_safe(worst.case)})"
        )
    if verdict.timing is not None:
        _show_timing(out, verdict.timing)
    if verdict.task.reasons:
        apart = "" if verdict.task.kind == "ordinary" else ", to be counted apart"
        why = _safe("; ".join(verdict.task.reasons))
        out.print(f"[yellow]{verdict.task.kind} task[/]{apart}: {why}")
    for text in verdict.assumptions:
        out.print(f"[yellow]assumes[/] {_safe(text)}")
    for text in verdict.notes:
        out.print(f"[dim]note: {_safe(text)}[/]")
    if verdict.hints:
        out.print(f"[dim]its text, for a reader: {_safe('; '.join(verdict.hints))}[/]")
    good = verdict.status is Status.ACCEPTED
    out.print(f"\n[bold {'green' if good else 'red'}]{verdict.status.value}[/]", end="")
    out.print(f"  {verdict.device}, seed {verdict.seed}, {verdict.seconds:.1f} s")
    if good:
        out.print("[dim]No disagreement found under these tests; that is not a proof.[/]")
    elif verdict.failures:
        out.print(f"[dim]again: {_safe(reproduce(verdict, verdict.failures[0]))}[/]")


def reproduce(verdict: Verdict, failure: Failure) -> str:
    """The command that shows a failure again."""
    parts = ["refold judge", verdict.reference, verdict.candidate, f"--seed {failure.seed}"]
    parts += [f"--set {k}={v}" for k, v in verdict.sets.items()]
    if "secret" in failure.case or failure.test == "timed outputs":
        parts.append(f"--secret {verdict.secret}")
    parts += ["--quick"] if verdict.quick else []
    return " ".join([*parts, f'--only "{failure.test}"'])


def _show_failure(out: Console, failure: Failure) -> None:
    out.print(f"\n[bold red]{failure.status.value}[/] by [bold]{failure.test}[/]", end="")
    out.print(f" on {_safe(failure.case)}: {_safe(failure.detail)}")
    if failure.worst is not None:
        w = failure.worst
        out.print(
            f"  {w.output}{list(w.index)}: got {w.got:.9g}, eager {w.eager:.9g}, "
            f"exact {w.exact:.12g}, allowed error {w.bar:.3g}"
        )


def _show_timing(out: Console, timing: Timing) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("time per call", "median", "quartiles", "cold"):
        table.add_column(name)
    rows: list[tuple[str, Quartiles, Quartiles | None]] = [
        ("eager", timing.eager, timing.eager_cold)
    ]
    rows += [(f"torch.compile {k}", v, None) for k, v in timing.compiled.items()]
    rows.append(("candidate", timing.candidate, timing.candidate_cold))
    for name, warm, cold in rows:
        span = f"{seconds(warm.low)} .. {seconds(warm.high)}"
        table.add_row(name, seconds(warm.median), span, seconds(cold.median) if cold else "")
    out.print()
    out.print(table)
    out.print(
        f"[bold]{timing.speed.value}[/]: eager's time is {timing.ratio:.3g} times the candidate's, "
        f"95% interval [{timing.ratio_low:.3g}, {timing.ratio_high:.3g}]".replace("[0", "\\[0")
    )
    fold = timing.first_call_seconds - timing.candidate.median
    if fold > timing.candidate.median:
        pays = f"pays after {timing.break_even_calls:.0f} calls"
        if timing.speed is not Speed.FASTER or not math.isfinite(timing.break_even_calls):
            pays = "does not pay: later calls are not faster than eager's"
        out.print(
            f"[dim]the first call after a weight update takes {seconds(fold)} longer: {pays}[/]"
        )
    if timing.note:
        out.print(f"[dim]{_safe(timing.note)}[/]")


def seconds(value: float) -> str:
    """A time for people."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.0f} ns" if math.isfinite(value) else str(value)


def _safe(text: str) -> str:
    """A candidate's words are not to be read as markup or control characters."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain.replace("[", "\\[")


def main(argv: list[str] | None = None) -> int:
    """``python -m refold.judge``."""
    parser = argparse.ArgumentParser(prog="refold judge", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))
