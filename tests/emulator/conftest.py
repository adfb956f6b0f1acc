"""Where there is a GPU, the tensors of tests/gpu lie on it, and its kernels run there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        return
    own = Path(__file__).parent / "test_kernels.py"
    config.hook.pytest_deselected(items=[i for i in items if i.path == own])
    items[:] = [i for i in items if i.path != own]
