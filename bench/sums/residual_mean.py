"""A residual block whose mean over the tokens is asked for."""

import torch
import torch.nn as nn

batch_size = 32
tokens = 196
features = 256
hidden = 1024


class Model(nn.Module):
    """The mean is taken before the second product, which then sees one row a sequence."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mean(x + self.down(torch.relu(self.up(x))), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, tokens, features)]


def get_init_inputs() -> list[int]:
    return [features, hidden]
