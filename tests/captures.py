"""Captures of the zoo's models, each made once for all targets and tests of a process.

A capture takes nearly all of the time that writing a file takes, and knows nothing of a target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import torch
from torch import nn

import refold.derive
from refold.capture import Captured, CaptureError
from refold.families.samples import Sample
from zoo import CASES

_KEPT: dict[tuple[type[nn.Module], torch.dtype, bool], Captured | CaptureError] = {}


@contextmanager
def captured_once() -> Iterator[None]:
    """Inside, models of the zoo as they are made by `drawn` are captured once."""
    real = refold.derive.capture

    def capture(
        module: nn.Module, inputs: Sequence[Any], *, training: bool, **more: Any
    ) -> Captured:
        assert type(module) in CASES.values(), "another module than one of the zoo's"
        key = type(module), _dtype_of(module, inputs), training
        if key not in _KEPT:
            try:
                _KEPT[key] = real(module, inputs, training=training, **more)
            except CaptureError as error:
                _KEPT[key] = error
        found = _KEPT[key]
        if isinstance(found, CaptureError):
            raise found
        return found

    with mock.patch("refold.derive.capture", capture):
        yield


def _dtype_of(module: nn.Module, inputs: Sequence[Any]) -> torch.dtype:
    """The dtype of a model's floats."""
    tensors = [*(t for t in inputs if isinstance(t, torch.Tensor)), *module.parameters()]
    return next(t.dtype for t in tensors if t.is_floating_point())


def drawn(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, list[torch.Tensor]]:
    """A model of the zoo and its inputs, of whose kind one capture is kept.

    dtype: what their floats of 32 bits become.
    """
    torch.manual_seed(0)
    module = CASES[name]()
    inputs = module.inputs()
    if dtype == torch.float32:
        return module, inputs
    given = [i.to(dtype) if _is_float32(i) else i for i in inputs]
    return module.to(dtype), given


def _is_float32(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


@cache
def captures_of(sample: Sample) -> dict[bool, Any]:
    """The captures of a family's sample by mode: what is put there serves every file's tests."""
    return {}


def forget() -> None:
    """Keep no captures any longer."""
    _KEPT.clear()
