"""What forward returns, and what it sets attributes to: containers of results as Python text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.capture import Captured
from refold.capture.containers import plain_text, written
from refold.capture.forms import Given, OutputIndex, Viewed
from refold.ir import Sym
from refold.plan.layout import places_of


@dataclass(frozen=True)
class Structure:
    """Writes trees of results.

    class_names: of the containers' classes. sizes: Python text of named sizes. device: text of the
    arguments' device.
    """

    captured: Captured
    class_names: Mapping[type, str]
    sizes: Mapping[str, str]
    device: str

    def text(self, tree: Any, texts: list[str]) -> str:
        """The text of a result, or of what an attribute is set to."""

        def leaf(value: Any) -> str:
            if isinstance(value, OutputIndex):
                return texts[value.index]
            if isinstance(value, Given):
                return value.path
            if isinstance(value, Viewed):
                return self.viewed(value)
            if isinstance(value, Sym):
                return value.text(self.sizes)
            if isinstance(value, torch.device) and value == self.captured.device:
                return self.device
            return plain_text(value)

        return written(tree, leaf, self.class_names)

    def viewed(self, view: Viewed) -> str:
        """A view, by the calls that eager makes; in whatever layout its source is."""

        def text(value: Any) -> str:
            if isinstance(value, (list, tuple)):
                return "[" + ", ".join(map(text, value)) + "]"
            if isinstance(value, Sym):
                return value.text(self.sizes)
            if isinstance(value, (torch.layout, torch.memory_format)):
                return str(value)
            return plain_text(value)

        made = view.path
        for target, args, kwargs, index in view.calls:
            parts = [made, *map(text, args), *(f"{k}={text(v)}" for k, v in kwargs)]
            made = f"torch.ops.{target}({', '.join(parts)})"
            made += "" if index is None else f"[{index}]"
        return made


def image_paths(captured: Captured) -> list[str]:
    """Where forward's images are found: its floating tensors of four or five dimensions."""
    return [
        f.path
        for f in captured.tensors
        if f.shape is not None
        and places_of(len(f.shape)) is not None
        and f.dtype is not None
        and f.dtype.is_floating_point
    ]
