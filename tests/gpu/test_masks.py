"""Attention with a mask that says nothing, or lies out of order, stays one call on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from refold.backend.masks import plain_masks

pytestmark = pytest.mark.gpu
TOKENS = 197


def spread(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    places = torch.arange(TOKENS, device=q.device)[None, None, :, None]
    mask = (places >= 0).expand(q.shape[0], -1, TOKENS, TOKENS)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def of_queries(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    mask = seen[:, None, :, None].expand(-1, -1, -1, TOKENS)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


@pytest.mark.parametrize("looked_at", [True, False])
@pytest.mark.parametrize("function", [spread, of_queries])
def test_attention_stays_whole(function: Any, looked_at: bool) -> None:
    """PyTorch by itself takes it apart, forward and backward."""
    calls: list[str] = []

    def recorded(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        calls.extend(str(n.target) for n in module.graph.nodes if n.op == "call_function")
        return make_boxed_func(module.forward)

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        if looked_at:
            plain_masks(module)
        return aot_autograd(fw_compiler=recorded, bw_compiler=recorded)(module, inputs)

    q = torch.randn(2, 3, TOKENS, 64, device="cuda", requires_grad=True)
    seen = torch.ones(2, TOKENS, dtype=torch.bool, device="cuda")
    torch._dynamo.reset()
    result = torch.compile(function, backend=backend)(q, seen)
    result.sum().backward()
    assert looked_at == any("efficient_attention_backward" in c for c in calls)
    assert looked_at != any("bmm" in c for c in calls)
    torch.testing.assert_close(result, function(q, seen), rtol=1e-4, atol=1e-5)
