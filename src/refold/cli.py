"""The command line: refold optimize | build | judge | explain | doctor | cache.

Every failure ends in one line on standard error and an exit code; `--debug` adds the stack trace.
"""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from refold import __version__
from refold.build import BuildError
from refold.derive import CONVOLUTIONS
from refold.devices import DEVICES
from refold.report import building, commands, doctor

EXIT_CODES = """exit codes of optimize:
  0  a faster, accepted file was written
  3  the original is kept and written as it is, with the reason, or the baseline that is faster
  4  a file was written and compiled for a target that is not at hand; it was not run
  1  an error; nothing was written
  2  usage"""


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line too."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"refold: {message} ({self.prog} --help says more)\n")


def parser() -> Parser:
    main = Parser(
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
    _reference(optimize)
    optimize.add_argument("-o", "--output", required=True, metavar="FAST.py")
    optimize.add_argument("--json", action="store_true", help="print one JSON object")
    optimize.add_argument(
        "--seconds", type=_seconds, default=3.0, help="time spent on each comparison (default 3)"
    )
    optimize.add_argument(
        "--no-tune",
        action="store_true",
        help="cut products on a GPU, and choose who computes convolutions, by rule; do not time"
        " (times are kept in ~/.cache/refold)",
    )
    optimize.add_argument(
        "--no-compile",
        action="store_true",
        help="do not measure against torch.compile (which takes a while to compile)",
    )
    optimize.add_argument(
        "--baselines",
        action="store_true",
        help="measure against max-autotune, reduce-overhead, channels-last and cudnn.benchmark too",
    )
    optimize.add_argument(
        "--full",
        action="store_true",
        help="end with the judge's full verdict, which leaves nothing out (default: the quick one)",
    )
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
    _reference(explain)
    explain.add_argument("--json", action="store_true", help="print one JSON object")
    explain.add_argument("--graph", action="store_true", help="print the graphs too")
    explain.add_argument(
        "--plan",
        action="store_true",
        help="print the plan too: each kernel, how it is cut, and where each value lies",
    )
    explain.set_defaults(run=commands.explain)

    from refold.judge.ask import cli as judge_cli

    judge = parts.add_parser("judge", help="decide whether a file computes the same function")
    judge_cli.add_arguments(judge)
    judge.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    judge.set_defaults(run=judge_cli.run)

    checked = parts.add_parser("doctor", help="say what is at hand and what is missing")
    checked.add_argument("--json", action="store_true", help="print one JSON list")
    checked.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    checked.set_defaults(run=doctor.doctor)

    kept = parts.add_parser("cache", help="show the kernels and schedules that are kept")
    kept.add_argument("--clear", action="store_true", help="remove them")
    kept.add_argument("--debug", action="store_true", help="print the stack trace of an error")
    kept.set_defaults(run=doctor.cache)
    return main


def _reference(command: argparse.ArgumentParser) -> None:
    command.add_argument("reference", metavar="REF.py")
    command.add_argument(
        "--target",
        type=_target,
        default=None,
        help=f"one of {', '.join(DEVICES)} (default: the device at hand)",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="override a top-level constant of REF.py; may be repeated",
    )
    command.add_argument(
        "--float32",
        choices=("ieee", "tf32"),
        default=None,
        help="accuracy of fp32 products (default: PyTorch's flags; the CPU is always ieee)",
    )
    command.add_argument(
        "--conv-float32",
        choices=("ieee", "tf32"),
        default=None,
        help="the same of fp32 convolutions (default: PyTorch's flag for them)",
    )
    command.add_argument(
        "--convolutions",
        choices=CONVOLUTIONS,
        default=CONVOLUTIONS[0],
        help="what computes convolutions: PyTorch's library; own kernels, epilogue and all, where"
        " there are; or of each the faster by timing at hand (auto on a CPU; auto on a GPU: the"
        " library, and own kernels for such as they were measured to be far ahead of)",
    )
    command.add_argument(
        "--memory",
        type=_times,
        default=None,
        metavar="TIMES",
        help="bytes that folded and packed parameters may take in a mode, as a multiple of the"
        " parameters' own (default: 1, or 8 MiB where that is more; inf: any number)",
    )
    command.add_argument("--strict", action="store_true", help="no rule that assumes finite values")
    command.add_argument(
        "--unsafe",
        action="store_true",
        help="also rules that may lose a NaN which the model makes of finite or masked inputs",
    )
    command.add_argument("--debug", action="store_true", help="print the stack trace of an error")


def _target(name: str) -> str:
    if name not in DEVICES:
        raise argparse.ArgumentTypeError(
            f"unknown target {name!r}; the targets are {', '.join(DEVICES)}"
        )
    return name


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, came {text!r}")
    return value


def _times(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"expected a number that is not negative, came {text!r}")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    args = parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        return code
    except KeyboardInterrupt:
        told = "; nothing was written" if args.command == "optimize" else ""
        print(f"refold: interrupted{told}", file=sys.stderr)
        return 130
    except (Exception, SystemExit) as error:  # a reference that exits ends nothing
        if args.debug:
            traceback.print_exc()
        text, more = _one_line(error), "" if args.debug else " (--debug shows the stack)"
        if not isinstance(error, (*commands.EXPECTED, BuildError)):
            text = f"unexpected {type(error).__name__}: {text}{more}"
        print(f"refold: {text}", file=sys.stderr)
        # of the judge, 1 says that a candidate was rejected
        return 2 if args.command == "judge" or isinstance(error, commands.USAGE) else 1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
