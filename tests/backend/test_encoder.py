"""PyTorch's own encoder layer, one operator in inference, is taken apart."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from refold.backend.report import collected
from refold.capture.aten import HANDLERS
from refold.capture.values import Value
from refold.ir import leaf
from refold.ir.graph import topological
from refold.ir.shapes import pad

from .by_plan import by_plans
from .steps import all_ours, compiled

ROWS, TOKENS, WIDTH, HEADS = 3, 5, 16, 4


def masks() -> dict[str, tuple[torch.Tensor | None, int | None]]:
    """Masks of each type of the operator's. The second row of the batch sees nothing, if masked."""
    padding = torch.arange(TOKENS) > torch.tensor([2, -1, 4])[:, None]
    later = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    both = (padding[:, None, None] | later).expand(ROWS, HEADS, TOKENS, TOKENS)
    return {
        "none": (None, None),
        "padding": (padding, 1),
        "padding in numbers": (torch.zeros(padding.shape).masked_fill(padding, -torch.inf), 1),
        "later": (later, 0),
        "both": (both, 2),
    }


class Layer(nn.Module):
    """The operator with one mask, as the layer's own forward calls it."""

    def __init__(self, mask: str, first: bool, gelu: bool) -> None:
        super().__init__()
        own = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=True, norm_first=first)
        self.layer, self.mask, self.gelu = own, mask, gelu
        for p in own.parameters():
            nn.init.normal_(p, std=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own, heads = self.layer, self.layer.self_attn
        mask, kind = masks()[self.mask]
        return torch._transformer_encoder_layer_fwd(
            *(x, WIDTH, HEADS, heads.in_proj_weight, heads.in_proj_bias, heads.out_proj.weight),
            *(heads.out_proj.bias, self.gelu, own.norm_first, own.norm1.eps),
            *(own.norm1.weight, own.norm1.bias, own.norm2.weight, own.norm2.bias),
            *(own.linear1.weight, own.linear1.bias, own.linear2.weight, own.linear2.bias),
            *(mask, kind),
        )


@pytest.mark.parametrize("mask", list(masks()))
def test_an_encoder_layer_is_taken_apart(mask: str) -> None:
    for first, gelu in itertools.product((False, True), repeat=2):
        torch.manual_seed(0)
        layer, x = Layer(mask, first, gelu).eval(), torch.randn(ROWS, TOKENS, WIDTH)
        with torch.no_grad(), by_plans(), all_ours(), collected() as found:
            wanted, got = layer(x), compiled(layer)(x)
        (graph,) = found
        assert graph.text is not None and "_transformer_encoder_layer_fwd" not in graph.text
        assert torch.equal(got.isnan(), wanted.isnan())
        torch.testing.assert_close(got, wanted, equal_nan=True)
        assert bool(wanted.isnan().any()) == (mask in ("padding", "padding in numbers", "both"))


def test_an_encoder_layer_of_16_bits_stays_whole() -> None:
    layer = Layer("none", False, True).eval().to(torch.bfloat16)
    x = torch.randn(ROWS, TOKENS, WIDTH, dtype=torch.bfloat16)
    with torch.no_grad(), by_plans(), all_ours(), collected() as found:
        torch.testing.assert_close(compiled(layer)(x), copy.deepcopy(layer)(x))
    assert [g.by for g in found] == ["inductor"]


@pytest.mark.parametrize(("device", "form"), [("cpu", "gelu"), ("cuda", "gelu_tanh")])
def test_a_gelu_is_of_the_form_that_the_device_takes(device: str, form: str) -> None:
    """PyTorch's fused product and GELU is exact on a CPU alone."""

    def given(name: str, *shape: int) -> Value:
        return Value(leaf("input", pad(shape), torch.float32, name=name, index=0), shape)

    x, wide, narrow = given("x", 2, 3, 8), given("w", 24, 8), given("u", 8, 24)
    square, bias, long = given("p", 8, 8), given("b", 8), given("c", 24)
    made = HANDLERS["_transformer_encoder_layer_fwd"](
        *((x.shape, x.dtype), x, 8, 2, wide, long, square, bias, True, False, 1e-5),
        *(bias, bias, bias, bias, wide, long, narrow, bias),
        device=device,
    )
    assert [n.op for n in topological([made.node]) if "gelu" in n.op] == [form]
