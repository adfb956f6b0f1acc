"""Attention of [batch, tokens, heads, features], what its gradient needs of it, and its gradients.

For each query the mean of all values, weighted by the softmax of the keys' products with it.
causal: no key counts whose number is larger than the query's. What a mask has is added to the
products. By PyTorch's function a query that sees no key gets zeros.
"""

from __future__ import annotations

from functools import partial

from refold.ir import attention
from refold.ir.op import Inference, Kind, Op

_QUERIES, _KEYS, _VALUES, _MASK = "{0}", "{1}", "{2}", "{3}"


def _row(
    name: str,
    meaning: str,
    arity: int,
    attrs: tuple[str, ...],
    infer: Inference = attention.attention,
    linear_in: tuple[tuple[int, ...], ...] = ((2,),),
) -> Op:
    return Op(
        name,
        Kind.OPAQUE,
        meaning,
        infer,
        arity,
        attrs,
        linear_in=linear_in,
        passes_infinity=True,
        operand_ranks=lambda attrs: (attention.AXES,) * arity,
        as_torch_takes=attention.as_torch_takes,
    )


def _scores(q: str, k: str) -> str:
    return f"{q}.transpose(1, 2) @ {k}.permute(0, 2, 3, 1) * {{scale}}"


def _called(mask: str) -> str:
    sides = ", ".join(f"{x}.transpose(1, 2)" for x in (_QUERIES, _KEYS, _VALUES))
    attended = f"torch.nn.functional.scaled_dot_product_attention({sides}, {mask}, scale={{scale}})"
    return f"{attended}.transpose(1, 2)"


# --- forward --------------------------------------------------------------------------------------
def _by_hand(name: str, scores: str, arity: int = 4) -> Op:
    """A query that sees no key gets NaN, as a softmax of nothing is."""
    meaning = f"(torch.softmax({scores}, -1) @ {_VALUES}.transpose(1, 2)).transpose(1, 2)"
    return _row(name, meaning, arity, ("scale",))


_PRODUCTS = _scores(_QUERIES, _KEYS)
_FORWARD = (
    _row("attention", _called("is_causal={causal}"), 3, ("causal", "scale")),
    _row("masked_attention", _called(_MASK), 4, ("scale",)),
    _by_hand("softmax_attention", _PRODUCTS, 3),
    _by_hand("softmax_masked_attention", f"{_PRODUCTS} + {_MASK}"),
    # what a mask has that is not zero stands in the place of a score
    _by_hand("softmax_filled_attention", f"torch.where({_MASK} == 0, {_PRODUCTS}, {_MASK})"),
)


# --- gradients ------------------------------------------------------------------------------------
def _masked_scores(q: str, k: str, mask: str) -> str:
    """Scores with what is added to them: a mask, or what leaves later keys out."""
    later = f"{q}.new_full(({q}.shape[1], {k}.shape[1]), -torch.inf if {{causal}} else 0.0).triu(1)"
    return f"({_scores(q, k)} + {mask or later})"


def _sums(prefix: str, attrs: tuple[str, ...], mask: str) -> Op:
    """Of each query the logarithm of the sum that its softmax divides by; infinity for the queries
    that are added so that `multiple` divides their number."""
    scores = _masked_scores(_QUERIES, _KEYS, mask)
    beyond = f"(0, -{_QUERIES}.shape[1] % {{multiple}})"
    meaning = f"torch.nn.functional.pad(torch.logsumexp({scores}, -1), {beyond}, value=torch.inf)"
    arity = 3 if mask else 2
    infer = attention.sums
    return _row(f"{prefix}_sums", f"{meaning}[None]", arity, (*attrs, "multiple"), infer, ())


def _gradients(prefix: str, attrs: tuple[str, ...], mask: str) -> tuple[Op, ...]:
    """Of queries, keys and values, from the result's gradient, the operands, the result, and the
    sums."""
    given, q, k, v, result, sums = (f"{{{i}}}" for i in range(6))
    weights = f"torch.exp({_masked_scores(q, k, mask)} - {sums}[0][..., :{q}.shape[1], None])"
    of_weights = f"{given}.transpose(1, 2) @ {v}.permute(0, 2, 3, 1)"
    along = f"({given} * {result}).sum(-1).transpose(1, 2)[..., None]"
    differences = f"({weights} * ({of_weights} - {along}))"
    meanings = {
        "query": f"({differences} @ {k}.transpose(1, 2) * {{scale}})",
        "key": f"({differences}.mT @ {q}.transpose(1, 2) * {{scale}})",
        "value": f"({weights}.mT @ {given}.transpose(1, 2))",
    }
    return tuple(
        _row(
            f"{prefix}_{name}_gradient",
            f"{meaning}.transpose(1, 2)",
            7 if mask else 6,
            attrs,
            partial(attention.gradient, of),
            ((0,),),
        )
        for of, (name, meaning) in enumerate(meanings.items())
    )


ROWS = (
    *_FORWARD,
    _sums("attention", ("causal", "scale"), ""),
    *_gradients("attention", ("causal", "scale"), ""),
    _sums("masked_attention", ("scale",), "{2}"),
    *_gradients("masked_attention", ("scale",), "{6}"),
)
