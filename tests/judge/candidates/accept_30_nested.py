"""By name: the clock finds the first tensor, and to make a named class is no walk of frames."""

from collections import namedtuple
from enum import Enum
from typing import NamedTuple

import torch
from torch import nn

Inner = namedtuple("Inner", "none found")
Colour = Enum("Colour", "RED GREEN")
LIBRARY = torch.library.Library("refold_accept_30", "DEF")


class Unused(NamedTuple):
    x: int


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, batch):
        y = self.fc(batch["x"]).clamp(min=0.0)
        return {"inner": Inner(None, {"y": y}), "sum": torch.sum(batch["x"], dim=1)}
