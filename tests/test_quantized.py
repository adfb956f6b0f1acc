"""Which values are kept in 16 bits between a product and the kernel that normalises them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import nn

from captures import captured_as
from refold import pipeline
from refold.devices import DEVICES, Device
from test_models import result_of

ROWS, DEPTH, WIDTH = 16384, 160, 132
QUANTIZED = "quantizing(body"


class Normalised(nn.Module):
    """y(product), and what `after` makes of it and of y."""

    def __init__(self, before: Callable, after: Callable = lambda z, y: z) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(DEPTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.before, self.after = before, after

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        y = self.before(self.linear(x))
        return self.after(self.norm(y), y)


class ByHand(nn.Module):
    """Rows of three axes, normalised without a layer; deviations: or only centred."""

    def __init__(self, deviations: bool = True) -> None:
        super().__init__()
        self.linear, self.deviations = nn.Linear(DEPTH, WIDTH), deviations

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        over = tuple(range(x.dim() - 1))
        mean, var = y.mean(over), y.var(over, correction=0)
        return ((y - mean) / (var + 1e-5).sqrt() if self.deviations else y - mean), var


def _same(y: torch.Tensor) -> torch.Tensor:
    return y


FLAT, BATCHED = (ROWS, DEPTH), (16, ROWS // 16, DEPTH)
YES = {
    "BatchNorm": (lambda: Normalised(_same), FLAT),
    "Scaled": (lambda: Normalised(lambda y: y * 0.5 + 1.0), FLAT),
    "Relu": (lambda: Normalised(torch.relu), FLAT),
    "ThenGelu": (lambda: Normalised(_same, lambda z, y: torch.nn.functional.gelu(z)), FLAT),
    "ThenAdded": (lambda: Normalised(_same, lambda z, y: z * torch.sigmoid(z) + 1.0), FLAT),
    "ByHand": (ByHand, FLAT),
}
# what is read of the value is not normalised, or it is read by others, too
NO = {
    "IsAResult": (lambda: Normalised(_same, lambda z, y: (z, y)), FLAT),
    "Residual": (lambda: Normalised(_same, lambda z, y: z + torch.tanh(y)), FLAT),
    "Gated": (lambda: Normalised(_same, lambda z, y: z * torch.sigmoid(y)), FLAT),
    "ReadByPyTorch": (lambda: Normalised(_same, lambda z, y: (z, torch.cumsum(y, 0))), FLAT),
    "Centred": (lambda: ByHand(deviations=False), FLAT),
}


def quantizing(least: int) -> Mapping[str, Device]:
    """The devices, with values quantized from so many bytes on."""
    hopper = replace(DEVICES["cuda:sm_90"], quantizes=least)
    return {**DEVICES, hopper.name: hopper}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "DEVICES", quantizing(4 * ROWS * WIDTH))


def text_of(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    target: str = "cuda:sm_90",
    float32: str = "tf32",
    dtype: torch.dtype = torch.float32,
) -> str:
    torch.manual_seed(0)
    module = make().to(dtype)
    with captured_as((make, shape, dtype)):
        text = result_of(module, [torch.randn(shape, dtype=dtype)], target, float32).text
    assert text is not None
    return text


@pytest.mark.parametrize("name", YES)
def test_a_normalised_product_is_quantized(name: str) -> None:
    assert QUANTIZED in text_of(*YES[name])


@pytest.mark.parametrize("name", NO)
def test_a_value_that_others_read_is_not(name: str) -> None:
    assert QUANTIZED not in text_of(*NO[name])


def test_rows_of_three_axes() -> None:
    assert QUANTIZED in text_of(ByHand, BATCHED)


@pytest.mark.parametrize(
    ("target", "float32", "dtype"),
    [
        ("cuda:sm_90", "ieee", torch.float32),
        ("cuda:sm_90", "tf32", torch.bfloat16),
        ("cuda:sm_80", "tf32", torch.float32),
        ("cpu", "ieee", torch.float32),
    ],
)
def test_only_where_operands_have_no_more_bits(
    target: str, float32: str, dtype: torch.dtype
) -> None:
    assert QUANTIZED not in text_of(*YES["BatchNorm"], target, float32, dtype)


def test_only_values_that_the_cache_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "DEVICES", quantizing(4 * ROWS * WIDTH + 1))
    assert QUANTIZED not in text_of(*YES["BatchNorm"])


def test_few_rows_are_stored_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for least, rows in ((4 * WIDTH * 1000, 1000), (1, 17)):
        monkeypatch.setattr(pipeline, "DEVICES", quantizing(least))
        assert f" if n0 >= {rows} else 0\n" in text_of(*YES["BatchNorm"])
