"""An emitted file that compiles by itself, without PyTorch's helper, as where nvcc is pip's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refold
from refold import pipeline
from refold.emit.cuda import nvcc
from test_models import result_of

pytestmark = pytest.mark.gpu


def test_the_file_calls_the_compiler_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = pipeline.default_target()
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.Softmax(-1)).eval(), [8, 64]
    text = result_of(model, [torch.randn(x)], target).text
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    asked = "nvcc = _refold_pip_nvcc()"
    assert asked in text
    model = model.cuda()
    fast = pipeline.bind_for_class(text.replace(asked, f"nvcc = {nvcc()!r}"), model)
    given = torch.randn(x, device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(fast(given), model(given), rtol=1e-5, atol=1e-6)
    assert refold.status(fast).fast, refold.status(fast).reason
    assert any(tmp_path.glob("libraries/refold_sm_*/*.so"))
