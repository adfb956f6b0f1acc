"""Pooling by attention: a mean over the tokens of their values, weighted by a softmax."""

import torch
import torch.nn as nn

batch_size = 32
tokens = 196
features = 512


class Model(nn.Module):
    """The weighted mean is taken of the tokens, so that the product of values sees one row each."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.score = nn.Linear(features, 1)
        self.value = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.score(x), dim=1)
        return torch.sum(weights * self.value(x), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, tokens, features)]


def get_init_inputs() -> list[int]:
    return [features]
