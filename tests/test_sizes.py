"""Sizes that are no polynomials are found before what takes longest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refold
from refold.capture import CaptureError, capture
from refold.capture.sizes import check_sizes
from refold.ir import Sym


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.relu(x[:, :, ::2])  # nothing reads it
        return torch.relu(self.conv(x))


class Unread(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.relu(x[:, ::2])
        return torch.relu(x)


def exported(module: nn.Module, x: torch.Tensor) -> torch.fx.Graph:
    shapes = (dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO),)
    return torch.export.export(module, (x,), dynamic_shapes=shapes, strict=False).graph


def test_sizes_in_the_way_are_fixed_before_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.export.ExportedProgram.run_decompositions
    calls: list[object] = []

    def counted(self: torch.export.ExportedProgram, *given: object) -> object:
        calls.append(self)
        return plain(self, *given)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counted)
    x = torch.randn(2, 3, 9, 11)
    captured = capture(Strided(), (x,), training=False)
    shape = captured.fields[0].shape
    # the images' sizes are fixed, one after the other, and the batch is not
    assert shape is not None and isinstance(shape[0], Sym) and shape[1:] == (3, 9, 11)
    assert not calls  # nothing is written, so that there is nothing to decompose


def test_what_no_result_needs_is_not_asked() -> None:
    check_sizes(exported(Unread(), torch.randn(6, 8)))
    with pytest.raises(CaptureError, match=r"^a size is .*//2.*, which is no polynomial$"):
        check_sizes(exported(Strided(), torch.randn(2, 3, 9, 11)))


class Loss(nn.Module):
    """Of tokens in one row, as language models take it."""

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.view(-1))


@pytest.mark.parametrize("sizes", [(2, 9), (4, 4)])
def test_sizes_that_have_to_be_equal_vary_together(sizes: tuple[int, int]) -> None:
    labels = torch.randint(0, 7, sizes)
    captured = capture(Loss(), (torch.randn(*sizes, 7), labels), training=False)
    logits, targets = (f.shape for f in captured.fields)
    assert logits is not None and targets is not None
    assert all(isinstance(d, Sym) for d in logits) and logits[:2] == targets


def test_sizes_that_differ_in_the_example_are_no_pair() -> None:
    labels = torch.randint(0, 7, (6, 3))
    captured = capture(Loss(), (torch.randn(2, 9, 7), labels), training=False)
    assert [f.shape and f.shape[:2] for f in captured.fields] == [(2, 9), (6, 3)]


class Deep(nn.Module):
    """What follows the strided convolution counts its runs."""

    runs = 0

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        type(self).runs += 1
        return torch.relu(y) + 1


class Caught(nn.Module):
    """A forward that takes another way where anything raises."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            y = self.conv(x)
        except Exception:
            y = x.sum((1, 2, 3), keepdim=True)
        return torch.relu(y)


def test_the_first_convolution_whose_sizes_stand_in_the_way_ends_an_export() -> None:
    Deep.runs = 0
    captured = capture(Deep(), (torch.randn(2, 3, 9, 11),), training=False)
    shape = captured.fields[0].shape
    assert shape is not None and isinstance(shape[0], Sym) and shape[1:] == (3, 9, 11)
    assert Deep.runs == 1  # of the export in which those sizes are fixed


def test_a_forward_that_catches_what_ends_an_export_is_followed() -> None:
    captured = capture(Caught(), (torch.randn(2, 3, 9, 11),), training=False)
    ops = {n.op for n in captured.graph.nodes()}
    assert any(op.startswith("conv") for op in ops), ops


class Positioned(nn.Module):
    """Its table of positions is read at the length of what came before, as with a cache of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Buffer(torch.randn(32, 8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        length = past.shape[1]
        row = torch.sin(self.table[length : length + 1]) * self.linear.bias
        return torch.relu(self.linear(x) + row) + past.sum(1)


def test_a_row_of_a_table_at_a_size_is_no_fold() -> None:
    torch.manual_seed(0)
    model = Positioned().eval()
    fast = refold.optimize(model, torch.randn(4, 8), torch.randn(4, 5, 8), measure=False)
    with torch.no_grad():
        for length in (5, 9, 2):
            args = torch.randn(4, 8), torch.randn(4, length, 8)
            torch.testing.assert_close(fast(*args), model(*args))
            assert refold.status(fast).fast, refold.status(fast).reason


class Cached(nn.Module):
    """Attention whose keys and values are views of one product, and are given back as a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.both = nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        batch, count, _ = x.shape
        q = self.queries(x).view(batch, count, 2, 8).transpose(1, 2)
        k, v = self.both(x).view(batch, count, 2, 2, 8).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return torch.relu(y.transpose(1, 2).flatten(2)), (k, v)


def test_a_cache_of_views_may_grow() -> None:
    torch.manual_seed(0)
    model = Cached().eval()
    with torch.no_grad():
        _, cache = model(torch.randn(3, 6, 16))
        fast = refold.optimize(model, torch.randn(3, 1, 16), cache, measure=False)
        mine = cache
        for _ in range(3):
            x = torch.randn(3, 1, 16)
            (y, mine), (eager, cache) = fast(x, mine), model(x, cache)
            assert refold.status(fast).fast, refold.status(fast).reason
            torch.testing.assert_close((y, mine), (eager, cache))
        longer = model(torch.randn(5, 9, 16))[1]
        x = torch.randn(5, 1, 16)
        torch.testing.assert_close(fast(x, longer), model(x, longer))
        assert refold.status(fast).fast, refold.status(fast).reason


class Joined(nn.Module):
    """Two arguments of whatever widths, side by side, as the children of a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 6)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(torch.cat([a, b], -1)))


def test_joined_inputs_whose_widths_vary_are_no_error() -> None:
    """A part of a weight cannot be told to lie in it where the part varies."""
    torch.manual_seed(0)
    model = Joined().eval()
    fast = refold.optimize(model, torch.randn(2, 6), torch.randn(2, 6), measure=False)
    with torch.no_grad():
        for widths in ((6, 6), (5, 7)):
            args = [torch.randn(3, n) for n in widths]
            torch.testing.assert_close(fast(*args), model(*args))
            assert refold.status(fast).fast, refold.status(fast).reason
