"""A result takes the memory of a value that nothing reads any more, and of no other."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.derive import Options


class Normalised(nn.Module):
    """The normalisation alone reads the product, unless `also` returns it or what is made of it."""

    def __init__(self, also: str) -> None:
        super().__init__()
        self.fc = nn.Linear(40, 48)
        self.bn = nn.BatchNorm1d(48)
        self.also = also

    def forward(self, x):
        y = self.fc(x)
        z = self.bn(y)
        if self.also == "itself":
            return z, y
        if self.also == "a view":
            return z, y.T
        if self.also == "a later row":
            return z, torch.softmax(y + z.sum(1, keepdim=True), 1)
        return z


@pytest.mark.parametrize("also", ("nothing", "itself", "a view", "a later row"))
def test_memory_is_taken_over_where_it_is_spent(also):
    torch.manual_seed(0)
    module = Normalised(also)
    x = torch.randn(70, 40)
    target, device = pipeline.target_for("cpu")
    result = pipeline.run(
        module, [x], "", "memory", target, device, Options(measure=False, accuracy=False)
    )
    assert result.text is not None, result.reasons
    train = result.text[result.text.index("def _refold_train(") :]
    train = train[: train.index("\n    def ")]
    taken = re.findall(r"\n +(\w+) = (product\d*)  # in its place\n", train)
    assert bool(taken) == (also == "nothing"), train

    fast = pipeline.bind_for_class(result.text, module)
    before = x.clone()
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        first = fast(x)
        torch.testing.assert_close(fast(x), first, rtol=0, atol=0)
    assert torch.equal(x, before), "an input was written to"
