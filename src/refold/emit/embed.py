"""The runtime as it stands in an emitted file: the text of runtime/, one file after the other."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from refold.runtime import MORE_PARTS, PARTS


@cache
def runtime_text(device: str) -> str:
    """The files of runtime/ word for word, without their imports of one another; each import of
    other modules stands once, first. device: "cpu" or "cuda"."""
    imports: dict[str, None] = {}
    bodies = []
    for part in (*MORE_PARTS[device], *PARTS):
        text = resources.files("refold.runtime").joinpath(f"{part}.py").read_text()
        text = re.sub(r'\A"""(.*?)"""\n', _as_comment, text, flags=re.DOTALL)
        text = re.sub(r"(?m)^from __future__ .*\n", "", text)
        text = re.sub(r"(?m)^from refold\.runtime\.\w+ import (?:\([^)]*\)|.*)\n", "", text)
        for line in re.findall(r"(?m)^(?:import|from) .*$", text):
            imports.setdefault(line)
        text = re.sub(r"(?m)^(?:import|from) .*\n", "", text)
        bodies.append(re.sub(r"\n{4,}", "\n\n\n", text).strip("\n"))
    return "\n".join(imports) + "\n\n\n" + "\n\n\n".join(bodies)


@cache
def _owners() -> dict[str, str]:
    """The part of the runtime that has each name at the top of its file."""
    found = {}
    for part in dict.fromkeys([*PARTS, *(p for parts in MORE_PARTS.values() for p in parts)]):
        text = resources.files("refold.runtime").joinpath(f"{part}.py").read_text()
        for name in re.findall(r"(?m)^(?:def |class )?(_[rR]efold\w*|_REFOLD\w*)", text):
            found[name] = part
    return found


def runtime_imports(text: str) -> str:
    """The imports of all that a text takes from the runtime, for a text that does not embed it."""
    owners, parts = _owners(), dict[str, set[str]]()
    for name in set(re.findall(r"\b_(?:[rR]efold|REFOLD)\w*", text)):
        own = re.search(rf"(?m)^(?:def {name}\b|{name} = )", text)
        if name in owners and own is None:
            parts.setdefault(owners[name], set()).add(name)
    return "\n".join(
        f"from refold.runtime.{part} import {', '.join(sorted(names))}"
        for part, names in sorted(parts.items())
    )


def _as_comment(found: re.Match[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in found[1].strip().splitlines())
