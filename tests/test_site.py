"""The documentation as a site, the notebooks, and the package: built as a user would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Links(HTMLParser):
    """The addresses that a page links, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {v for k in ("id", "name") if (v := found.get(k))}
        self.links += [v for k in ("href", "src") if (v := found.get(k))]


def run(*command: str, **more: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **more}, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_its_links_lead_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="pip install -e '.[docs]'")
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path))
    pages = {p: Links(p) for p in tmp_path.rglob("*.html") if p.name != "404.html"}
    gone = []
    for page, found in pages.items():
        for link in found.links:
            at, _, anchor = link.partition("#")
            if re.match(r"\w+:", at):
                continue
            target = (page.parent / at).resolve() if at else page
            if not target.exists() or (anchor and target in pages):
                known = target in pages and anchor in pages[target].anchors
                if not known and not anchor.startswith("__"):
                    gone.append(f"{page.relative_to(tmp_path)}: {link}")
    assert gone == []
    assert "refold.api.optimize" in (tmp_path / "reference.html").read_text()


def test_the_package(tmp_path: Path) -> None:
    pytest.importorskip("build")
    pytest.importorskip("twine")
    run(sys.executable, "-m", "build", "--no-isolation", "-o", str(tmp_path / "dist"))
    made = sorted(map(str, (tmp_path / "dist").iterdir()))
    assert [Path(m).suffix for m in made] == [".whl", ".gz"]
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", *made)
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", made[0], PYTHONPATH="")
    has = (
        "import importlib.resources as r, importlib.util as u; print(u.find_spec('refold').origin)"
    )
    assert str(tmp_path) in run(python, "-c", has, PYTHONPATH="")
    # what it needs, from here: PyTorch is large
    needed = os.pathsep.join(p for p in sys.path if p.endswith("site-packages"))
    run(python, "-c", "import refold; print(refold.__version__)", PYTHONPATH="")
    told = run(str(Path(python).with_name("refold")), "--version", PYTHONPATH=needed)
    assert told.startswith("refold ")


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook(path: Path, tmp_path: Path) -> None:
    """Its code, cell by cell in one process; IPython is not needed."""
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert code and all(c["outputs"] == [] for c in cells if c["cell_type"] == "code")
    (tmp_path / "cells.py").write_text("\n".join(code))
    subprocess.run([sys.executable, "cells.py"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/how_to_*.py")), ids=lambda p: p.stem)
def test_a_script(path: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(path)], cwd=tmp_path, check=True)


USER = """import torch
import refold
layer = torch.nn.Linear(2, 2)
fast: torch.nn.Linear = refold.optimize(layer, torch.randn(1, 2), progress=print)
own: torch.nn.Linear = refold.original(fast)
is_fast: bool = refold.status(fast).fast
accepted: bool = refold.judge("ref.py", "fast.py").accepted
wrong: int = refold.status(fast)
refold.nothing
"""


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_types(tmp_path: Path, checker: str) -> None:
    """A user's file by the package's own types, which is right but for its last two lines."""
    user = tmp_path / "user.py"
    user.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(user)]
    if checker == "pyright":
        found = shutil.which("pyright")
        if found is None:
            pytest.skip("no pyright on PATH (pip install pyright): types are not asked of it")
        command = [found, "--pythonpath", sys.executable, str(user)]
        settings = {"extraPaths": [str(ROOT / "src")]}
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
        command[-1:] = ["-p", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = re.findall(rf"{user.name}:(\d+):[^\n]*error:?", done.stdout)
    assert lines == ["8", "9"], done.stdout
