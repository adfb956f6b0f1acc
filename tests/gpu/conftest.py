"""GPU tests run where there is a Hopper GPU; elsewhere the emulator runs small cases of many."""

from __future__ import annotations

import math
import os

import pytest
import torch


def _why_not() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return None if major == 9 else f"the device has compute capability {major}.{minor}, not 9.0"


def _is_emulated(item: pytest.Item) -> bool:
    """Whether the emulator runs a case: its module says of which tests, and how large."""
    tests = getattr(item.module, "EMULATED", {})
    if item.originalname not in tests:
        return False
    most = tests[item.originalname] * float(os.environ.get("REFOLD_EMULATOR", 1))
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    sizes = [v for v in parameters if isinstance(v, tuple)]
    return all(math.prod(s) <= most for s in sizes)


@pytest.fixture(autouse=True)
def convolutions_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's are TF32 by default, and its error is what results are measured by."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def pytest_report_header() -> str:
    why = _why_not()
    return f"tests/gpu: {'run on ' + torch.cuda.get_device_name() if why is None else why}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _why_not() is None:
        return
    gpu = [i for i in items if i.get_closest_marker("gpu") and not _is_emulated(i)]
    config.hook.pytest_deselected(items=gpu)
    left_out = set(gpu)
    items[:] = [i for i in items if i not in left_out]
