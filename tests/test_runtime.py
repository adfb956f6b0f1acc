"""The runtime as emitted files hold it: one namespace, nothing of refold's own."""

from __future__ import annotations

import re
from importlib import resources

import torch

import refold.runtime
from refold.emit.embed import runtime_text
from refold.runtime.settings import _refold_setting


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
        for name in ("module", "cpu", "cuda")
    ]
    own = defined(runtime_text("cuda"))
    assert len(own) > 40 and len(set(own)) == len(own)
    assert all(name.lower().startswith("_refold") for name in own)
    for text in templates:
        assert not set(own) & set(defined(text))


def test_the_text_is_that_of_the_files():
    """Word for word, but for docstrings of files and imports."""
    text = runtime_text("cuda")
    assert "import refold" not in text and "from refold" not in text
    for part in (*refold.runtime.PARTS, *refold.runtime.MORE_PARTS["cuda"]):
        source = resources.files("refold.runtime").joinpath(f"{part}.py").read_text()
        for body in re.findall(r"(?ms)^((?:def|class) .*?)(?=^\S|\Z)", source):
            assert body.strip() in text
    compile(text, "runtime", "exec")


def test_functions_of_one_name_are_told_apart():
    def made(text):
        scope = {}
        exec(text, scope)
        return _refold_setting(scope["f"])

    first = made("def f(x):\n    return x + 1")
    assert first == made("\n\ndef f(x):\n    return x + 1")  # wherever it stands
    others = (
        *("def f(x):\n    return x + 2", "def f(x):\n    return x * 1"),
        "def f(x, y=2):\n    return x + 1",
        "import functools\ndef g(f):\n    return functools.wraps(f)(lambda x: f(f(x)))\n"
        "@g\ndef f(x):\n    return x + 1",
        "def f(x):\n    return (lambda y: y + 2)(x)",
        "def f(x):\n    return (lambda y: y + 3)(x)",
    )
    assert len({first, *map(made, others)}) == 1 + len(others)
    assert _refold_setting(torch.nn.functional.relu) == "torch.relu()"
