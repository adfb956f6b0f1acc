"""Results share memory with each other, with arguments and with parameters where eager's do."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import refold
from refold import pipeline, twin
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


class Follows(nn.Module):
    """Results follow the order in which the argument lies, but for the product and the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.fc(x))
        return torch.tanh(x * 2) + 1, x + y, y * 2, torch.softmax(x, -1), x[..., :3]


class FollowsNot(Follows):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(self.fc(torch.tanh(x))).softmax(-1), x[..., :3]


def _orders(rank: int) -> list[torch.Tensor]:
    """Arguments of one shape that lie in memory in every order; parts of larger ones; expanded."""
    sizes = (5, 4, 6, 8)[-rank:]
    whole = torch.randn(*sizes)
    found = []
    for order in itertools.permutations(range(rank)):
        back = [order.index(axis) for axis in range(rank)]
        found.append(whole.permute(order).contiguous().permute(back))
    return [*found, torch.randn(*(2 * n for n in sizes))[tuple(slice(n) for n in sizes)]]


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("example", ["in rows", "transposed"])
def test_results_lie_as_eagers_do_whatever_order_the_arguments_lie_in(
    rank: int, example: str
) -> None:
    """Kernels are made for each order that comes: what reads a result as a view finds it there."""
    module = Follows().eval()
    first, *_, last, part = _orders(rank)
    given = [first, last, part, *(_orders(rank)[1:-2][:2]), first]
    fast = refold.optimize(module, first if example == "in rows" else last, measure=False)
    with torch.no_grad():
        for x in given:
            for got, expected in zip(fast(x), twin.original(fast)(x), strict=True):
                torch.testing.assert_close(got, expected)
                assert got.stride() == expected.stride(), x.stride()
            assert refold.status(fast).fast, refold.status(fast)


def test_the_order_that_no_result_follows_is_not_compared() -> None:
    module = FollowsNot().eval()
    fast = refold.optimize(module, torch.randn(4, 6, 8), measure=False)
    with torch.no_grad():
        for x in _orders(3):
            for got, expected in zip(fast(x), twin.original(fast)(x), strict=True):
                torch.testing.assert_close(got, expected)
                assert got.stride() == expected.stride()
            assert refold.status(fast).fast
    assert len(twin.state_of(fast).programs) == 1


class Masked(nn.Module):
    """Results of whole numbers and masks follow these."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.fc(x).relu().masked_fill(mask > 1, 0.0), mask * 2 + 1, mask.float()


class OfBytes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x.float() / 255))


class ImageAndTime(OfBytes):
    """What is beside an image may lie otherwise, too."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return super().forward(x), torch.tanh(t) * 2


IMAGES = torch.randint(0, 255, (2, 3, 8, 8), dtype=torch.uint8)
OTHERS = {
    "mask": (Masked, (torch.randn(4, 5, 6), torch.randint(0, 4, (4, 5, 6)))),
    "bytes": (OfBytes, (IMAGES,)),
    "time": (ImageAndTime, (IMAGES / 7, torch.randn(2, 5))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_results_lie_as_eagers_do_whatever_kind_of_argument_lies_otherwise(name: str) -> None:
    cls, given = OTHERS[name]
    fast = refold.optimize(cls().eval(), *given, measure=False)
    turned = given[-1].mT.contiguous().mT
    if turned.dim() == 4:
        turned = turned.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        for last in (given[-1], turned, given[-1]):
            results = fast(*given[:-1], last), twin.original(fast)(*given[:-1], last)
            for got, expected in zip(*map(pytree.tree_leaves, results), strict=True):
                torch.testing.assert_close(got, expected)
                assert got.stride() == expected.stride()
            assert refold.status(fast).fast, refold.status(fast)
