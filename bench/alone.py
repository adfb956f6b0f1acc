"""What bench/several_gpus.py compares several devices with: one that takes all their rows."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from training import Gpt, Mlp

AGAIN = 3  # steps on one device behind a checkpoint


@dataclasses.dataclass(frozen=True)
class Asked:
    """steps: of training that are compared. rounds: of timing. every: each graph that can be read
    is ours, whether it gains or not."""

    device: str
    rank: int
    world: int
    steps: int
    rounds: int
    every: bool

    @property
    def place(self) -> torch.device:
        return torch.device(self.device, self.rank if self.device == "cuda" else 0)


Sizes = dict[str, int]


def build(name: str, sizes: Sizes, place: torch.device) -> nn.Module:
    torch.manual_seed(0)
    if name == "mlp":
        return Mlp(sizes["width"]).to(place)
    return Gpt(sizes["width"], sizes["blocks"], sizes["words"]).to(place)


def batch(name: str, sizes: Sizes, place: torch.device, step: int, rank: int) -> torch.Tensor:
    """The rows of a rank in a step: the same on whichever device they are made."""
    draw = torch.Generator(place).manual_seed(1000 * step + rank)
    if name == "mlp":
        return torch.randn(sizes["rows"], sizes["width"] // 2, generator=draw, device=place)
    shape = sizes["rows"], sizes["tokens"]
    return torch.randint(0, sizes["words"], shape, generator=draw, device=place)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


@dataclasses.dataclass
class Alone:
    """One device, which takes the rows of all ranks in turn and averages, eagerly."""

    name: str
    sizes: Sizes
    asked: Asked

    def backward(self, model: nn.Module, step: int, turned: bool = False) -> torch.Tensor:
        """The mean loss; gradients are left in the parameters. turned: each rank's rows in another
        order, which sums them in another."""
        total = torch.zeros((), device=self.asked.place, dtype=torch.float64)
        wide = next(model.parameters()).dtype
        for rank in range(self.asked.world):
            x = batch(self.name, self.sizes, self.asked.place, step, rank)
            x = x.to(wide) if x.is_floating_point() else x
            loss = model(x.flip(0) if turned else x) / self.asked.world
            torch.autograd.backward(loss)
            total += loss.detach()
        return total

    def train(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        steps: Sequence[int],
        turned: bool = False,
    ) -> list[float]:
        losses = []
        for step in steps:
            optimizer.zero_grad()
            losses.append(self.backward(model, step, turned))
            optimizer.step()
        return [float(v) for v in losses]

    def losses(self, turned: bool) -> list[float]:
        model = build(self.name, self.sizes, self.asked.place)
        return self.train(model, optimizer_of(model), range(self.asked.steps + AGAIN), turned)

    def errors(self, model: nn.Module, step: int, found: Sequence[Any]) -> float:
        """The largest error of gradients over eager's, of all parameters, against float64."""
        sides = [copy.deepcopy(model), copy.deepcopy(model).double()]
        for side in sides:
            side.zero_grad()
            self.backward(side, step)
        own, truth = ([p.grad for p in side.parameters()] for side in sides)
        top = max(float(t.norm()) for t in truth if t is not None)
        ratios = []
        for mine, eager, exact in zip(found, own, truth, strict=True):
            if mine is None or eager is None or exact is None:
                assert mine is eager is exact is None, "a gradient is missing"
                continue
            # a gradient that is nothing but rounding counts by the largest of all
            a, b = (float((g.double() - exact).norm()) + 1e-7 * top for g in (mine, eager))
            ratios.append(a / b)
        return max(ratios)
