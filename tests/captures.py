"""Captures of the zoo's models, each made once for all targets and tests of a process.

A capture takes nearly all of the time that writing a file takes, and knows nothing of a target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

from refold import pipeline
from refold.capture import Captured
from zoo import CASES

_KEPT: dict[tuple[type[nn.Module], bool], Captured] = {}


@contextmanager
def captured_once() -> Iterator[None]:
    """Inside, models of the zoo as they are made after `torch.manual_seed(0)` are captured once."""
    real = pipeline.capture

    def capture(
        module: nn.Module, inputs: Sequence[Any], *, training: bool, **more: Any
    ) -> Captured:
        key = type(module), training
        assert key[0] in CASES.values(), "another module than one of the zoo's"
        if key not in _KEPT:
            _KEPT[key] = real(module, inputs, training=training, **more)
        return _KEPT[key]

    with mock.patch.object(pipeline, "capture", capture):
        yield


def drawn(name: str) -> tuple[nn.Module, list[torch.Tensor]]:
    """A model of the zoo and its inputs, of whose kind one capture is kept."""
    torch.manual_seed(0)
    module = CASES[name]()
    return module, module.inputs()
