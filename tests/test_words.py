"""Words that the field does not use stay out: each row says what is written instead.

A row is added where a word has been renamed everywhere that it says.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ("src/**/*.py", "src/**/*.jinja", "bench/**/*.py", "tests/**/*.py")
CPP = ("src/**/*.h", "src/**/*.cuh")
TEXTS = ("*.md", "docs/**/*.md")
RULES = ("src/refold/rules/*.py", "tests/rules/false*.py")
OWN = Path(__file__)


@dataclass(frozen=True)
class Word:
    """old: a regular expression, of whole words. instead: what the field says. where: patterns of
    paths. in_code: only before a C++ line's comment, where the word may be English; of Python, its
    names alone, those of methods of others (`", ".join`) not among them."""

    old: str
    instead: str
    where: tuple[str, ...] = (*PYTHON, *CPP, *TEXTS)
    in_code: bool = False


WORDS = (
    Word("is_beside", "is_rematerialized"),
    Word("a_vector", "column_shape"),
    Word("joints|fusion_breaks", "the price of the plan"),
    Word("TAIL|EPILOGUE_DISCOUNT", "NOT_OVERLAPPED"),
    Word("[Cc]opy engines?", "TMA"),
    Word("absorb(s|ed)?", "fuse", PYTHON),
    Word("finishers?", "finalize kernel"),
    Word("leave_part|join_parts", "store_partial, reduce_partials"),
    Word("share_out|sum_of_parts", "splitk_reduce"),
    Word("(give|take)_registers", "setmaxnreg_dec, setmaxnreg_inc"),
    Word("by_team|by_pass", "warps per row, multi-block"),
    Word("strangers", "unrelated processes"),
    Word("books|surroundings", "task kinds, environment"),
    # C++ and CUDA, and the Python that writes them
    Word("[Tt]eams?|team_sync|group_sync", "warpgroup, row group, named_barrier_sync", CPP),
    Word("turns?|take_turns?|[a-z]+_turns?", "arrivals, iteration, ping-pong, run_tasks", CPP),
    Word("parts?|[a-z]+_parts?|Parts?", "partials, k_split, hi and lo", CPP),
    Word("portions?|Portions", "Stream-K", CPP),
    Word("rings?|Ring", "pipeline, stages", CPP),
    Word("copy_tile(_to_both)?|barrier_(wait|init|arrive)", "tma_load, mbarrier_*", CPP),
    Word("product_(fence|commit|wait|of_registers)|warp_product", "wgmma_*, mma_sync", CPP),
    Word("Direct|kDirect", "IeeeRS, kRS: A from registers", CPP),
    Word("paired", "2-CTA cluster, multicast", CPP),
    Word("gather(s|ed|_some|_chunk|_units|_into)?|across", "accumulate, horizontal", CPP, True),
    Word("Needs|needs", "WorkspaceSize, size", CPP, True),
    Word(
        "Side|turned|thin|Thin|Sinks", "Operand, transposed, skinny, EpilogueReductions", CPP, True
    ),
    Word(
        "Four|Quad|Single|Again|Known|Work|Place|Cut", "Vec4, Vec4At, MaskedColumn ...", CPP, True
    ),
    Word("finish(_rows?|_columns?)?", "finalize", CPP, True),
    Word("found|kinds?|Found|Kind", "the noun: change, exact type, strategy", CPP, True),
    Word("(first|second)-level cache", "L1, L2", CPP),
    Word("rf::(Needs|Side|Direct|turned|[a-z]+_side|[a-z]+_needs)", "rf::Operand ...", PYTHON),
    # Python's names
    Word(
        "FEW_ROWS|Pace|PACES|direct|direct_splits|may_be_direct",
        "SKINNY_ROWS ...",
        PYTHON,
        True,
    ),
    Word("NARROW|Slot|Field", "HALF_DTYPES, OutputIndex, Argument", ("src/**/*.py",), True),
    Word("vectors", "column_results", ("src/refold/plan/*.py",), True),
    Word("shown|shared|Call", "aliased_states ...", ("src/refold/plan*/*.py",), True),
    Word(
        "ways?|Cut",
        "schedules, ScheduleChooser",
        ("src/refold/schedule.py", "src/refold/tune.py"),
        True,
    ),
    Word("cut|join|joined|turn|TURN", "slice, cat, transpose", RULES, True),
    Word("flat|wide|fits|spread|met", "is_unit_along ...", RULES, True),
    Word("places|extras", "spatial_axes, output_padding", RULES, True),
    Word(
        "_refold_(unfit|renewed|tell)",
        "_refold_unsupported_device, _refold_folds_ready, _refold_warn_fallback",
        (*PYTHON, "src/**/*.jinja", *TEXTS),
    ),
    Word("obstacle", "fallback_reason", (*PYTHON, *TEXTS)),
    Word("ways?|Way", "Algorithm, every_schedule", ("src/refold/convolve.py",), True),
    Word("unfit", "unsupported", ("src/refold/[!j]*/**/*.py", "src/refold/*.py", "tests/*.py")),
    Word("shaken|eager_settled|settle_at", "perturbed run, resolved tie", (*PYTHON, *TEXTS)),
)


def uses(word: Word, root: Path) -> Iterator[str]:
    """Where a word stands under a root: path, line, text."""
    pattern = re.compile(rf"(?<!\w)(?:{word.old})(?!\w)")
    for path in sorted({p for glob in word.where for p in root.glob(glob)}):
        if path == OWN or "golden" in path.parts or "egg-info" in str(path):
            continue
        lines = _lines(path, word.in_code and path.suffix == ".py")
        for number, line in enumerate(lines, 1):
            if pattern.search(line.partition("//")[0] if word.in_code else line):
                yield f"{path.relative_to(root)}:{number}: {line.strip()}"


@cache
def _lines(path: Path, names: bool) -> list[str]:
    """A file's lines, or the names in each; many words are looked for in them."""
    text = path.read_text()
    return _names(text) if names else text.splitlines()


def _names(text: str) -> list[str]:
    """The names in each line of a Python text, but methods of strings."""
    lines = [""] * (text.count("\n") + 1)
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and (before != "." or token.string != "join"):
            lines[token.start[0] - 1] += f"{token.string} "
        before = token.string
    return lines


@pytest.mark.parametrize("word", WORDS, ids=lambda w: w.old)
def test_an_old_word_stays_out(word: Word) -> None:
    found = list(uses(word, ROOT))
    assert not found, f"write {word.instead} instead:\n" + "\n".join(found)


def test_an_old_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("A copy engine\nand copyengines\n")
    word = Word("[Cc]opy engine", "TMA", TEXTS)
    assert list(uses(word, tmp_path)) == ["docs/page.md:1: A copy engine"]


def test_an_old_name_is_found_in_python(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text('"""Cut."""\ny = ", ".join(z)  # cut\nx = cut(join)\n')
    word = Word("cut|join", "slice, cat", PYTHON, True)
    assert list(uses(word, tmp_path)) == ["src/x.py:3: x cut join"]


def test_an_old_word_is_found_in_cpp(tmp_path: Path) -> None:
    header = tmp_path / "src" / "kernels" / "x.cuh"
    header.parent.mkdir(parents=True)
    header.write_text("int team = 0;  // what they gather\nint teammate, gather;\n")
    found = {word.old: list(uses(word, tmp_path)) for word in WORDS if list(uses(word, tmp_path))}
    assert [line for lines in found.values() for line in lines] == [
        "src/kernels/x.cuh:1: int team = 0;  // what they gather",
        "src/kernels/x.cuh:2: int teammate, gather;",
    ]
