"""Lightning and Accelerate train a model that this backend compiles, as they train any. Each is
skipped where the library is missing.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from refold.backend import refold
from refold.backend.report import collected

from .steps import all_ours

BACKEND = functools.partial(refold, options={"measure": False})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(F.gelu(self.up(x)))
        return made


def data() -> torch.utils.data.DataLoader[Any]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(64, 16, generator=draw)
    wanted = torch.randint(0, 4, (64,), generator=draw)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, wanted), batch_size=16)


def by_hand(model: Net) -> None:
    """What both libraries are asked to do: an epoch of AdamW, two batches an update, clipped."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for i, (x, wanted) in enumerate(data()):
        (F.cross_entropy(model(x), wanted) / 2).backward()
        if i % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()


def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = Net()
    eager = copy.deepcopy(model)
    by_hand(eager)
    runner = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    with all_ours(), collected() as found:
        compiled = torch.compile(model, backend=BACKEND)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run, optimizer, batches = runner.prepare(compiled, optimizer, data())
        for x, wanted in batches:
            with runner.accumulate(run):
                runner.backward(F.cross_entropy(run(x), wanted))
                if runner.sync_gradients:
                    runner.clip_grad_norm_(run.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    assert {g.by for g in found} == {"refold"}
    assert type(runner.unwrap_model(run, keep_torch_compile=False)) is Net
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, wanted = batch
            return F.cross_entropy(self.model(x), wanted)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    model = Net()
    eager = copy.deepcopy(model)
    by_hand(eager)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
        default_root_dir=tmp_path,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with all_ours(), collected() as found:
        trainer.fit(torch.compile(Module(model), backend=BACKEND), data())
    assert {g.by for g in found} == {"refold"}
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    (path,) = tmp_path.rglob("*.ckpt")
    state = torch.load(path, weights_only=False)["state_dict"]
    assert sorted(state) == sorted(f"model.{name}" for name in model.state_dict())
