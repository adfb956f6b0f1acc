"""PyTorch's transformers look at the masks that they are given: what they do then is followed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import refold

CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
OTHER = torch.zeros(5, 5).index_fill(1, torch.tensor(4), -torch.inf)
OTHER[0, 1] = -1.0  # for the encoder's kernel it is no number, but true


class Encoder(nn.Module):
    def __init__(self, first: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=first)
        self.all = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if mask is None:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.all(x, mask=mask)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.all = nn.TransformerDecoder(layer, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if mask is None:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.all(x, x + 1, tgt_mask=mask)


CASES = {
    "an encoder's": (Encoder, (CAUSAL, OTHER)),
    "an encoder's, made by it": (Encoder, ()),
    "of truth values": (Encoder, (CAUSAL != 0, OTHER != 0)),
    "an encoder's, by many kernels": (lambda: Encoder(False), (CAUSAL, OTHER)),
    "a decoder's": (Decoder, (CAUSAL, OTHER)),
    "a decoder's, made by it": (Decoder, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mask_is_what_it_is_for_eager(name: str) -> None:
    make, masks = CASES[name]
    torch.manual_seed(0)
    module, x = make().eval(), torch.randn(5, 5, 16)
    fast = refold.optimize(copy.deepcopy(module), x, *masks[:1], measure=False)
    for training in (False, True):
        for given in [(m,) for m in masks] or [()]:
            with torch.no_grad():
                found, expected = (m.train(training)(x, *given) for m in (fast, module))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert refold.status(fast).fast, refold.status(fast).reason
