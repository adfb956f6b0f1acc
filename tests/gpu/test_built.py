"""Files for a GPU whose kernels were compiled ahead, run without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import test_build
from refold import build as building
from refold.devices import DEVICES
from test_models import result_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("runtime", ["static", "shared"])
@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_80"])
def test_it_runs_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, runtime: str
) -> None:
    """On the last device, with CUDA's runtime in the library and with PyTorch's."""
    capability = torch.cuda.get_device_capability()
    if not DEVICES[target].runs_on(capability):
        pytest.skip(f"kernels for {target} do not run on {capability}")
    scope: dict = {"__name__": "model"}
    exec(test_build.MODEL, scope)
    text = result_of(scope["Model"]().eval(), [torch.randn(6, 40)], target).text
    file = tmp_path / "fast.py"
    file.write_text(f"{test_build.MODEL}\n{text}")
    if runtime == "shared":
        monkeypatch.setenv("NVCC_APPEND_FLAGS", "-cudart=shared")
    built = building.build(file)
    building.write(built, tmp_path / "built")
    on = {"device": f"cuda:{torch.cuda.device_count() - 1}"}
    assert test_build.use(tmp_path / "built", tmp_path / "home", **on) == ("None", "")
    # and what does not fit is told of, and runs the original
    (libraries,) = (tmp_path / "built").glob("refold_sm_*")
    test_build.change(libraries / "built.json", b"{")
    problem, said = test_build.use(tmp_path / "built", tmp_path / "home", **on)
    assert str(libraries) in problem and "\n" not in problem and said.endswith(problem)
