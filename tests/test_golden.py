"""The five emitted files, word for word, but for the template headers that they embed.

python tests/test_golden.py --write     writes them anew; the diff is what a change really did
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from refold import contract, pipeline
from refold.codegen.headers import COMMON, header, included
from refold.derive import Options
from refold.emit.embed import runtime_text

HERE = Path(__file__).resolve().parent
PROBLEMS = sorted((HERE.parent / "problems").glob("*.py"))
HEADERS = included("cpu", ["matmul.h"])
SIZES = ["batch_size=64", "in_features=96", "out_features=128"]


def emitted(problem: Path) -> str:
    """The file for one problem, at sizes that need no memory, without timing."""
    reference = contract.load(problem, SIZES)
    target, device = pipeline.target_for("cpu")
    result = pipeline.run(
        reference.make(0),
        reference.inputs(1),
        reference.source_with_sets,
        f"The original is {problem.name}",
        target,
        device,
        Options(measure=False),
    )
    assert result.text is not None
    text = result.text
    for name in (*COMMON, *(f"cpu/{h}" for h in HEADERS)):
        text = text.replace(header(name).strip("\n"), f"// <{name}>")
    text = text.replace(runtime_text("cpu"), "# <runtime>")
    # the extension's name is a hash over those headers
    head, mark, tail = text.partition('_REFOLD_NAME = "refold_cpu_')
    return head + mark + "HASH" + tail[tail.index('"') :]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.stem)
def test_the_emitted_text_is_the_golden_one(problem):
    assert emitted(problem) == (HERE / "golden" / problem.name).read_text()


def test_the_text_is_stable():
    assert emitted(PROBLEMS[3]) == emitted(PROBLEMS[3])


def test_every_header_stands_in_a_product():
    text = (HERE / "golden" / PROBLEMS[1].name).read_text()
    assert all(f"// <cpu/{name}>" in text for name in HEADERS)


def test_readme_shows_what_is_emitted():
    """Line after line, at whatever sizes."""
    shown = (
        (HERE.parent / "docs" / "use.md").read_text().partition("## An emitted file, in part")[2]
    )
    shown = shown.partition("\n## ")[0]
    text = _without_sizes((HERE / "golden" / PROBLEMS[1].name).read_text())
    for block in re.findall(r"```\w+\n(.*?)```", shown, re.DOTALL):
        at = 0
        for line in (line.strip() for line in _without_sizes(block).splitlines()):
            if line not in ("", "..."):
                at = text.find(line, at)
                assert at >= 0, line


def _without_sizes(text: str) -> str:
    return re.sub(r"\b\d+\b", "N", text)


if __name__ == "__main__" and "--write" in sys.argv:
    for p in PROBLEMS:
        (HERE / "golden" / p.name).write_text(emitted(p))
