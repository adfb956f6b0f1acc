"""Arguments and parameters in other forms than the example's: transposed, with gaps, spread,
at odd addresses, overlapping, negated, of inference mode, of a subclass, with gradients wanted.

Kernels are PyTorch (`torch_target`), which take what does not lie as they read it for an error.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agree_layouts import Differ, check_forms
from calling import fast_of
from random_images import image_text
from random_models import BATCH, load, model_text
from refold import introspect, pipeline
from refold.derive import Options
from torch_target import TorchTarget
from zoo import CASES

# what returns views, follows orders, draws, keeps state, has masks, images, signals, attention
CHOSEN = (
    *("TurnedIntegers", "Cells", "TransformerBlock", "MaskAndWhere"),
    *("NormThenConvolution", "Signals", "CausalAttention", "TwoInputsScaled"),
)


def check(module: nn.Module, make: Callable[[], list[torch.Tensor]], seeds: range) -> int:
    """Calls in each mode that is fast; how many were."""
    _, device = pipeline.target_for("cpu")
    options = Options(measure=False, accuracy=False)
    name = type(module).__name__
    result = pipeline.run(module, make(), "# bound", name, TorchTarget(), device, options)
    if result.text is None:
        return 0
    fast = pipeline.bind_for_class(result.text, copy.deepcopy(module))
    taken = 0
    for mode in (m for m in result.modes if m.plan is not None):
        module.train(mode.name == "train"), fast.train(mode.name == "train")
        taken += sum(check_forms(fast, module, make, seed) for seed in seeds)
    return taken


@pytest.mark.parametrize("name", CHOSEN)
def test_the_zoo(name: str) -> None:
    torch.manual_seed(0)
    module = CASES[name]()
    assert check(module, module.inputs, range(8)) >= 2


@pytest.mark.parametrize("first", (80, 90))
@pytest.mark.parametrize("text_of", (model_text, image_text), ids=("models", "images"))
def test_random_models(text_of: Callable[..., str], first: int) -> None:
    taken = 0
    for seed in range(first, first + 4):
        module, given = load(text_of(random.Random(seed).choice))
        sizes = random.Random(seed)
        taken += check(module, partial(_of_some_size, given, sizes), range(8))
    assert taken >= 8


def _of_some_size(given: Callable[[int], list[torch.Tensor]], draw: random.Random) -> Any:
    return given(draw.choice((BATCH, BATCH, 1, 9, 0)))


class Given(nn.Module):
    """What is given, in some form, beside what is computed."""

    def __init__(self, show: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.fc, self.show = nn.Linear(6, 6), show

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.show(x), torch.relu(self.fc(x))


SHOWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(-1, 2),
    "view": lambda x: x.view(-1),
    "type_as": lambda x: x.type_as(x),
    "turned": lambda x: x.mT.reshape(-1),
    "a part": lambda x: x.flatten()[2:5],
    "windows": lambda x: x.unfold(-1, 2, 1),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_is_a_view_where_eagers_is(name: str) -> None:
    assert check(Given(SHOWN[name]), lambda: [torch.randn(4, 3, 6)], range(24))


class DropsWhatIsGiven(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.dropout(x, 0.3, self.training)
        return y.std(-1), y[:, None], y


def test_what_is_dropped_of_an_argument_is_drawn_once() -> None:
    assert check(DropsWhatIsGiven(), lambda: [torch.randn(4, 6)], range(8))


class Remembers(nn.Module):
    """What a buffer gets is given, or the buffer is: the export has one value for both."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.fc, self.which = nn.Linear(6, 6), which
        self.register_buffer("now", torch.randn(6)), self.register_buffer("last", torch.randn(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, old = torch.relu(self.fc(x)).sum(0), self.now.clone()
        self.last.copy_(x[0] if self.which == "argument" else old)
        self.now.copy_(y)
        given = {"old": old, "last": self.last, "part": self.last[1:], "argument": x[0]}
        return y, given.get(self.which, self.now)


@pytest.mark.parametrize("which", ("old", "last", "part", "argument", "now"))
def test_a_buffer_is_given_where_eager_gives_it(which: str) -> None:
    assert check(Remembers(which), lambda: [torch.randn(3, 6)], range(8))


class Pools(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool1d(x, 5, 1) * 2


def test_results_follow_signals_whose_channels_lie_last() -> None:
    module, x = Pools().eval(), torch.randn(2, 6, 12)
    fast = fast_of(module, x)
    assert introspect.fallback_reason(fast, [x]) is None
    last = x.mT.contiguous().mT
    with torch.no_grad():
        assert fast(last).stride() == module(last).stride() != module(x).stride()


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(z.real)) + self.fc(z.imag)


def test_a_conjugate_is_no_plain_tensor() -> None:
    """Its numbers are read past a mark, as those of the negative bit."""
    module, z = Spectrum().eval(), torch.randn(4, 6, dtype=torch.complex64)
    fast = fast_of(module, z)
    with torch.no_grad():
        for given, taken in ((z, True), (z.conj(), False), (z.conj().resolve_conj(), True)):
            assert (introspect.fallback_reason(fast, [given]) is None) == taken
            torch.testing.assert_close(fast(given), module(given))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda call, x: call(x) * (1 + 1e-4),
        lambda call, x: call(x) if x.is_contiguous() else call(x.contiguous()) + 1,
        lambda call, x: call(x).t().contiguous().t(),
        lambda call, x: call(x.view(-1).view(x.shape)),
        lambda call, x: call(x.detach()),
        lambda call, x: torch.relu_(call(x)) + x.zero_(),
    ],
)
def test_the_checker_sees(wrong: Callable[..., torch.Tensor]) -> None:
    class Wrong(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return wrong(super().forward, x)

    module = nn.Linear(5, 4)
    fast = pipeline.adopt(Wrong, copy.deepcopy(module))
    with pytest.raises(Differ):
        for seed in range(64):
            check_forms(fast, module, lambda: [torch.randn(7, 5)], seed)
