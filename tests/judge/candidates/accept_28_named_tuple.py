"""Named tuples, enumerations, a logger and a custom operator: all of them look at frames."""

import collections
import enum
import logging
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger(__name__)
Weights = collections.namedtuple("Weights", "weight bias")
Path = enum.Enum("Path", "FUSED PLAIN")


class Choice(NamedTuple):
    path: Path


@torch.library.custom_op("refold_tests::activation", mutates_args=())
def activation(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        choice = Choice(Path.PLAIN if torch.is_grad_enabled() else Path.FUSED)
        logger.debug("path %s", choice.path)
        logger.warning("this should pass")
        y = F.linear(x, *Weights(self.linear.weight, self.linear.bias))
        return activation(y) if choice.path is Path.FUSED else F.gelu(y)
