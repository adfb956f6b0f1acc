"""Two linear maps of two inputs, scaled, added and summed over their features."""

import torch
import torch.nn as nn

batch_size = 1024
features = 2048


class Model(nn.Module):
    """The sum goes into both weights: two products with a vector are left."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, features)
        self.second = nn.Linear(features, features)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sum(self.first(x) * 2 + self.second(y), dim=1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, features), torch.rand(batch_size, features)]


def get_init_inputs() -> list[int]:
    return [features]
