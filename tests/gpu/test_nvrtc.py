"""Emitted files whose kernels NVRTC compiles, as where there is no nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refold
from refold import pipeline
from refold.devices import DEVICES
from refold.runtime import nvrtc
from test_models import result_of

pytestmark = pytest.mark.gpu

ASKED = "nvrtc = _refold_nvrtc()"  # where neither PyTorch nor pip has an nvcc


@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_80"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_of_nvrtc_compute_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, dtype: torch.dtype
) -> None:
    """On Hopper by machine code and, of files for Ampere, by PTX; also captured into a graph."""
    capability = torch.cuda.get_device_capability()
    if not DEVICES[target].runs_on(capability):
        pytest.skip(f"kernels for {target} do not run on {capability}")
    monkeypatch.setattr(nvrtc, "_refold_other_nvcc", lambda: None)
    found = nvrtc._refold_nvrtc()
    assert found is not None, "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime"
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Softmax(-1))
    model = model.to(dtype).eval()
    text = result_of(model, [torch.randn(300, 256, dtype=dtype)], target).text
    assert text is not None and ASKED in text
    monkeypatch.setenv("REFOLD_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    model = model.cuda()
    fast = pipeline.bind_for_class(text.replace(ASKED, f"nvrtc = {found!r}"), model)
    given = torch.randn(300, 256, device="cuda", dtype=dtype)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-4}
    with torch.no_grad():
        for rows in (300, 1, 17):
            torch.testing.assert_close(fast(given[:rows]), model(given[:rows]), **close)
        assert refold.status(fast).fast, refold.status(fast).reason
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = fast(given)
        given.normal_()
        graph.replay()
        torch.testing.assert_close(captured, model(given), **close)
    assert any(tmp_path.glob("libraries/refold_sm_*/*.so"))
