"""The files under examples/ are what `refold optimize --target cuda:sm_90 --no-tune` writes.

python tests/test_examples.py --write     writes them anew
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from refold import contract, pipeline
from refold.derive import Options
from refold.emit.cuda import compile_emitted

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = sorted((ROOT / "problems").glob("*.py"))


def emitted(problem: Path) -> str:
    """The file for a problem at full size, by the rule for schedules, for fp32's accuracy."""
    reference = contract.load(problem)
    target, device = pipeline.target_for("cuda:sm_90", "ieee")

    def run() -> str:
        module, inputs = reference.make(0), reference.inputs(1)
        title, source = f"The original is {problem.name}", reference.source_with_sets
        options = Options(measure=False, accuracy=False)
        result = pipeline.run(module, inputs, source, title, target, device, options)
        assert result.text is not None, result.reasons
        return result.text

    try:
        with torch.device("meta"):  # only shapes matter, and the largest weight has 4 GB
            return run()
    except NotImplementedError:  # buffers of batch norms are compared, which needs values
        return run()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.stem)
def test_the_example_is_what_refold_writes(problem):
    assert emitted(problem) == (ROOT / "examples" / problem.name).read_text()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.stem)
def test_each_has_its_story(problem):
    story = (ROOT / "examples" / f"{problem.stem}.md").read_text()
    assert story.startswith("# ") and 150 < len(story.split()) < 900
    assert f"{problem.stem}.md" in (ROOT / "examples" / "README.md").read_text()


@pytest.mark.parametrize("problem", [PROBLEMS[0], PROBLEMS[3]], ids=lambda p: p.stem)
def test_the_kernels_compile(problem):
    """Every template stands in these two."""
    assert compile_emitted((ROOT / "examples" / problem.name).read_text()) is None


if __name__ == "__main__" and "--write" in sys.argv:
    (ROOT / "examples").mkdir(exist_ok=True)
    for p in PROBLEMS:
        (ROOT / "examples" / p.name).write_text(emitted(p))
