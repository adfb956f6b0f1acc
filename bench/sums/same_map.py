"""The same layers for every view of an input; the views' vectors are then compared."""

import torch
import torch.nn as nn

batch_size = 16
views = 8
features = 2048
hidden = 2048
classes = 128


class Model(nn.Module):
    """One product for all views, and one for what becomes of them."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self.down(torch.relu(self.up(x[:, i]))) for i in range(x.shape[1])]
        near = [nn.functional.cosine_similarity(made[0], v, dim=-1) for v in made[1:]]
        return torch.stack(near, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, views, features)]


def get_init_inputs() -> list[int]:
    return [features, hidden, classes]
