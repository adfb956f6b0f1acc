"""Forward may compute something else while it is captured: then the original is kept."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import refold
from refold import pipeline
from refold.derive import Options, derive


class Encoder(nn.Module):
    """PyTorch's own: in eval mode it leaves padded places out and gives zeros there."""

    def __init__(self, nested: bool = True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested)

    def forward(self, x, pad):
        return self.encoder(x, src_key_padding_mask=pad).mean(1)


class Asks(nn.Module):
    """Another value where tensors hold none."""

    def __init__(self, factor: float):
        super().__init__()
        self.fc, self.factor = nn.Linear(8, 8), factor

    def forward(self, x):
        y = self.fc(x).sum(-1)
        return y * self.factor if torch.compiler.is_compiling() else y


class AsksOfNumbers(Asks):
    """The same, of an input that holds no floats."""

    def forward(self, x):
        return super().forward(x.float())


@pytest.mark.parametrize("padded", [False, True])
def test_an_encoder_that_leaves_places_out_is_kept(padded):
    module = Encoder().eval()
    x, pad = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    pad[1, 3:] = padded
    known = copy.deepcopy(module)
    fast = refold.optimize(module, x, pad, measure=False)
    pad[2, 1:] = True
    with torch.no_grad():
        torch.testing.assert_close(fast(x, pad), known(x, pad))


def test_an_encoder_that_leaves_no_place_out_is_captured():
    module = Encoder(nested=False).eval()
    x, pad = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    pad[1, 3:] = True
    _, device = pipeline.target_for("cpu")
    derivations = derive(module, [x, pad], device, Options(measure=False))
    assert all(d.mode.kept is None for d in derivations)


@pytest.mark.parametrize("cls", [Asks, AsksOfNumbers])
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_what_is_captured_computes_what_forward_does(cls, factor):
    x = torch.randn(4, 8) if cls is Asks else torch.randint(0, 9, (4, 8))
    _, device = pipeline.target_for("cpu")
    found = derive(cls(factor), [x], device, Options(measure=False))
    kept = [d.mode.kept for d in found]
    if factor == 1.0:
        assert kept == [None]
    else:
        assert len(kept) == 1 and kept[0] is not None and "something else" in kept[0]


class Traced(nn.Module):
    """A module inside that torch.fx has made."""

    def __init__(self):
        super().__init__()
        self.inner = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))

    def forward(self, x):
        return self.inner(x).sum(-1)


def test_a_traced_module_inside_is_followed():
    module, x = Traced().eval(), torch.randn(3, 8)
    known = copy.deepcopy(module)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), known(x))
        assert refold.status(fast).fast
        fast.inner.get_submodule("0").weight.mul_(2)
        known.inner.get_submodule("0").weight.mul_(2)
        torch.testing.assert_close(fast(x), known(x))
        # what is made anew of its graph is another class
        fast.inner.graph.eliminate_dead_code()
        fast.inner.recompile()
        torch.testing.assert_close(fast(x), known(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (torch.jit.script, "compiled script"),
        (torch.fx.symbolic_trace, "GraphModule"),
        (lambda m: torch.export.export(m, (torch.randn(3, 8),)).module(), "GraphModule"),
    ],
)
def test_programs_of_other_tools_are_kept(make, why):
    module = make(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    with pytest.warns(UserWarning, match=why):
        assert refold.optimize(module, torch.randn(3, 8), measure=False) is module
    assert why in refold.status(module).reason
