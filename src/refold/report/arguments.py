"""Arguments that commands share."""

from __future__ import annotations

import argparse
import math

from refold.derive import CONVOLUTIONS
from refold.devices import DEVICES


def reference(command: argparse.ArgumentParser) -> None:
    """A reference and how it is derived."""
    command.add_argument("reference", metavar="REF.py")
    derivation(command)


def derivation(command: argparse.ArgumentParser) -> None:
    """For what a reference is rewritten, and what may be done to it."""
    command.add_argument(
        "--target",
        type=target,
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
        " there are; or of each the faster by timing at hand (auto: so, of the three largest on a"
        " GPU; without timing by rule: own kernels where they were measured to be far ahead)",
    )
    command.add_argument(
        "--memory",
        type=times,
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


def optimize(command: argparse.ArgumentParser) -> None:
    """How `refold optimize` measures and judges."""
    command.add_argument(
        "--seconds", type=positive, default=3.0, help="time spent on each comparison (default 3)"
    )
    command.add_argument(
        "--no-tune",
        action="store_true",
        help="cut products on a GPU, and choose who computes convolutions, by rule; do not time"
        " (times are kept in ~/.cache/refold)",
    )
    command.add_argument(
        "--no-compile",
        action="store_true",
        help="do not measure against torch.compile (which takes a while to compile)",
    )
    command.add_argument(
        "--baselines",
        action="store_true",
        help="measure against max-autotune, reduce-overhead, channels-last and cudnn.benchmark too",
    )
    command.add_argument(
        "--full",
        action="store_true",
        help="end with the judge's full verdict, which leaves nothing out (default: the quick one)",
    )


def target(name: str) -> str:
    """A target's name."""
    if name not in DEVICES:
        raise argparse.ArgumentTypeError(
            f"unknown target {name!r}; the targets are {', '.join(DEVICES)}"
        )
    return name


def positive(text: str) -> float:
    """A number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a positive number, came {text!r}")
    return value


def times(text: str) -> float:
    """A number that is not negative; it may be infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"expected a number that is not negative, came {text!r}")
    return value
