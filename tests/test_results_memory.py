"""Results share memory with each other, with arguments and with parameters where eager's do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refold
from refold import pipeline
from refold.derive import Options
from refold.emit.load import load_text


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(64, 48)


class Values(Base):
    def forward(self, x):
        y = torch.relu(self.map(x))
        z = torch.softmax(y, -1)
        first, second = z.chunk(2, 1)
        copies = y, y.view(-1), y.clone(), y.clone().view(-1), y + 0, y
        return *copies, first, second, z[:, :5].clone(), z.t(), torch.relu(z)


class Arguments(Base):
    def forward(self, x):
        y, w = self.map(x), self.map.weight
        z = nn.functional.dropout(y, 0.5, self.training)
        shown = z, z.to(torch.float32), z.contiguous(), z.reshape(-1, 4)
        return *shown, x, x.clone(), x[:3], x * 1, w, w.clone(), w * 1


def groups(module: nn.Module, results: tuple[torch.Tensor, ...], x: torch.Tensor) -> list[int]:
    known: dict[int, int] = {}
    tensors = (x, *module.parameters(), *results)
    return [known.setdefault(t.untyped_storage().data_ptr(), len(known)) for t in tensors]


@pytest.mark.parametrize("cls", [Values, Arguments])
def test_results_share_what_eagers_share(cls: type[nn.Module]) -> None:
    module, x = cls().eval(), torch.randn(8, 64)
    target, device = pipeline.target_for("cpu", None)
    options = Options(measure=False, accuracy=False)
    text = pipeline.run(module, (x,), "", cls.__name__, target, device, options).text
    assert text is not None
    fast = pipeline.adopt(load_text(text, {"Model": cls}).ModelNew, module)
    with torch.no_grad():
        expected, made = module(x), fast(x)
    assert groups(module, made, x) == groups(module, expected, x)
    for a, b in zip(made, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_attention_lies_as_in_eager_which_has_another_way_in_eval_mode() -> None:
    """There its result is one row after the other, so that it can be viewed as rows."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, x, x)[0]

    module, x = Attention(), torch.randn(3, 7, 32)
    fast = refold.optimize(module, x, measure=False)
    for training in (False, True):
        module.train(training), fast.train(training)
        with torch.no_grad():
            expected, made = module(x), fast(x)
        torch.testing.assert_close(made, expected)
        assert refold.status(fast).fast
        assert made.stride() == expected.stride(), training
