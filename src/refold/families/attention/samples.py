"""What kernels of attention compute, and what they leave to others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from refold.families.samples import ROWS, Sample, Shape

N = ROWS


def _attention(
    queries: int, keys: int, features: int, causal: bool = False
) -> Callable[..., torch.Tensor]:
    """Of two heads, of so many of the tokens."""

    def attended(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x.view(x.shape[0], x.shape[1], 3, 2, features)
        q, k, v = (t.transpose(1, 2) for t in x.unbind(2))
        q, k, v = q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]
        mask = mask > 0 if mask is not None and mask.dim() == 2 else mask
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

    return attended


def _by_hand(kind: str, tokens: int) -> Callable[..., torch.Tensor]:
    """Of two heads of 64 features, later tokens left out."""

    def attended(x: torch.Tensor) -> torch.Tensor:
        x = x.view(x.shape[0], x.shape[1], 3, 2, 64)[:, :tokens]
        q, k, v = (t.transpose(1, 2) for t in x.unbind(2))
        scores = q @ k.mT / 8.0
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        if kind == "filled":
            scores = scores.masked_fill(later, -torch.inf)
        if kind == "added":
            scores = scores + torch.where(later, -1e9, 0.0)
        return scores.softmax(-1) @ v

    return attended


def _trained(
    queries: int, keys: int, features: int, causal: bool, results: str, heads: int
) -> Callable[..., torch.Tensor]:
    """What a training step computes of attention, by PyTorch's functions for a CPU: the result, the
    logarithms of sums, and gradients, of those that are named."""
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    # where tests put a NaN: of causal attention PyTorch gives it to some keys that are not seen,
    # as its blocks lie
    first = int(causal)

    def trained(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x[:, first:].view(x.shape[0], x.shape[1] - first, 4, 2, features)
        q, k, v, given = (t.transpose(1, 2) for t in x.unbind(2))
        q, k, v = q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]
        if mask is not None:
            mask = mask.view(1, heads, queries, keys)
        out, sums = forward(q, k, v, 0.0, causal, attn_mask=mask)
        if results == "forward":
            return _joined(out, sums)
        found = backward(given[:, :, :queries], q, k, v, out, sums, 0.0, causal, attn_mask=mask)
        return _joined(*(g for g, name in zip(found, "qkv", strict=True) if name in results))

    return trained


def _joined(*results: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.flatten(1) for x in results], 1)


def _training(
    results: str, queries: int, keys: int, features: int, *masks: Shape, causal: bool = False
) -> Sample:
    shapes = ((N, max(queries, keys) + causal, 8 * features), *masks)
    heads = int(masks[0][1]) if masks else 0  # of the mask
    made = _trained(queries, keys, features, causal, results, heads)
    name = f"{results} of {queries} and {keys}, in training"
    return Sample(name, made, shapes, rows=2, only="wgmma")


def _to_itself(x: torch.Tensor) -> torch.Tensor:
    x = x.view(x.shape[0], x.shape[1], 1, 40).transpose(1, 2)
    return F.scaled_dot_product_attention(x, x, x)


def _sample(
    name: str, queries: int, keys: int, features: int, *masks: Shape, causal: bool = False
) -> Sample:
    shapes = ((N, max(queries, keys), 6 * features), *masks)
    made = _attention(queries, keys, features, causal)
    return Sample(name, made, shapes, rows=2, only="wgmma")


SAMPLES = (
    _sample("of 64 features", 70, 130, 64),
    _sample("causal", 90, 70, 32, causal=True),
    _sample("of 128 features", 66, 33, 128),
    _sample("of 33 features", 16, 5, 33),
    _sample("a mask", 65, 66, 16, (1, 2, 65, 66)),
    _sample("a mask of keys", 20, 129, 72, (N, 1, 1, 129)),
    _sample("a mask that is computed", 64, 64, 64, (64, 64)),
    Sample("to itself", _to_itself, ((N, 65, 40),), rows=2, only="wgmma"),
    _training("forward", 33, 65, 32, (1, 1, 33, 65)),
    _training("qkv", 70, 130, 64),
    _training("qkv", 130, 90, 40, causal=True),
    _training("kv", 66, 65, 32, (1, 2, 66, 65)),
    _training("q", 66, 33, 128),
    _training("qkv", 65, 70, 72),
    *(
        Sample(f"{kind}, by hand", _by_hand(kind, 67), ((N, 67, 384),), rows=2, only="wgmma")
        for kind in ("all", "filled", "added")
    ),
    Sample("of 136 features", _attention(9, 9, 136), ((N, 9, 816),), rows=2, refused=True),
    Sample("of few queries", _attention(15, 70, 64), ((N, 70, 384),), rows=2, refused=True),
    Sample("a product", lambda x, y: x @ y.mT, ((N, 20, 8), (N, 20, 8)), refused=True),
)
