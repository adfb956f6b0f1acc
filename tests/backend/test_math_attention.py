"""Attention that PyTorch takes apart into products and a softmax of nothing, where no kernel of its
own takes the mask."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .by_plan import by_plans
from .steps import all_ours, check


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(
        self, x: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        q = self.query(x)
        mask = (seen[:, None] >= torch.arange(k.shape[2]))[None, None]
        mask = mask.expand(q.shape[0], 1, -1, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_a_softmax_of_nothing_is_one_kernel() -> None:
    """The first rows see nothing, and are zero."""
    seen = torch.arange(9) - 3
    with by_plans(), all_ours(), sdpa_kernel(SDPBackend.MATH):
        calls = [(*(torch.randn(2, 3, 9, 8) for _ in range(3)), s) for s in (seen, seen + 1)]
        found = check(Masked(), calls)
    texts = [g.text for g in found]
    assert texts and all(texts)
    for text in texts:
        assert ".any" not in text and 'float("-inf")' not in text
