"""GPU tests run where there is a Hopper GPU; elsewhere they are left out and the report says so."""

from __future__ import annotations

import pytest
import torch


def _why_not() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return None if major == 9 else f"the device has compute capability {major}.{minor}, not 9.0"


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
    gpu = [i for i in items if i.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=gpu)
    items[:] = [i for i in items if not i.get_closest_marker("gpu")]
