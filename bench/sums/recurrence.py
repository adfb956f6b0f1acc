"""A recurrence written as a loop over time, with a head at every step."""

import torch
import torch.nn as nn

batch_size = 16
steps = 64
features = 1024
hidden = 512
classes = 512


class Model(nn.Module):
    """One product of all inputs, one for all heads; one a step is left."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.step = nn.Linear(features + hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = []
        for t in range(x.shape[0]):
            h = torch.tanh(self.step(torch.cat((x[t], h), dim=1)))
            made.append(self.head(h))
        return torch.stack(made), h


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(steps, batch_size, features), torch.rand(batch_size, hidden)]


def get_init_inputs() -> list[int]:
    return [features, hidden, classes]
