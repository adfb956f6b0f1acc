"""The command line: refold optimize | build | judge | explain | suite | doctor | cache.

Every failure ends in one line on standard error and an exit code; `--debug` adds the stack trace.
A command that is named imports its own modules only: those of `judge` need a third of a second
beside PyTorch, those of all commands two.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from refold import __version__, contract

EXIT_CODES = """exit codes of optimize:
  0  a faster, accepted file was written
  3  the original is kept and written as it is, with the reason, or the baseline that is faster
  4  a file was written and compiled for a target that is not at hand; it was not run
  1  an error; nothing was written
  2  usage"""
_DEBUG = "print the stack trace of an error"


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"refold: {message} ({self.prog} --help says more)\n")


def parser(command: str = "") -> Parser:
    """Of one command, or of all of them."""
    main = Parser(
        prog="refold",
        description="Rewrite a PyTorch module's algebra, fuse the rest into kernels, judge it.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    main.add_argument("--version", action="version", version=f"refold {__version__}")
    parts = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, add in COMMANDS.items():
        if command in ("", name):
            add(parts)
    return main


def _optimize(parts: Any) -> None:
    from refold.report import arguments, commands

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


def _build(parts: Any) -> None:
    from refold.report import building

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
    built.add_argument("--debug", action="store_true", help=_DEBUG)
    built.set_defaults(run=building.build_command)


def _explain(parts: Any) -> None:
    from refold.report import arguments, explaining

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


def _judge(parts: Any) -> None:
    from refold.judge.ask import cli as judge_cli

    judge = parts.add_parser("judge", help="decide whether a file computes the same function")
    judge_cli.add_arguments(judge)
    judge.add_argument("--debug", action="store_true", help=_DEBUG)
    judge.set_defaults(run=judge_cli.run)


def _suite(parts: Any) -> None:
    from refold.suite import cli as suite_cli

    many = parts.add_parser("suite", help="optimise and judge many files, each in its own process")
    suite_cli.add_arguments(many)
    many.set_defaults(run=suite_cli.suite)


def _doctor(parts: Any) -> None:
    from refold.report import doctor

    checked = parts.add_parser("doctor", help="say what is at hand and what is missing")
    checked.add_argument("--json", action="store_true", help="print one JSON list")
    checked.add_argument("--debug", action="store_true", help=_DEBUG)
    checked.set_defaults(run=doctor.doctor)


def _cache(parts: Any) -> None:
    from refold.report import doctor

    kept = parts.add_parser("cache", help="show the kernels and schedules that are kept")
    kept.add_argument("--clear", action="store_true", help="remove them")
    kept.add_argument("--debug", action="store_true", help=_DEBUG)
    kept.set_defaults(run=doctor.cache)


COMMANDS: dict[str, Callable[[Any], None]] = {
    "optimize": _optimize,
    "build": _build,
    "explain": _explain,
    "judge": _judge,
    "suite": _suite,
    "doctor": _doctor,
    "cache": _cache,
}


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    words = sys.argv[1:] if given is None else list(given)
    args = parser(words[0] if words and words[0] in COMMANDS else "").parse_args(words)
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
        expected, usage = _expected(args.command)
        text, more = _one_line(error), "" if args.debug else " (--debug shows the stack)"
        if not isinstance(error, expected):
            text = f"unexpected {type(error).__name__}: {text}{more}"
        print(f"refold: {text}", file=sys.stderr)
        # of the judge, 1 says that a candidate was rejected
        return 2 if args.command == "judge" or isinstance(error, usage) else 1


def _expected(command: str) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """Errors of a command whose text is for the user; those of usage."""
    if command == "judge":
        return (contract.ContractError, contract.ArgumentError, OSError), ()
    from refold.build import BuildError
    from refold.report import commands
    from refold.suite.tasks import SuiteError

    return (*commands.EXPECTED, BuildError, SuiteError), (*commands.USAGE, SuiteError)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
