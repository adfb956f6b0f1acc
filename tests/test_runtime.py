"""The runtime as emitted files hold it: one namespace, nothing of refold's own."""

from __future__ import annotations

import re
from importlib import resources

import refold.runtime
from refold.emit.embed import runtime_text


def defined(text: str) -> list[str]:
    """The names that a text defines at its top."""
    names = re.findall(r"(?m)^(?:def|class) (\w+)", text)
    names += [
        n for line in re.findall(r"(?m)^(\w[\w, ]*)(?::.*)? = ", text) for n in line.split(", ")
    ]
    return names


def test_every_name_is_defined_once():
    templates = [
        resources.files("refold.emit").joinpath(f"{name}.py.jinja").read_text()
        for name in ("module", "cpu", "cuda", "alone")
    ]
    own = defined(runtime_text())
    assert len(own) > 40 and len(set(own)) == len(own)
    assert all(name.lower().startswith("_refold") for name in own)
    for text in templates:
        assert not set(own) & set(defined(text))


def test_the_text_is_that_of_the_files():
    """Word for word, but for docstrings of files and imports."""
    text = runtime_text()
    assert "import refold" not in text and "from refold" not in text
    for part in refold.runtime.PARTS:
        source = resources.files("refold.runtime").joinpath(f"{part}.py").read_text()
        for body in re.findall(r"(?ms)^((?:def|class) .*?)(?=^\S|\Z)", source):
            assert body.strip() in text
    compile(text, "runtime", "exec")
