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


def _as_comment(found: re.Match[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in found[1].strip().splitlines())
