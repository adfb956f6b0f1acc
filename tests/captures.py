"""Captures of the zoo's models, each made once for all targets and tests of a process.

A capture takes nearly all of the time that writing a file takes, and knows nothing of a target.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

import refold.derive
from refold.capture import Captured, CaptureError, capture
from refold.derive import Derivation, Options, derive
from refold.devices import DeviceModel
from refold.families.samples import Sample
from zoo import CASES

_KEPT: dict[tuple[type[nn.Module], torch.dtype, bool], Captured | CaptureError] = {}


@contextmanager
def captured_once() -> Iterator[None]:
    """Inside, models of the zoo as they are made by `drawn` are captured once."""
    real = refold.derive.capture

    def once(module: nn.Module, inputs: Sequence[Any], *, training: bool, **more: Any) -> Captured:
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

    with mock.patch("refold.derive.capture", once):
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


_OTHERS: dict[tuple[Hashable, bool], Captured] = {}
_DERIVED: dict[tuple[Sample, str, str], Derivation] = {}


@contextmanager
def captured_as(key: Hashable) -> Iterator[None]:
    """Inside, modules that are equal where the key is are captured once in each mode."""

    def once(module: nn.Module, inputs: Any, *, training: bool, **more: Any) -> Captured:
        if (key, training) not in _OTHERS:
            _OTHERS[key, training] = capture(module, inputs, training=training, **more)
        return _OTHERS[key, training]

    with mock.patch("refold.derive.capture", once):
        yield


def derived(sample: Sample, device: DeviceModel) -> Derivation:
    """A sample's way from its captured graph to its plan, gone once for each device.

    device: one whose convolutions are all chosen alike for its name and its accuracy.
    """
    key = (sample, device.name, device.float32)
    if key not in _DERIVED:
        torch.manual_seed(0)
        with captured_as(sample):
            options = Options(measure=False, accuracy=False)
            made = derive(sample.module(), sample.inputs(), device, options)
        (_DERIVED[key],) = made
    return _DERIVED[key]


def forget() -> None:
    """Keep no captures any longer."""
    _KEPT.clear()
