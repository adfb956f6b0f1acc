"""The documents: links lead somewhere, the licence is whole, and the package says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(p for g in ("*.md", "docs/**/*.md", "examples/*.md") for p in ROOT.glob(g))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", page.read_text())
    gone = [at for at in links if "://" not in at and not (page.parent / at).exists()]
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_indices_are_code(page: Path) -> None:
    """Two pairs of brackets are a link to what is named elsewhere: the site is not built then."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.S)
    assert not re.findall(r".*\]\[.*", text)


def test_every_page_under_docs_is_named_by_another() -> None:
    named = "".join(p.read_text() for p in PAGES)
    for page in ROOT.glob("docs/*.md"):
        assert f"{page.name})" in named or f"{page.name}]" in named, f"nothing links {page.name}"


def test_the_licence_is_whole_and_the_package_names_it() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text and "the refold authors" in text
    project = (ROOT / "pyproject.toml").read_text()
    for line in ('license = "Apache-2.0"', 'license-files = ["LICENSE"]', 'readme = "README.md"'):
        assert line in project


def test_make_test_is_what_ci_runs_and_what_readme_says() -> None:
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
    assert "\nmake test " in (ROOT / "README.md").read_text()
