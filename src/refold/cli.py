"""The command line: refold optimize | build | judge | explain | suite | doctor | cache.

Every failure ends in one line on standard error and an exit code; `--debug` adds the stack trace.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from refold import __version__
from refold.build import BuildError
from refold.report import arguments, building, commands, doctor, explaining
from refold.suite import cli as suite_cli
from refold.suite.tasks import SuiteError

USAGE = (*commands.USAGE, SuiteError)
EXIT_CODES = """exit codes of optimize:
  0  a faster, accepted file was written
  3  the original is kept and written as it is, with the reason, or the baseline that is faster
  4  a file was written and compiled for a target that is not at hand; it was not run
  1  an error; nothing was written
  2  usage"""


def parser() -> arguments.Parser:
    main = arguments.Parser(
        prog="refold",
        description="Rewrite a PyTorch module's algebra, fuse the rest into kernels, judge it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    main.add_argument("--version", action="version", version=f"refold {__version__}")
    parts = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    optimize = parts.add_parser(
        "optimize",
        help="write a faster drop-in file",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.reference(optimize)
    optimize.add_argument("-o", "--output", required=True, metavar="FAST.py")
    optimize.add_argument("--json", action="store_true", help="print one JSON object")
    arguments.optimize(optimize)
    optimize.set_defaults(run=commands.optimize)

    built = parts.add_parser(
        "build", help="compile the kernels of written files ahead, for machines without a compiler"
    )
    built.add_argument("files", nargs="+", metavar="FAST.py")
    built.add_argument(
        "-o", "--output", default="built", metavar="FOLDER", help="where to write (default: built)"
    )
    built.add_argument(
        "--target",
        action="append",
        default=[],
        dest="targets",
        metavar="TARGET",
        help="cpu:avx512, cpu:avx2 (default: both) or cpu:any; of a file for GPUs, cuda:sm_86 and"
        " such for machine code beside the file's own; may be repeated",
    )
    built.add_argument("--wheel", metavar="NAME", help="write one wheel of that name instead")
    built.add_argument("--wheel-version", default="1.0", metavar="VERSION", help="(default: 1.0)")
    built.add_argument("--json", action="store_true", help="print one JSON object")
    built.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    built.set_defaults(run=building.build_command)

    explain = parts.add_parser("explain", help="say what is rewritten, why, and what it saves")
    arguments.reference(explain)
    explain.add_argument("--json", action="store_true", help="print one JSON object")
    explain.add_argument("--graph", action="store_true", help="print the graphs too")
    explain.add_argument(
        "--plan",
        action="store_true",
        help="print the plan too: each kernel, how it is cut, and where each value lies",
    )
    explain.add_argument("--html", metavar="FILE", help="write one page, which needs nothing else")
    explain.add_argument(
        "--measure", action="store_true", help="... with times beside eager and torch.compile"
    )
    explain.set_defaults(run=explaining.explain)

    from refold.judge.ask import cli as judge_cli

    judge = parts.add_parser("judge", help="decide whether a file computes the same function")
    judge_cli.add_arguments(judge)
    judge.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    judge.set_defaults(run=judge_cli.run)

    many = parts.add_parser("suite", help="optimise and judge many files, each in its own process")
    suite_cli.add_arguments(many)
    many.set_defaults(run=suite_cli.suite)

    checked = parts.add_parser("doctor", help="say what is at hand and what is missing")
    checked.add_argument("--json", action="store_true", help="print one JSON list")
    checked.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    checked.set_defaults(run=doctor.doctor)

    kept = parts.add_parser("cache", help="show the kernels and schedules that are kept")
    kept.add_argument("--clear", action="store_true", help="remove them")
    kept.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    kept.set_defaults(run=doctor.cache)
    return main


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    args = parser().parse_args(given)
    try:
        code: int = args.run(args)
        return code
    except KeyboardInterrupt:
        told = "; nothing was written" if args.command == "optimize" else ""
        print(f"refold: interrupted{told}", file=sys.stderr)
        # An interrupt that left an exec of text, as dataclasses make, would end this process by
        # the signal, whatever it returns: CPython forgets that at the next such exec.
        exec("")
        return 130
    except (Exception, SystemExit) as error:  # a reference that exits ends nothing
        if args.debug:
            traceback.print_exc()
        text, more = _one_line(error), "" if args.debug else " (--debug shows the stack)"
        if not isinstance(error, (*commands.EXPECTED, BuildError, SuiteError)):
            text = f"unexpected {type(error).__name__}: {text}{more}"
        print(f"refold: {text}", file=sys.stderr)
        # of the judge, 1 says that a candidate was rejected
        return 2 if args.command == "judge" or isinstance(error, USAGE) else 1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
