"""Attention with dropout -> the text of a Python module that stands in for a call of it."""

from __future__ import annotations

from refold import __version__
from refold.codegen.headers import COMMON, header, included
from refold.emit.cuda import CudaTarget
from refold.emit.embed import runtime_imports
from refold.emit.source import Source
from refold.emit.template import render
from refold.families.attention.dropout import HEADERS, MULTIPLE, Dropout, kernel_text


def emit_attention_dropout(dropped: Dropout, target: CudaTarget) -> str:
    """The text of a module with `call(args)`, which empties the list of its arguments and gives the
    list of its results: what PyTorch's call gives, or of a gradient's the first three."""
    needed = included("cuda", ["run.cuh", HEADERS[dropped.gradient]])
    headers = ["#define PY_SSIZE_T_CLEAN", *map(header, COMMON)]
    headers += [header(f"cuda/{h}") for h in needed]
    kernels = "\n".join(["namespace rf {", kernel_text(dropped), "}  // namespace rf"])
    source = Source("\n".join(headers).rstrip("\n"), kernels)
    values = {
        "version": __version__,
        "target": target.name,
        "words": dropped.words(),
        "probability": repr(dropped.probability),
        "causal": dropped.causal,
        "scale": repr(dropped.scale),
        "gradient": dropped.gradient,
        "multiple": MULTIPLE,
        "cpp": source,
        "build": target.build([], source).strip("\n"),
    }
    text = render("attention_dropout.py.jinja", imports="", **values)
    made = render("attention_dropout.py.jinja", imports=runtime_imports(text), **values)
    return "\n".join(line.rstrip() for line in made.splitlines()).rstrip("\n") + "\n"
