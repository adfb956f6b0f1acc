"""float64's rows of the most samples stand for fewer, where samples are independent."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch

from refold.judge.truth import largest
from refold.judge.truth.live import Lived

STEPS: list[dict[str, Any]] = [
    {"do": "call", "label": f"batch {n}", "rows": n} for n in (5, 9, 2, 16, 7)
]


def _lives(model: Any, base: torch.Tensor) -> tuple[dict[str, Any], Any, Counter[str]]:
    asked = Counter[str]()

    def wide(label: str) -> Lived:
        asked[label] += 1
        rows = base.double()[: int(label.split()[1])]
        return Lived({label: ("output", model(rows))}, None)

    eager = {s["label"]: ("output", model(base[: s["rows"]])) for s in STEPS}
    return eager, wide, asked


def test_rows_are_read_where_samples_are_independent() -> None:
    base = torch.randn(16, 40, generator=torch.Generator().manual_seed(0))
    eager, wide, asked = _lives(lambda x: (torch.tanh(x), {"sum": x.T}), base)
    found = largest.read("batch 7", STEPS, eager, wide)
    assert found is not None and set(asked) == {"batch 16", "batch 2"}
    output, named = found.seen["batch 7"][1]
    assert torch.equal(output, torch.tanh(base[:7].double()))
    assert torch.equal(named["sum"], base[:7].double().T)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x - x.mean(0),
        lambda x: x.sum(0),  # nothing of its shape says how many there were
        lambda x: x + 1e-9 * len(x),  # eager's rounding hides it, float64's does not
        lambda x: torch.where(torch.tensor(len(x) == 7), x + 1, x),
    ],
)
def test_none_is_read_where_they_are_not(model: Any) -> None:
    base = torch.randn(16, 40, generator=torch.Generator().manual_seed(0))
    eager, wide, _ = _lives(model, base)
    assert largest.read("batch 7", STEPS, eager, wide) is None


class Pair(NamedTuple):
    values: torch.Tensor
    sums: torch.Tensor


def test_results_of_named_fields_keep_their_class() -> None:
    base = torch.randn(16, 40, generator=torch.Generator().manual_seed(0))
    eager, wide, _ = _lives(lambda x: Pair(torch.tanh(x), x.sum(1)), base)
    found = largest.read("batch 7", STEPS, eager, wide)
    assert found is not None
    output = found.seen["batch 7"][1]
    assert type(output) is Pair and torch.equal(output.sums, base[:7].double().sum(1))
    most = torch.arange(8.0).reshape(4, 2).max(1)
    assert torch.equal(largest.first(most, torch.zeros(2, 2).max(1)).values, most.values[:2])
