"""Values in 16 bits between a product and the kernel that normalises them, on the emulator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from torch import nn

from beforehand import COMPILERS
from refold import introspect, pipeline
from test_models import written
from test_quantized import QUANTIZED, ByHand, quantizing
from tests.emulator.test_modules import built_for_emulator

ROWS, DEPTH = 16384, 160


class Normalised(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(DEPTH, width), nn.BatchNorm1d(width)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.linear(x) * 3.0))


# what is captured; of 132 columns there is a tile that no edge cuts, of 137 no row is aligned
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "137": (lambda: Normalised(137), (ROWS, DEPTH)),
    "ByHand": (ByHand, (16, ROWS // 16, DEPTH)),
}


Built = Mapping[str, Future[tuple[nn.Module, nn.Module]]]


@pytest.fixture(scope="module")
def built() -> Built:
    """Each module with its fast twin; compiled two at a time."""
    pairs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "DEVICES", quantizing(1))
        for name, (make, shape) in MODELS.items():
            torch.manual_seed(0)
            pairs[name] = written(make(), [torch.randn(shape)], "cuda:sm_90", "tf32")
            assert QUANTIZED in (pairs[name][1].text or "")
    with ThreadPoolExecutor(COMPILERS) as pool:
        return {name: pool.submit(built_for_emulator, pair) for name, pair in pairs.items()}


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    flags, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
    flags.allow_tf32 = True
    yield
    flags.allow_tf32 = before


def both(built: Built, name: str, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Results and buffers of one call of the fast module and of the original in float64."""
    module, fast = built[name].result()
    fast.load_state_dict(module.state_dict())
    exact = copy.deepcopy(module).double()
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, wanted = fast(x), exact(x.double())
    if isinstance(got, torch.Tensor):
        got, wanted = [got], [wanted]
    return [*got, *fast.buffers()], [*wanted, *exact.buffers()]


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize(
    ("name", "rows"),
    [("137", (257,)), ("137", (17,)), ("ByHand", (3, 128)), ("ByHand", (3, 111))],
)
def test_results_and_statistics(built: Built, name: str, rows: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    for shift in (0.0, 3.0):
        for got, wanted in zip(*both(built, name, torch.randn(*rows, DEPTH) + shift), strict=True):
            assert got.shape == wanted.shape
            # ten bits of every operand; of a mean that is nearly 0 much cancels
            assert error(got, wanted) < 2e-3


def test_a_few_rows_are_stored_as_they_are(built: Built) -> None:
    torch.manual_seed(1)
    for got, wanted in zip(*both(built, "137", torch.randn(16, DEPTH)), strict=True):
        assert error(got, wanted) < 2e-3


@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1e12])
def test_no_scale_costs_accuracy(built: Built, scale: float) -> None:
    torch.manual_seed(1)
    with torch.no_grad():  # whose rounding the small values would drown in, in float64, too
        built["ByHand"].result()[0].linear.bias.zero_()
    got, wanted = both(built, "ByHand", torch.randn(2, 150, DEPTH) * scale)
    assert error(got[0], wanted[0]) < 2e-3


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("outliers", [(), (5, 130, 290)])
def test_an_outlier_costs_the_others_nothing(
    built: Built, name: str, outliers: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    with torch.no_grad():  # products are exact, also of TF32
        weight = built[name].result()[0].linear.weight
        weight.copy_((weight * 64).round() / 64)
    x = torch.randint(-8, 9, (300, DEPTH)).float()
    x[list(outliers)] *= 1024.0
    got, wanted = both(built, name, x if name == "137" else x.reshape(3, 100, DEPTH))
    others = [i for i in range(300) if i not in outliers]
    g, w = (t[0].reshape(300, -1)[others] for t in (got, wanted))
    # where a row is far from the others of its block, they are stored as they are
    least, most = (0.0, 1e-5) if outliers else (1e-5, 1e-4)
    assert least < error(g, w) < most


def test_equal_values_are_exact(built: Built) -> None:
    got, wanted = both(built, "137", torch.ones(300, DEPTH))
    # each column's variance is 0, so only what the sums round off is seen, 1 / sqrt(eps) times
    assert float((got[0] - wanted[0]).abs().max()) < 1e-3


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
def test_what_is_not_finite_makes_its_columns_nan(built: Built, value: float) -> None:
    torch.manual_seed(1)
    module, _ = built["ByHand"].result()
    x = torch.randn(2, 150, DEPTH)
    x[1, 40, 7] = value
    got, _ = both(built, "ByHand", x)
    with torch.no_grad():
        eager = copy.deepcopy(module)(x)
    assert torch.equal(got[0].isnan(), eager[0].isnan())
