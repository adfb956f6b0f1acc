"""`refold judge REF.py CAND.py`: exit 0 accepted, 1 rejected, 2 usage or a faulty reference."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from refold.contract import ContractError
from refold.judge.run import judge
from refold.judge.tests import TESTS
from refold.judge.verdict import Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reference", metavar="REF.py")
    parser.add_argument("candidate", metavar="CAND.py")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--quick", action="store_true", help="the quick subset of the tests")
    parser.add_argument("--seed", type=int, default=0, help="reproduces a judgement")
    parser.add_argument("--only", choices=[t.name for t in TESTS], help="one test")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="NAME=VALUE")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a call may take")


def run(args: argparse.Namespace) -> int:
    try:
        verdict = judge(
            args.reference,
            args.candidate,
            sets=args.sets,
            quick=args.quick,
            seed=args.seed,
            only=args.only,
            call_seconds=args.limit,
        )
    except ContractError as error:
        print(f"refold: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(verdict.to_dict(), indent=2))
    else:
        _show(verdict, args)
    return 0 if verdict.accepted else 1


def _show(verdict: Verdict, args: argparse.Namespace) -> None:
    out = Console()
    table = Table("test", "outcome", "of what is allowed", "detail")
    for o in verdict.outcomes:
        ratio = "" if o.ratio is None else f"{o.ratio:.2g}"
        table.add_row(o.test, o.status.name, ratio, escape(o.detail))
    out.print(table)
    for mode, e in verdict.errors.items():
        out.print(f"{mode}: error {e.candidate:.2e}, eager's {e.eager:.2e} (against float64)")
    notes = [f"assumes {verdict.assumes} values"] if verdict.assumes else []
    notes += ["inference only"] if verdict.inference_only else []
    out.print(f"[bold]{verdict.status.name}[/bold] {' '.join(notes)} ({verdict.seconds:.1f} s)")
    if not verdict.accepted:
        sets = "".join(f" --set {s}" for s in args.sets)
        test = verdict.failures[0].test
        known = f" --only {test}" if test in {t.name for t in TESTS} else ""
        out.print(
            f"reproduce: refold judge {args.reference} {args.candidate}{sets}{known}"
            f" --seed {args.seed}"
        )
