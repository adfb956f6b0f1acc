"""A causal block of a transformer, a norm and a head, of which the last token is asked for."""

import torch
import torch.nn as nn

batch_size = 8
tokens = 128
features = 256
heads = 8
classes = 2048


class Model(nn.Module):
    """Keys and values are computed of all tokens, everything else of the last."""

    def __init__(self, features: int, heads: int, classes: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.before, self.between, self.after = (nn.LayerNorm(features) for _ in range(3))
        self.up, self.down = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
        self.head = nn.Linear(features, classes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        parts = self.qkv(self.before(x)).split(d, dim=2)
        q, k, v = (p.view(n, t, self.heads, d // self.heads).transpose(1, 2) for p in parts)
        scores = (q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, d))
        x = x + self.down(torch.nn.functional.gelu(self.up(self.between(x))))
        logits: torch.Tensor = self.head(self.after(x))
        return logits[:, -1]


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, tokens, features)]


def get_init_inputs() -> list[int]:
    return [features, heads, classes]
