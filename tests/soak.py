"""Soak: random programs over the zoo and random models, refold's output against eager and float64.

    python tests/soak.py [--seconds 3600] [--first SEED] [--only random|nested|zoo|images|NAME]

Hypothesis draws a model and programs of the judge's own steps (`soak_programs`), compares by the
judge's rule (`soak_subjects`), and makes a finding small. Each finding is printed and written to
out/soak/, with what repeats it:

    python tests/soak.py --again out/soak/FILE
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, Verbosity, assume, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent))

import compiler
from soak_models import Named, random_text
from soak_programs import HOW, programs
from soak_subjects import COUNTS, subject
from zoo import CASES

OUT = Path(__file__).resolve().parents[1] / "out" / "soak"
KINDS = ("random", "nested", "zoo", "images")
DTYPES = ("float32", "float32", "float32", "bfloat16", "float64")
PROGRAMS = 16  # of each model at most: making it fast takes as long as hundreds of calls


class Found(AssertionError):
    """What a program shows."""


@st.composite
def names(draw: st.DrawFn, kinds: Sequence[str], target: str, dtypes: Sequence[str]) -> Named:
    """A model of the zoo or a random one. kinds: see `KINDS`, or names of the zoo."""
    kind = draw(st.sampled_from(kinds))
    form = draw(st.sampled_from(("twin", "file")))
    grown = form == "twin" and target == "cpu" and draw(st.booleans())
    if kind in CASES or kind == "zoo":
        name = draw(st.sampled_from(sorted(CASES))) if kind == "zoo" else kind
        return Named(name, form, target, grown=grown)
    if draw(st.booleans()):
        choose: Callable[[Any], Any] = lambda options: draw(st.sampled_from(options))
    else:  # larger ones than Hypothesis draws, which do not become small
        choose = random.Random(draw(st.integers(0, 1 << 30))).choice
    dtype = draw(st.sampled_from(dtypes))
    return Named(random_text(choose, 8, kind), form, target, dtype, grown)


@st.composite
def examples(
    draw: st.DrawFn, kinds: Sequence[str], target: str, dtypes: Sequence[str], how: Sequence[str]
) -> dict[str, Any]:
    """A model and programs for it, as plain data."""
    named = draw(names(kinds, target, dtypes))
    COUNTS["models"] += 1
    try:
        one = subject(named)
    except Exception:  # once more in `check`, where it is a finding
        return {**vars(named), "programs": [], "states": False}
    COUNTS["kept as they are"] += one is None
    assume(one is not None)
    assert one is not None
    drawn = draw(st.lists(programs(one.facts, how), min_size=1, max_size=PROGRAMS))
    return {**vars(named), "programs": drawn, "states": draw(st.booleans())}


def check(example: dict[str, Any]) -> None:
    """Raises Found where refold's output disagrees."""
    one = subject(Named(**{f.name: example[f.name] for f in fields(Named)}))
    assert one is not None
    if example["states"] and one.named.dtype != "float64":  # which has no wider truth
        try:
            one.check_states()
        except AssertionError as error:
            raise Found(f"in all states: {error}") from error
    for program in example["programs"]:
        COUNTS["programs"] += 1
        try:
            one.check(program)
        except AssertionError as error:
            raise Found(str(error)) from error


def a_round(
    number: int,
    kinds: Sequence[str],
    target: str,
    count: int,
    until: float = float("inf"),
    dtypes: Sequence[str] = ("float32",),
    how: Sequence[str] = HOW,
) -> dict[str, Any] | None:
    """One seed's examples; the finding, made small, or None. After ``until`` nothing is run."""
    last: dict[str, Any] = {}

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(examples(kinds, target, dtypes, how))
    def body(example: dict[str, Any]) -> None:
        if time.monotonic() > until and not last:
            return
        try:
            check(example)
        except Exception as error:
            last.update(example=example, said=str(error), kind=type(error).__name__)
            last["trace"] = "" if isinstance(error, Found) else traceback.format_exc()
            raise

    try:
        body()
    except Exception:
        if not last:
            raise
        return last
    return None


def told(finding: dict[str, Any], number: int) -> str:
    """The finding, written to a file."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{number}.json"
    path.write_text(json.dumps(finding["example"], indent=1))
    example = finding["example"]
    lines = [f"--- round {number}: {finding['kind']}: {finding['said']}", finding["trace"]]
    told = [str(example[k]) for k in ("form", "target", "dtype", "grown", "states")]
    lines += [", ".join(told), example["text"]]
    lines += [json.dumps(p) for p in example["programs"]]
    return "\n".join([*lines, f"repeat: python tests/soak.py --again {path}"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--first", type=int, default=None, help="the first seed; else by the time")
    parser.add_argument("--models", type=int, default=20, help="of each seed")
    parser.add_argument("--only", action="append", metavar="KIND or NAME")
    parser.add_argument("--target", choices=("cpu", "torch"), default="cpu")
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES))
    parser.add_argument("--again", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.again is not None:
        check(json.loads(args.again.read_text()))
        print("no disagreement")
        return 0
    kinds = args.only or KINDS
    began, found = time.monotonic(), 0
    number = int(time.time()) if args.first is None else args.first
    until = began + args.seconds
    while time.monotonic() < until:
        finding = a_round(number, kinds, args.target, args.models, until, args.dtype)
        if finding is not None:
            found += 1
            print(told(finding, number), flush=True)
        spent = time.monotonic() - began
        print(f"after {spent:.0f} s, seed {number}: {dict(COUNTS)}, {found} findings", flush=True)
        number += 1
    return 1 if found else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.getLogger("refold").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="refold_soak_") as folder:
        compiler.install(Path(folder))
        sys.exit(main())
