"""docs/extending.md: its differences fit the source as it is, and what they add works.

All of them are applied to one copy of the source, and the programs under them run there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "extending.md"


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", text)


def hunks(diff: str) -> Iterator[tuple[str, str, str]]:
    """Of a difference: file, its lines before, its lines after."""
    for part in re.split(r"(?m)^--- ", diff)[1:]:
        file, _, body = part.partition("\n")
        for hunk in re.split(r"(?m)^@@.*\n", body):
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            yield file.strip(), before, after


def apply(diff: str, root: Path) -> None:
    """Raises ValueError where the lines before do not stand once in their file. A file that is not
    there is made of lines that have none before."""
    for file, before, after in hunks(diff):
        if not before and not (root / file).exists():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(after)
            continue
        text = (root / file).read_text()
        if text.count(before) != 1:
            raise ValueError(f"{file} has {text.count(before)} times:\n{before}")
        (root / file).write_text(text.replace(before, after))


def changed(page: str, folder: Path) -> None:
    """A copy of the source with all differences of a page."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    for diff in blocks(page, "diff"):
        apply(diff, folder)


def test_all_differences_fit(tmp_path: Path) -> None:
    changed(PAGE.read_text(), tmp_path)


def test_the_page_works(tmp_path: Path) -> None:
    page = PAGE.read_text()
    changed(page, tmp_path)
    program = "\n\n".join(["import refold", *blocks(page, "python"), "print(refold.__file__)"])
    (tmp_path / "program.py").write_text(program)
    settings = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
    # the samples of the page's family are tests, and find that it claims too much
    family = tmp_path / "src/refold/families/scan/__init__.py"
    assert _tests_of_samples("scan", settings) == 0
    family.write_text(family.read_text().replace(" or not on_the_cpu", ""))
    assert _tests_of_samples("scan", settings) == 1


def _tests_of_samples(name: str, settings: dict[str, str]) -> int:
    """What pytest says of the tests of a family's samples, but for what is compiled."""
    chosen = ["tests/test_families.py", "-k", f"claimed and {name}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *chosen]
    return subprocess.run(command, env=settings, cwd=ROOT, capture_output=True).returncode


def test_each_part_has_a_difference_and_a_program() -> None:
    parts = re.split(r"(?m)^## ", PAGE.read_text())[1:]
    shown = [p.partition("\n")[0] for p in parts if blocks(p, "diff") and blocks(p, "python")]
    assert shown == ["An op", "A rule", "A reduction", "A device", "A family of kernels"]


# what each part changes beside files of its own: a row, or a line of a list
TOUCHED = {
    "An op": {"ir/ops/pointwise.py"},
    "A rule": {"rules/pointwise.py"},
    "A reduction": {"ir/ops/reductions.py", "kernels/folded.h"},
    "A device": {"devices/table.py"},
    "A family of kernels": {"families/__init__.py"},
}


def test_each_part_is_added_by_files_of_its_own_and_a_row() -> None:
    for part in re.split(r"(?m)^## ", PAGE.read_text())[1:]:
        files = {f for diff in blocks(part, "diff") for f, _, _ in hunks(diff)}
        there = {f.removeprefix("src/refold/") for f in files if (ROOT / f).exists()}
        assert there == TOUCHED[part.partition("\n")[0]]


def test_a_difference_that_does_not_fit_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\ntwo\n")
    apply("--- a.py\n one\n+half\n two\n", tmp_path)
    assert (tmp_path / "a.py").read_text() == "one\nhalf\ntwo\ntwo\n"
    for diff in ("--- a.py\n two\n+three\n", "--- a.py\n four\n+five\n"):
        with pytest.raises(ValueError, match=r"a\.py has (0|2) times"):
            apply(diff, tmp_path)
