"""Words that the field does not use stay out: each row says what is written instead.

A row is added where a word has been renamed everywhere that it says. C++, and what emitted files
hold, come last: a changed name there changes every file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ("src/**/*.py", "src/**/*.jinja", "bench/**/*.py", "tests/**/*.py")
CPP = ("src/**/*.h", "src/**/*.cuh")
TEXTS = ("*.md", "docs/**/*.md")
OWN = Path(__file__)


@dataclass(frozen=True)
class Word:
    """old: a regular expression, of whole words. instead: what the field says. where: patterns of
    paths."""

    old: str
    instead: str
    where: tuple[str, ...] = (*PYTHON, *CPP, *TEXTS)


WORDS = (
    Word("is_beside", "is_rematerialized"),
    Word("a_vector", "column_shape"),
    Word("joints|fusion_breaks", "the price of the plan"),
    Word("TAIL|EPILOGUE_DISCOUNT", "NOT_OVERLAPPED"),
    Word("[Cc]opy engines?", "TMA", (*PYTHON, *TEXTS)),
    Word("absorb(s|ed)?", "fuse", PYTHON),
    Word("finishers?", "finalize kernel"),
    Word("leave_part|join_parts", "store_partial, reduce_partials", (*PYTHON, *TEXTS)),
    Word("share_out|sum_of_parts", "splitk_reduce", (*PYTHON, *TEXTS)),
    Word("(give|take)_registers", "setmaxnreg_dec, setmaxnreg_inc", (*PYTHON, *TEXTS)),
    Word("by_team|by_pass", "warps per row, multi-block", (*PYTHON, *TEXTS)),
    Word("strangers", "unrelated processes"),
    Word("books|surroundings", "task kinds, environment"),
    Word("shaken|eager_settled|settle_at", "perturbed run, resolved tie", (*PYTHON, *TEXTS)),
)


def uses(word: Word, root: Path) -> Iterator[str]:
    """Where a word stands under a root: path, line, text."""
    pattern = re.compile(rf"(?<!\w)(?:{word.old})(?!\w)")
    for path in sorted({p for glob in word.where for p in root.glob(glob)}):
        if path == OWN or "golden" in path.parts or "egg-info" in str(path):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(root)}:{number}: {line.strip()}"


@pytest.mark.parametrize("word", WORDS, ids=lambda w: w.old)
def test_an_old_word_stays_out(word: Word) -> None:
    found = list(uses(word, ROOT))
    assert not found, f"write {word.instead} instead:\n" + "\n".join(found)


def test_an_old_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("A copy engine\nand copyengines\n")
    word = Word("[Cc]opy engine", "TMA", TEXTS)
    assert list(uses(word, tmp_path)) == ["docs/page.md:1: A copy engine"]
