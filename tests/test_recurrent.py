"""Recurrent layers are captured without a step of them being run on tensors without values."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table

import refold
from refold import pipeline
from refold.capture import program


class Head(nn.Module):
    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.norm = layer, nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        last = state[0] if isinstance(state, tuple) else state
        return torch.relu(self.norm(y) * 2), last * 3, y


@pytest.mark.parametrize(("batch_first", "bidirectional"), [(False, False), (True, True)])
@pytest.mark.parametrize(
    ("kind", "settings", "width"),
    [
        (nn.LSTM, {"num_layers": 2}, 8),
        (nn.LSTM, {"proj_size": 5}, 5),
        (nn.GRU, {}, 8),
        (nn.RNN, {"num_layers": 2, "nonlinearity": "relu"}, 8),
        (nn.RNN, {}, 8),
    ],
)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_shapes_strides_and_values(kind, settings, width, batch_first, bidirectional):
    torch.manual_seed(0)
    layer = kind(6, 8, batch_first=batch_first, bidirectional=bidirectional, **settings)
    module = Head(layer, width * (2 if bidirectional else 1)).eval()
    fast = refold.optimize(module, torch.randn(4, 7, 6), measure=False)
    x = torch.randn(3, 7, 6) if batch_first else torch.randn(4, 3, 6)  # another batch size
    with torch.no_grad():
        assert pipeline.obstacle(fast, [x]) is None
        for a, b in zip(module(x), fast(x), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()


def test_no_step_is_run(monkeypatch):
    def step(*args, **options):
        raise AssertionError("a step was run")

    monkeypatch.setattr("torch._decomp.decompositions._rnn_helper", step)
    lstm = torch.ops.aten.lstm.input
    before = decomposition_table[lstm]
    program.exported(nn.LSTM(6, 8, num_layers=2), (torch.randn(5, 3, 6),), None)
    assert decomposition_table[lstm] is before  # what others trace is theirs
    monkeypatch.setattr("refold.capture.recurrent._RULES", {})
    with pytest.raises(AssertionError, match="a step was run"):
        program.exported(nn.LSTM(6, 8, num_layers=2), (torch.randn(5, 3, 6),), None)
