"""Whether a fast module stays fast in ordinary use: one line for each way to write parameters, to
change the model, or to call it.

    python bench/ordinary.py

After each event the line says "fast", or why the original forward was taken. The events are those
of tests/lives.py. tests/test_life.py holds the results right; this table shows that they are not
right because the original is always called.
"""

from __future__ import annotations

import copy
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import refold

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
life = importlib.import_module("lives")


def after(made: nn.Module, event: Callable[[nn.Module], object]) -> str:
    """What the second call after an event does."""
    fast, x = copy.deepcopy(made).eval(), torch.randn(9, life.WIDTH)
    try:
        with torch.no_grad():
            fast(x)
        event(fast)
        with torch.no_grad():
            fast(x), fast(x)
        found = refold.status(fast)
        return "fast" if found.fast else f"original: {found.reason}"
    finally:
        life.SETTINGS["shift"] = 0.5
        while life.UNDO:
            setattr(*life.UNDO.pop())


def main() -> None:
    logging.getLogger("refold").setLevel(logging.CRITICAL)
    x = torch.randn(16, life.WIDTH)
    kinds = (life.Net, life.Listed, life.Tied)
    made = {k: refold.optimize(k(), x, measure=False) for k in kinds}
    rows = [("write", name, life.Net, event) for name, event in life.WRITES.items()]
    rows += [("structure", name, *row) for name, row in life.STRUCTURES.items()]
    fast = 0
    for kind, name, cls, event in rows:
        said = after(made[cls], event)
        fast += said == "fast"
        print(f"{kind}: {name}: {said}", flush=True)
    print(f"{fast} of {len(rows)} stay fast")


if __name__ == "__main__":
    main()
