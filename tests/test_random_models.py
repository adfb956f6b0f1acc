"""Random models in every state they can be in: emitted from fixed seeds, against the originals.

Most run on the target whose kernels are PyTorch (`torch_target`), which leaves nothing out but the
C++ text; a few are compiled. `python tests/soak.py --only random` draws as many as wanted, and
makes the text of one that fails small.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from agree import check_life
from random_images import image_text
from random_models import BATCH, load, model_text
from refold import introspect, pipeline
from refold.derive import Options
from torch_target import TorchTarget

SEEDS = range(24)
COMPILED = range(1000, 1004)


def text_of(seed: int, longest: int = 9) -> str:
    return model_text(random.Random(seed).choice, longest)


def cast(value: Any, dtype: torch.dtype) -> Any:
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if floats else value


def check(text: str, name: str = "torch", dtype: torch.dtype = torch.float32) -> bool:
    """Do the model of `text` and its emitted twin agree in all their states?

    name: a target of refold, or "torch" for kernels that are PyTorch. dtype: of all its floats.
    False where the original is kept, which says why; AssertionError where they do not agree.
    """
    module, given = load(text)
    target, device = pipeline.target_for("cpu" if name == "torch" else name)
    module = module.to(target.device, dtype)
    for m in module.modules():
        vars(m).update({k: cast(v, dtype) for k, v in vars(m).items()})

    def draw(count: int) -> list[Any]:
        values = (cast(v, dtype) for v in given(count))
        return [v.to(target.device) if isinstance(v, torch.Tensor) else v for v in values]

    result = pipeline.run(
        module,
        draw(BATCH),
        "# Model is bound by the test.",
        "Model",
        TorchTarget() if name == "torch" else target,
        device,
        Options(measure=False),
    )
    for mode in result.modes:
        assert (mode.plan is None) == bool(mode.kept), "the original is kept without a reason"
    if result.text is None:
        return False
    fast = pipeline.bind_for_class(result.text, copy.deepcopy(module))
    for mode in result.modes:
        if mode.plan is not None:
            fast.train(mode.name == "train")
            with torch.no_grad():
                found = introspect.fallback_reason(fast, draw(BATCH))
            assert found is None, f"{mode.name} takes the original forward: {found}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bits = all(m.plan is None or m.label == "bits" for m in result.modes)
        check_life(fast, module, draw, (BATCH, 1, 9, 0), bits)
    return True


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("first", SEEDS[::8])
def test_random_models(first):
    fast = sum(check(text_of(seed)) for seed in range(first, first + 8))
    assert fast >= 6, "too little is compared: originals are kept"


@pytest.mark.parametrize("first", (0, 8))
def test_random_models_of_images(first):
    texts = [image_text(random.Random(seed).choice) for seed in range(first, first + 8)]
    assert sum(map(check, texts)) >= 5, "too little is compared: originals are kept"


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float64), ids=str)
def test_random_models_of_other_dtypes(dtype):
    fast = sum(check(text_of(seed), dtype=dtype) for seed in range(100, 110))
    assert fast >= 6, "too little is compared: originals are kept"


@pytest.mark.parametrize("seed", COMPILED)
def test_random_models_compiled(seed):
    check(text_of(seed, 5), "cpu")


@pytest.mark.parametrize(
    "change",
    [
        lambda fast, x: fast(x) * (1 + 1e-5),
        lambda fast, x: fast(x).t().contiguous().t(),
        lambda fast, x: (fast(x),),
        lambda fast, x: fast(x) if x.shape[0] != 9 else fast(x) + 1,
        lambda fast, x: fast(x.mul_(1.5)) / 1.5,
    ],
)
def test_the_checker_sees(change: Callable[[nn.Module, torch.Tensor], Any]):
    module = nn.Linear(5, 4)

    class Wrong(nn.Linear):
        def forward(self, x):
            return change(super().forward, x)

    wrong = pipeline.adopt(Wrong, copy.deepcopy(module))
    with pytest.raises(AssertionError):
        check_life(wrong, module, lambda n: [torch.randn(n, 5)], (BATCH, 9))
