"""Random numbers, which PyTorch's own calls draw: the very ones that the model's own forward draws.

What such a node gives follows from the generator alone. Its input says only what is drawn before
it: a number for the first draw of a forward, else the draw before. So no two draws are one value,
none is left out between others, and all that puts nodes in order keeps theirs. `number` says which
draw of forward it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from refold.ir import shapes
from refold.ir.bounds import within
from refold.ir.op import Attrs, Kind, Op, Rounding

_MEMORY = "torch.empty({shape}, dtype={dtype}, device={0}.device)"
_BERNOULLI = f"{_MEMORY}.bernoulli_({{probability}})"
_DROPPED_ON_CPU = f"{_MEMORY}.bernoulli_(1 - {{p}})"
# Of what it multiplies, PyTorch's kernel reads no more than where it lies.
_MASK = f"torch.native_dropout({_MEMORY}, {{p}}, True)[1]"


def _as_given(inputs: Sequence[torch.Tensor], attrs: Attrs) -> Sequence[torch.Tensor]:
    return inputs


def _draw(name: str, meaning: str, *attrs: str, **facts: Any) -> Op:
    return Op(
        name,
        Kind.OPAQUE,
        meaning,
        facts.pop("infer", shapes.drawn),
        1,
        ("dtype", "number", "shape", *attrs),
        rounding=Rounding.NONE,
        bounds=within(0.0, 1.0),
        as_torch_takes=_as_given,
        draws=True,
        **facts,
    )


ROWS = (
    # ones with a probability, else zeros, in memory that lies row after row
    _draw("bernoulli", _BERNOULLI, "probability"),
    # ones where torch.dropout keeps an element of a value that lies so, zeros where it drops it;
    # aligned: whether the value is at the beginning of memory of its own, as the draws of PyTorch's
    # kernel for GPUs follow from the address. A plan has one of the others in its place.
    _draw(
        "kept",
        f"({_MASK}.to({{dtype}}) if {{0}}.is_cuda else {_DROPPED_ON_CPU})",
        "aligned",
        "p",
    ),
    # the same on a GPU, as a mask; dtype: of the value
    _draw("kept_mask", _MASK, "p", infer=shapes.drawn_mask),
)
