"""What somebody reads of an emitted file: the model's own part, before what is in every file.

In this order: promise and derivation, the original, folded parameters, the fast forward and
ModelNew, what they assume, the kernels.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from refold import contract, pipeline
from refold.derive import Options
from refold.emit.lines import WIDTH, fitted
from test_golden import SIZES

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = sorted((ROOT / "problems").glob("*.py"))
MOST = 320  # lines
LINE = "# Below: "
ORDER = (
    "# Made by refold",
    "class Model(",
    "# --- Folded parameters",
    "# --- The fast forward",
    "class ModelNew(",
    "# --- What is assumed",
    "# --- This model's kernels",
    LINE,
)


def own_part(text: str) -> list[str]:
    lines = text.splitlines()
    return lines[: next(i for i, line in enumerate(lines) if line.startswith(LINE))]


def for_ampere(problem: Path) -> str:
    reference = contract.load(problem, SIZES)
    target, device = pipeline.target_for("cuda:sm_80", "ieee")
    given = reference.make(0), reference.inputs(1), reference.source_with_sets, problem.name
    result = pipeline.run(*given, target, device, Options(measure=False, accuracy=False))
    assert result.text is not None
    return result.text


@pytest.mark.parametrize("target", ["cpu", "sm_90", "sm_80"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.stem)
def test_the_own_part_is_short_and_in_order(problem: Path, target: str) -> None:
    folder = {"cpu": "tests/golden", "sm_90": "examples"}.get(target)
    text = (ROOT / folder / problem.name).read_text() if folder else for_ampere(problem)
    own = own_part(text)
    assert len(own) <= MOST
    assert [line for line in own if len(line) > WIDTH] == []
    places = [f"\n{text}".find(f"\n{start}") for start in ORDER]
    found = [place for place in places if place >= 0]  # not every file has folded parameters
    assert found == sorted(found) and len(found) >= len(ORDER) - 1
    called = re.findall(r"(?m)^RF_(?:KERNEL|PRODUCT)\((\w+),", "\n".join(own))
    below = text[len("\n".join(own)) :]
    assert called and [n for n in called if re.search(rf"\b{n}\b", below)] == []
    nameless = re.compile(r"\b[ckprtvy]\d+\b")  # t17
    assert [line for line in own if nameless.search(line)] == []


def test_a_statement_is_broken_where_python_allows_it() -> None:
    names = ", ".join(f"value{i}" for i in range(20))
    for line in (
        f"result = called({names})",
        f"{names} = cache.values",
        f"return {names}",
        f'x = called("a, b", ({names}), [1, 2])',
        "if " + " or ".join(f"value{i} is None" for i in range(9)) + ":",
    ):
        assert len(line) > WIDTH
        parts = fitted(f"    {line}")
        assert len(parts) > 1 and all(len(p) <= WIDTH for p in parts)
        body = "        pass\n" if line.endswith(":") else ""
        compile("def function():\n" + "\n".join(parts) + "\n" + body, "text", "exec")
    assert fitted("short = 1") == ["short = 1"]
