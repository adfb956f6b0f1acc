"""Masks that need not be read leave a graph's attention; what is written to or hides more stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from refold.backend import masks, second
from refold.backend.masks import ATTENTION, plain_masks

from .steps import compiled

BATCH, HEADS, TOKENS, FEATURES = 2, 3, 9, 8
Function = Callable[..., torch.Tensor]
_attention = F.scaled_dot_product_attention


# --- masks that hide nothing ----------------------------------------------------------------------
def spread(q: torch.Tensor) -> torch.Tensor:
    """As libraries make it of places, for any batch."""
    places = torch.arange(TOKENS, device=q.device)[None, None, :, None] + 0
    mask = (places >= 0).expand(q.shape[0], -1, TOKENS, TOKENS)
    return _attention(q, q, q, attn_mask=mask)


def of_zeros(q: torch.Tensor) -> torch.Tensor:
    return _attention(q, q, q, torch.zeros(TOKENS, TOKENS, device=q.device))


def written_back(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[:, 3] = False
    mask[:, 3] = True
    return _attention(q, q, q, attn_mask=mask)


def _body(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return _attention(q, q, q, attn_mask=mask)


def in_checkpoints(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    for _ in range(2):
        q = checkpoint(_body, q, mask, use_reentrant=False)
    return q


def causal(q: torch.Tensor) -> torch.Tensor:
    return _attention(q, q, q, attn_mask=torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril())


def causal_by_numbers(q: torch.Tensor) -> torch.Tensor:
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    mask = torch.zeros(1, 1, TOKENS, TOKENS).masked_fill(hidden, -torch.inf)
    return _attention(q, q[:, :, :TOKENS], q, attn_mask=mask)


# --- masks that hide, or may ----------------------------------------------------------------------
def causal_from_the_end(q: torch.Tensor) -> torch.Tensor:
    """As with a cache: the last query sees all keys."""
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()[3:]
    return _attention(q[:, :, 3:], q, q, attn_mask=mask)


def causal_for_more_keys(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS - 3, TOKENS, dtype=torch.bool).tril()
    return _attention(q[:, :, 3:], q, q, attn_mask=mask)


def nearly_causal(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    mask[4, 2] = False
    return _attention(q, q, q, attn_mask=mask)


def causal_but_large(q: torch.Tensor) -> torch.Tensor:
    """Keys that follow count less, and are not hidden."""
    return _attention(q, q, q, attn_mask=torch.ones(TOKENS, TOKENS).triu(1) * -2.0)


def written(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[:, 3] = False
    return _attention(q, q, q, attn_mask=mask)


def written_by_a_view(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    row = mask.narrow(0, q.shape[0], 1)
    row &= seen[0]
    return _attention(q, q, q, attn_mask=mask)


def _hides(q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    mask[:, 3] = False
    return _attention(q, q, q, attn_mask=mask)


def written_in_a_checkpoint(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    q = checkpoint(_hides, q, mask, use_reentrant=False)
    return _attention(q, q, q, attn_mask=mask)


def summed_over_a_batch(q: torch.Tensor) -> torch.Tensor:
    """A size that varies is no number."""
    ones = torch.ones(1, 1, 1, 1).expand(q.shape[0], 1, TOKENS, TOKENS)
    return _attention(q, q, q, attn_mask=(ones.sum(0) - 1) * torch.arange(TOKENS))


def of_data(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return _attention(q, q, q, attn_mask=seen[:, None, None, :])


# --- their last axis is out of order --------------------------------------------------------------
def of_queries(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    seen = seen.index_fill(1, torch.tensor([0]), True)
    return _attention(q, q, q, attn_mask=seen[:, None, :, None].expand(-1, HEADS, -1, TOKENS))


def turned(q: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return _attention(q, q, q, attn_mask=(seen[:, None] | seen[:, :, None]).mT[:, None])


def masks_of(module: torch.fx.GraphModule) -> list[Any]:
    """The masks that calls of attention have, also in graphs that the graph calls."""
    inner = [m for m in module.children() if isinstance(m, torch.fx.GraphModule)]
    found = [m for i in inner for m in masks_of(i)]
    calls = [n for n in module.graph.nodes if n.target is ATTENTION]
    return found + [
        n.kwargs.get("attn_mask", n.args[3] if len(n.args) > 3 else None) for n in calls
    ]


def _given(function: Function) -> tuple[Any, ...]:
    made = torch.Generator().manual_seed(1)
    q = torch.randn(BATCH, HEADS, TOKENS, FEATURES, generator=made, requires_grad=True)
    seen = torch.rand(BATCH, TOKENS, generator=made) > 0.5
    seen[:, 0] = True
    return (q, seen)[: function.__code__.co_argcount]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function, left, changed",
    [
        (spread, 0, 1), (of_zeros, 0, 1), (written_back, 0, 1), (in_checkpoints, 0, 2),
        (causal, 0, 1), (causal_by_numbers, 0, 1), (causal_from_the_end, 1, 0),
        (nearly_causal, 1, 0), (causal_but_large, 1, 0), (written, 1, 0),
        (causal_for_more_keys, 1, 0), (written_by_a_view, 1, 0), (of_data, 1, 0),
        (written_in_a_checkpoint, 2, 0), (of_queries, 1, 1), (turned, 1, 1),
    ],
)  # fmt: skip
def test_masks(function: Function, left: int, changed: int, dynamic: bool) -> None:
    """Results are those of eager; which masks stay, and how many calls are changed."""
    found: list[tuple[int, int]] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        count = plain_masks(module)
        found.append((sum(m is not None for m in masks_of(module)), count))
        return module.forward

    given = _given(function)
    torch._dynamo.reset()
    result = torch.compile(function, backend=backend, dynamic=dynamic)(*given)
    assert found == [(left, changed)]
    torch.testing.assert_close(result, function(*given))


def test_a_size_that_varies_is_no_number() -> None:
    """A batch of two is compiled first, then one of three."""
    call = compiled(summed_over_a_batch, dynamic=True)
    for batch in (2, 3):
        q = torch.randn(batch, HEADS, TOKENS, FEATURES)
        torch.testing.assert_close(call(q), summed_over_a_batch(q))


def test_a_causal_mask_stays_where_keys_may_be_nan() -> None:
    """A mask that is added makes NaN of a hidden NaN; a flag does not."""
    counts: list[int] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        counts.append(plain_masks(module, strict=True))
        return module.forward

    torch._dynamo.reset()
    torch.compile(causal, backend=backend)(*_given(causal))
    assert counts == [0]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = (r for r in caplog.records if r.name == "refold" and r.levelname == "WARNING")
    return [r.getMessage() for r in records]


def test_a_failure_leaves_the_rest_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = masks._Masks._attention

    def fails(self: Any, node: torch.fx.Node) -> None:
        if self.changed:
            raise NotImplementedError("no storage")
        looked(self, node)

    def twice(q: torch.Tensor) -> torch.Tensor:
        return causal(spread(q))

    found: list[tuple[int, int]] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        count = plain_masks(module)
        found.append((sum(m is not None for m in masks_of(module)), count))
        return module.forward

    monkeypatch.setattr(masks._Masks, "_attention", fails)
    given = _given(spread)
    torch._dynamo.reset()
    result = torch.compile(twice, backend=backend)(*given)
    assert found == [(1, 1)]
    (said,) = _warnings(caplog)
    assert "no storage" in said
    torch.testing.assert_close(result, twice(*given))


@pytest.mark.parametrize("function, count", [(spread, 1), (in_checkpoints, 2)])
def test_second_derivatives_are_those_of_the_graph_as_it_was(
    function: Function, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused kernel has none, and what is taken apart has."""
    held: list[torch.fx.GraphModule] = []

    class Held(second.Graph):
        def __init__(self, module: torch.fx.GraphModule) -> None:
            super().__init__(module)
            held.append(self.module)

    monkeypatch.setattr(second, "Graph", Held)
    given = _given(function)
    torch._dynamo.reset()
    compiled(function)(*given).sum().backward()
    (module,) = held
    assert sum(m is not None for m in masks_of(module)) == count
