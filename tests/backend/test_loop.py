"""A loop of training with all that such loops have, for 200 steps beside eager's."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from refold.backend.report import collected

from .steps import all_ours, compiled

STEPS, BROKEN_OFF = 200, 120


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.layers(x))
        return made


class Loop:
    """A model with an optimizer, a schedule, a scaler of gradients and an average of parameters."""

    def __init__(self, compiler: Callable[[nn.Module], Any]) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.run = compiler(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.02, STEPS)
        self.scaler = torch.amp.GradScaler("cpu")  # type: ignore[attr-defined]
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.99))

    def step(self, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """Accumulate the gradients of batches, clip them, and update."""
        total = 0.0
        for x, wanted in batches:
            loss = F.cross_entropy(self.run(x), wanted) / len(batches)
            self.scaler.scale(loss).backward()
            total += float(loss.detach())
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.average.update_parameters(self.model)
        return total

    def parts(self) -> dict[str, Any]:
        names = ("model", "optimizer", "schedule", "scaler", "average")
        return {name: getattr(self, name) for name in names}

    def saved(self) -> io.BytesIO:
        file = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self.parts().items()}, file)
        file.seek(0)
        return file

    def resume(self, file: io.BytesIO) -> None:
        state = torch.load(file)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])


def losses(
    compiler: Callable[[nn.Module], Any], turned: bool = False
) -> tuple[list[float], list[torch.Tensor]]:
    """The loss of each step, and what is averaged in the end; a checkpoint is read on the way.
    turned: the rows of each batch in another order, which sums them in another."""
    loop, found = Loop(compiler), []
    draw = torch.Generator().manual_seed(1)
    planes = torch.randn(16, 4, generator=draw)
    for step in range(STEPS):
        batches = []
        for rows in (24, 24 if step < STEPS // 2 else 17):  # the last batches are smaller
            x = torch.randn(rows, 16, generator=draw)
            x = x.flip(0) if turned else x
            batches.append((x, (x @ planes).argmax(1)))
        found.append(loop.step(batches))
        if step == BROKEN_OFF:
            file = loop.saved()
            loop = Loop(compiler)
            loop.resume(file)
    return found, [p.detach() for p in loop.average.parameters()]


def test_two_hundred_steps() -> None:
    """Losses differ from eager's no more than eager's own differ where sums have another order."""
    eager, mean = losses(lambda m: m)
    other, mean_other = losses(lambda m: m, turned=True)
    with all_ours(), collected() as found:
        ours, mean_ours = losses(compiled)
    assert {g.by for g in found} == {"refold"}
    own = max(abs(a - b) for a, b in zip(eager, other, strict=True))
    assert max(abs(a - b) for a, b in zip(eager, ours, strict=True)) <= 4 * own + 1e-5
    assert eager[-1] < 0.5 * eager[0]
    for a, b, c in zip(mean, mean_other, mean_ours, strict=True):
        assert (a - c).norm() <= 4 * (a - b).norm() + 1e-5 * a.norm()


def test_gradients_of_fifty_steps() -> None:
    """Of each parameter, at each step, from the same state."""
    with all_ours():
        loop, eager = Loop(compiled), Net()
        draw = torch.Generator().manual_seed(2)
        for step in range(50):
            x = torch.randn(24 if step < 25 else 17, 16, generator=draw)
            wanted = torch.randint(0, 4, (len(x),), generator=draw)
            eager.load_state_dict(loop.model.state_dict())
            exact = copy.deepcopy(eager).double()
            pairs = ((loop.model, loop.run), (eager, eager), (exact, exact))
            for model, run in pairs:
                model.zero_grad()
                given = x.double() if model is exact else x
                F.cross_entropy(run(given), wanted).backward()
            for a, b, c in zip(*(m.parameters() for m, _ in pairs), strict=True):
                mine, own = ((p.grad.double() - c.grad).norm() for p in (a, b))  # type: ignore[union-attr,operator]
                assert mine <= 4 * own + 1e-6 * c.grad.norm() + 1e-7, step  # type: ignore[union-attr]
            loop.step([(x, wanted)])
