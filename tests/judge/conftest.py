"""Fixtures of the judge's tests."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch

# before any worker: extensions are compiled once, into a folder of this run's own
_EXTENSIONS = tempfile.TemporaryDirectory(prefix="refold-extensions-")
os.environ["TORCH_EXTENSIONS_DIR"] = _EXTENSIONS.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The judge's tests that are marked ``gpu`` run where there is one."""
    if not torch.cuda.is_available():
        reason = pytest.mark.skip(reason="needs a CUDA device")
        for item in items:
            if "gpu" in item.keywords and Path(__file__).parent in item.path.parents:
                item.add_marker(reason)
