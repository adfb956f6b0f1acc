"""Lower layers never import higher ones; the judge imports the contract alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "refold"
ORDER = [
    "logs",
    "meanwhile",
    "constructor",
    "contract",
    "ir",
    "runtime",
    "capture",
    "rules",
    "schedule",
    "patches",
    "flat",
    "conv_class",
    "convolve",
    "conv_rules",
    "devices",
    "price",
    "engine",
    "accuracy",
    "plan",
    "kernels",
    "codegen",
    "families",
    "planner",
    "emit",
    "turns",
    "measure",
    "baselines",
    "tune",
    "tune_images",
    "subclass",
    "twin",
    "layouts",
    "draws",
    "introspect",
    "derive",
    "pipeline",
    "changed",
    "varying",
    "growth",
    "backend",
    "api",
    "build",
    "wheel",
    "judge",
    "report",
    "suite",
    "cli",
    "entry",
]
# the package's own version may be read anywhere
FREE = {""}


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The layers of refold that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "refold":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                a.name.split(".")[1]
                for a in node.names
                if a.name.startswith("refold.") and a.name != "refold"
            }
    return {f for f in found if f in ORDER}


FILES = sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem in ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_up_the_list_only(path):
    own = layer(path)
    assert own in ORDER, f"{path} is in no layer: add it to ORDER and to DESIGN.md"
    allowed = {"contract", "judge"} if own == "judge" else set(ORDER[: ORDER.index(own) + 1])
    if own == "ir":
        allowed = {"ir"}
    assert imported(path) <= allowed


MOST = 400  # lines of a file
SUFFIXES = (".py", ".jinja", ".h", ".cuh", ".cu", ".cpp")


def too_long(root: Path) -> list[str]:
    """Files of code that are longer than a file may be."""
    folders = (root / folder for folder in ("src", "tests", "bench"))
    files = sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in SUFFIXES)
    return [
        f"{path.relative_to(root)} has {lines} lines: split it along a seam"
        for path in files
        if "golden" not in path.parts
        if (lines := len(path.read_text().splitlines())) > MOST
    ]


def test_files_stay_readable() -> None:
    assert too_long(REPOSITORY) == []


def test_a_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "short.cuh").write_text("x\n" * MOST)
    (tmp_path / "src" / "long.cuh").write_text("x\n" * (MOST + 1))
    assert too_long(tmp_path) == ["src/long.cuh has 401 lines: split it along a seam"]


def mapped(root: str) -> list[str]:
    """The names under a root in DESIGN.md's lists, a folder's with a slash."""
    text = (REPOSITORY / "DESIGN.md").read_text()
    block = text.partition(f"```\n{root}\n")[2].partition("```")[0]
    return re.findall(r"(?m)^  (\w+(?:\.py|/))", block)


def names(folder: Path, known: set[str]) -> set[str]:
    """The Python files and the folders in a folder, but for hidden ones."""
    return {
        f"{p.name}/" if p.is_dir() else p.name
        for p in folder.iterdir()
        if not p.name.startswith((".", "__")) and (p.suffix == ".py" or p.is_dir())
        if not (p / "pyvenv.cfg").exists()
    } - known


def test_the_map_in_design_is_the_tree_in_this_order():
    found = mapped("src/refold/")
    assert [n.removesuffix(".py").removesuffix("/") for n in found] == ORDER
    assert set(found) == names(SOURCE, set())


def test_the_map_of_the_repository_is_the_tree():
    # `out`, `build` and the like are made by the Makefile
    assert set(mapped("./")) == names(REPOSITORY, {"src/", "out/", "build/", "dist/"})


BARE = re.compile(
    r"(?m)^\s*(?:\} )?(?:else )?(?:if constexpr \(.*\)|else)(?: *//.*)?\n\s*#pragma.*"
)


def bare_pragmas(text: str) -> list[str]:
    """Where a pragma is what a choice of constants is followed by, without a brace. nvcc 13.0 then
    leaves out the next statement where the choice is not taken."""
    return BARE.findall(text)


def test_no_pragma_stands_for_the_body_of_a_choice():
    files = [*SOURCE.rglob("*.cuh"), *SOURCE.rglob("*.h")]
    assert {str(f): bare_pragmas(f.read_text()) for f in files if bare_pragmas(f.read_text())} == {}


@pytest.mark.parametrize("choice", ["if constexpr (kOne)", "else", "} else"])
def test_such_a_pragma_is_told(choice: str):
    assert bare_pragmas(f"  {choice}  // why\n#pragma unroll\n    for (;;) {{}}\n")
    assert not bare_pragmas(f"  {choice} {{  // why\n#pragma unroll\n    for (;;) {{}}\n")
