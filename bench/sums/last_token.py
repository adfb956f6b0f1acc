"""A block of two layers and a head, of which the last token is asked for."""

import torch
import torch.nn as nn

batch_size = 16
tokens = 128
features = 512
hidden = 1024
classes = 2048


class Model(nn.Module):
    """All of it is computed for one token of each sequence, however long that is."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)
        self.head = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.down(torch.nn.functional.gelu(self.up(x)))
        logits: torch.Tensor = self.head(y)
        return logits[:, -1]


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, tokens, features)]


def get_init_inputs() -> list[int]:
    return [features, hidden, classes]
