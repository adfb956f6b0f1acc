"""The Python code of each page runs, in order, as a reader would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?ms)^(<!-- gpu -->\n)?```python\n(.*?)^```")
# those whose code another test takes
ELSEWHERE = {
    "docs/extending.md": "test_extending.py changes a copy of the source first",
    "docs/rules.md": "tests/rules prove the rule that it shows",
    "docs/judge.md": "how-to/judging.md has the same calls with their files",
    "docs/use.md": "test_golden.py compares what it shows with an emitted file",
    "docs/backend.md": "tests/backend has these calls; how-to/training.md runs one",
}
PAGES = {
    str(p.relative_to(ROOT)): BLOCK.findall(p.read_text())
    for p in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
}


@pytest.mark.parametrize(
    "name", [n for n, blocks in PAGES.items() if blocks and n not in ELSEWHERE]
)
def test_the_code_runs(name: str, tmp_path: Path) -> None:
    blocks = PAGES[name]
    for _, text in blocks:
        compile(text, name, "exec")
    if any(gpu for gpu, _ in blocks) and not torch.cuda.is_available():
        return  # tests/gpu/test_pages.py runs it
    if "import transformers" in blocks[0][1]:
        pytest.importorskip("transformers")
    script = tmp_path / "page.py"
    script.write_text("\n".join(text for _, text in blocks))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_is_tested_elsewhere_has_code() -> None:
    assert all(PAGES[name] for name in ELSEWHERE)
