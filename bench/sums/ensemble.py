"""The mean of an ensemble of four linear maps, stacked."""

import torch
import torch.nn as nn

batch_size = 512
features = 1024


class Model(nn.Module):
    """One map with the mean weight."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(features, features) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.stack([head(x) for head in self.heads]).mean(dim=0))


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, features)]


def get_init_inputs() -> list[int]:
    return [features]
