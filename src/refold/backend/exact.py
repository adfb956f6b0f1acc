"""PyTorch's attention for GPUs in float64, which it has in narrower floats alone.

Without it the float32 that eager computes would stand for the truth of such a call, and whatever
computes it otherwise would have many times eager's error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

_aten: Any = torch.ops.aten
_FORWARD = _aten._scaled_dot_product_efficient_attention.default
_BACKWARD = _aten._scaled_dot_product_efficient_attention_backward.default
_MULTIPLE = 32  # of what the logarithms of sums are padded to
_MOST = 1 << 27  # scores at a time

Tensor = torch.Tensor


def in_float64(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a call of attention, or of its gradient, gives of tensors of float64; None for other
    calls, and where numbers would be drawn for it."""
    if target not in (_FORWARD, _BACKWARD):
        return None
    given = {a.name: a.default_value for a in target._schema.arguments}
    given |= {a.name: x for a, x in zip(target._schema.arguments, args, strict=False)}
    given |= kwargs
    q, k, v = given["query"], given["key"], given["value"]
    drops = given["dropout_p"] != 0.0
    if drops and target is _FORWARD:
        return None
    scale = given["scale"] if given["scale"] is not None else q.shape[-1] ** -0.5
    mask, causal = given["attn_bias"], given["is_causal"]
    if target is _FORWARD:
        parts = [_attended(a, b, c, m, scale, causal) for a, b, c, m in _few(q, k, v, mask)]
        out, sums = (_by_heads(x, q) for x in zip(*parts, strict=True))
        beyond = (0, -q.shape[-2] % _MULTIPLE)
        sums = torch.nn.functional.pad(sums, beyond, value=torch.inf)
        return out, sums, *(torch.zeros((), dtype=torch.int64) for _ in range(2))
    if given["grad_input_mask"][3]:
        return None
    # of what forward kept, as of all that a backward is given: what a call makes of its arguments
    gradient, out = (given[n].flatten(0, 1) for n in ("grad_out_", "out"))
    sums = given["logsumexp"].flatten(0, 1)[:, : q.shape[-2], None]
    sums = sums.masked_fill(sums == -torch.inf, torch.inf)
    found, start = [], 0
    for few_q, few_k, few_v, few_mask in _few(q, k, v, mask):
        part = slice(start, start + len(few_q))
        weights = (_scores(few_q, few_k, few_mask, scale, causal) - sums[part]).exp()
        kept = _kept(given, start, weights) if drops else 1.0
        of, start = gradient[part], part.stop
        differs = weights * (of @ few_v.mT * kept - (of * out[part]).sum(-1, keepdim=True))
        dropped = (weights * kept).mT
        found.append((differs @ few_k * scale, differs.mT @ few_q * scale, dropped @ of))
    return *(_by_heads(x, q) for x in zip(*found, strict=True)), None


def _by_heads(parts: Sequence[Tensor], q: Tensor) -> Tensor:
    whole = torch.cat(list(parts))
    return whole.reshape(*q.shape[:2], *whole.shape[1:])


def _few(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Iterator[Any]:
    """Some heads of all batches at a time, as one axis."""
    heads = q.shape[:2]
    count = max(1, _MOST // max(q.shape[-2] * k.shape[-2], 1))
    if mask is not None:
        mask = mask.expand(*heads, *mask.shape[-2:])
    for start in range(0, heads.numel(), count):
        end = min(start + count, heads.numel())
        places = [divmod(i, heads[1]) for i in range(start, end)]
        masks = None if mask is None else torch.stack([mask[b, h] for b, h in places])
        yield *(x.flatten(0, 1)[start:end] for x in (q, k, v)), masks


def _attended(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithms of the sums that softmax divides by. A query that sees no key
    gets zeros, and infinity."""
    scores = _scores(q, k, mask, scale, causal)
    nothing = (scores == -torch.inf).all(-1)
    weights = scores.masked_fill(nothing[..., None], 0.0).softmax(-1)
    out = weights.masked_fill(nothing[..., None], 0.0) @ v
    return out, scores.logsumexp(-1).masked_fill(nothing, torch.inf)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, scale: float, causal: bool) -> Tensor:
    scores = q @ k.mT * scale
    if mask is not None:
        scores = scores + mask
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores


def _kept(given: Mapping[str, Any], first: int, weights: Tensor) -> Tensor:
    """What weights of some heads, from the first on, are multiplied by: as forward has drawn."""
    probability, size = given["dropout_p"], weights.shape[1:].numel()
    begin = int(given["philox_offset"]) + first * size
    seed, skipped = int(given["philox_seed"]), begin % 4
    parts = []
    for start in range(0, weights.numel() + skipped, _DRAWN):
        count = min(_DRAWN, weights.numel() + skipped - start)
        counters = (
            torch.arange(-(-count // 4), device=weights.device) + (begin - skipped + start) // 4
        )
        parts.append(_philox(counters, seed)[:count])
    numbers = torch.cat(parts)[skipped:].reshape(weights.shape).float()
    # (0, 1] of 32 bits, rounded once as by a fused step
    uniform = (numbers.double() * _UNIT + _UNIT / 2).float()
    kept: Tensor = (uniform > probability).double() / (1.0 - probability)
    return kept


_DRAWN = 1 << 25  # numbers at a time
_UNIT = float(torch.tensor(2.0**-32))
_WORD = (1 << 32) - 1


def _philox(counters: Tensor, seed: int) -> Tensor:
    """The numbers of Philox 4x32-10, four for each counter, in 64 bits; see attention_draws.cuh."""
    key = [seed & _WORD, seed >> 32 & _WORD]
    x, y = counters & _WORD, counters >> 32 & _WORD
    z = w = torch.zeros_like(counters)
    for _ in range(10):
        a, b = x * 0xD2511F53, z * 0xCD9E8D57
        x, y, z, w = _high(b) ^ y ^ key[0], b & _WORD, _high(a) ^ w ^ key[1], a & _WORD
        key = [(key[0] + 0x9E3779B9) & _WORD, (key[1] + 0xBB67AE85) & _WORD]
    return torch.stack([x, y, z, w], 1).flatten()


def _high(product: Tensor) -> Tensor:
    return product >> 32 & _WORD
