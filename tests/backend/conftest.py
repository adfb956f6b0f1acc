"""Each test begins with a Dynamo that knows no code: it gives up on code that it met too often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from refold.backend import kept


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test chose for a graph says nothing about this one; test_kept.py is of that."""
    monkeypatch.setattr(kept, "key_of", lambda *args: None)
