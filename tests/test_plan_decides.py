"""A plan decides, and text follows from it alone: what writes text chooses nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "refold"
WRITERS = sorted(
    p
    for glob in ("emit/*.py", "codegen/*.py", "families/*/*kernel*.py", "families/*/packing.py")
    for p in SOURCE.glob(glob)
)

# what text may ask of schedules: what they are, not which one to take
READ = {"FEW_ROWS", "Schedule"}
DECIDES = re.compile(
    r"refold\.(planner|cost|tune|devices\.table|families\.\w+\.(claim|schedules))\b"
)


def decisions(source: str) -> list[str]:
    """What a module imports that chooses schedules or makes plans."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "refold.schedule":
            found += [a.name for a in node.names if a.name not in READ]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{a.name}" for a in node.names]
            found += [n for n in names if DECIDES.match(n)]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
            found += [n for n in names if n == "refold.schedule" or DECIDES.match(n)]
    return found


@pytest.mark.parametrize("path", WRITERS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_what_writes_text_decides_nothing(path: Path) -> None:
    assert not decisions(path.read_text()), f"{path.name}: decide it in the plan, write it here"


@pytest.mark.parametrize(
    "text",
    [
        "from refold.schedule import default_schedule",
        "from refold.families.matmul.schedules import schedule",
        "from refold.planner import make_plan",
        "import refold.schedule",
        "from refold.cost import DeviceModel",
    ],
)
def test_a_decision_where_text_is_written_is_told(text: str) -> None:
    assert decisions(text)
