"""GPU tests run where there is a Hopper GPU; elsewhere the emulator runs small cases of many."""

from __future__ import annotations

import math
import os

import pytest
import torch

from .emitted import FILES, build_beforehand, file_of
from .machine import EMULATED


def _why_not() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device"
    major, minor = torch.cuda.get_device_capability()
    return None if major == 9 else f"the device has compute capability {major}.{minor}, not 9.0"


def _is_emulated(item: pytest.Item) -> bool:
    """Whether the emulator runs a case.

    A module says of which tests, how large the product of a case's sizes may be (EMULATED), and
    which values of some parameters will do (EMULATED_ONLY). With REFOLD_EMULATOR=10, say, all
    values are taken, and cases ten times as large.
    """
    tests = getattr(item.module, "EMULATED", {})
    if item.originalname not in tests:
        return False
    factor = os.environ.get("REFOLD_EMULATOR")
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    sizes = [v for v in parameters.values() if isinstance(v, tuple)]
    if any(math.prod(s) > tests[item.originalname] * float(factor or 1) for s in sizes):
        return False
    only = getattr(item.module, "EMULATED_ONLY", {}) if factor is None else {}
    return all(v in only.get(k, (v,)) for k, v in parameters.items())


@pytest.fixture(scope="session", autouse=True)
def emulated_libraries(request: pytest.FixtureRequest) -> None:
    """What the emulator will run of rows and columns, compiled side by side."""
    if EMULATED:
        chosen = [i.callspec.params for i in request.session.items if hasattr(i, "callspec")]
        files = (file_of(p["model"], p.get("dtype", torch.float32)) for p in chosen if "model" in p)
        build_beforehand(dict.fromkeys(f for f in files if f in FILES))


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
