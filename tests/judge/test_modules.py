"""Two modules in memory, and calls that were recorded."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from judge_paths import CANDIDATES, REFERENCES
from torch import nn

import refold.judge
from refold.contract import ContractError
from refold.judge import Status, judge


class Layers(nn.Module):
    """A linear layer and batch norm, under keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 12)
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return torch.relu(self.norm(self.linear(x))) * scale


class Folded(Layers):
    """The same, its statistics folded once."""

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        if self.training or torch.is_grad_enabled():
            return super().forward(x, scale)
        if not hasattr(self, "factor"):
            norm = self.norm
            self.factor = (norm.weight / torch.sqrt(norm.running_var + norm.eps)).detach()
            self.shift = (norm.bias - norm.running_mean * self.factor).detach()
        return torch.relu(self.linear(x) * self.factor + self.shift) * scale


def test_a_copy_is_accepted_and_neither_is_changed() -> None:
    model = Layers()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    verdict = refold.judge(  # type: ignore[operator]
        model, copy.deepcopy(model), torch.randn(9, 24), scale=2.0, timing=False
    )
    assert verdict.accepted, verdict.failures
    assert any("nothing was isolated" in note for note in verdict.notes)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


class Sums(nn.Module):
    """The sum of a layer's features, which of three axes is the sum of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).sum(dim=1, keepdim=True)


class SumsOfWeights(Sums):
    """The features summed in the weights, of any rank: it comes out in another shape of three."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.linear.weight.sum(dim=0) + self.linear.bias.sum()).unsqueeze(1)


class HalfOfRows(Sums):
    """Half the gradient where the sum is of rows, in the reference's shape."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y if x.dim() == 2 else y / 2 + y.detach() / 2


@pytest.mark.parametrize("kind, found", [(SumsOfWeights, False), (HalfOfRows, True)])
def test_gradients_of_another_rank_are_those_of_a_shape_that_is_told(
    kind: type[Sums], found: bool
) -> None:
    model = Sums()
    other = kind()
    other.load_state_dict(model.state_dict())
    verdict = judge(model, other, torch.randn(4, 5), only="batches with gradients", timing=False)
    assert verdict.accepted is not found, verdict.failures
    assert ("the reference's rank" in " ".join(verdict.assumptions)) is not found


def test_a_stale_fold_is_found_by_its_life() -> None:
    model = Layers()
    folded = Folded()
    folded.load_state_dict(model.state_dict())
    verdict = judge(model, folded, torch.randn(9, 24), only="statistics move", timing=False)
    assert "statistics move" in {f.test for f in verdict.failures}


def test_a_narrower_twin_is_judged_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(24, 12))

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Linear(24, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(
                x.half().float(), self.kept.weight.half().float(), self.kept.bias
            )

    half = Half()
    half.kept.load_state_dict(model[0].state_dict())
    verdict = judge(model, half, torch.randn(9, 24), timing=False)
    assert verdict.status is Status.WRONG_NUMERICS
    assert any("as they are" in text for text in verdict.assumptions)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(ContractError, match="takes"):
        judge(Layers(), Layers(), torch.randn(9, 24), wrong=1)


def test_it_is_timed_and_says_that_nothing_was_isolated() -> None:
    model = Layers().eval()
    verdict = judge(model, copy.deepcopy(model), torch.randn(9, 24), only=["numerics", "work"])
    assert verdict.timing is not None and "no isolation" in verdict.timing.note


def test_recorded_inputs(tmp_path: Path) -> None:
    """Inputs of which the file's own draw knows nothing: a candidate that fails on them."""
    calls, candidate = tmp_path / "calls.pt", tmp_path / "cand.py"
    torch.save([[torch.rand(4, 256)], [torch.rand(7, 256) - 40]], calls)
    text = (CANDIDATES / "accept_01_copy.py").read_text()
    candidate.write_text(text.replace("(self.linear(x))", "(self.linear(x.clamp(min=-30)))"))
    files = (REFERENCES / "linear.py", candidate)
    assert judge(*files, only="numerics", device="cpu", quick=True).status in (
        Status.ACCEPTED,
        Status.WRONG_NUMERICS,
    )
    verdict = judge(*files, only="recorded inputs", inputs=calls, device="cpu", quick=True)
    assert {f.case.split(",")[0] for f in verdict.failures} == {"recorded call 1"}
    torch.save({"x": 1}, calls)
    with pytest.raises(ContractError, match="list of lists"):
        judge(*files, only="recorded inputs", inputs=calls, device="cpu", quick=True)


class Logs(nn.Module):
    """Nearly equal numbers less their mean, in float64: all that is left is their rounding."""

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(torch.log(0.5 + self.softmax(x)), (x.shape[-1],))


class OtherLogs(Logs):
    """The same in another order."""

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


class NarrowLogs(Logs):
    """The same by way of float32."""

    def softmax(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.float(), -1).to(x.dtype)


@pytest.mark.parametrize("only", ["numerics", None])
def test_the_rounding_of_results_in_float64_is_no_error(only: str | None) -> None:
    x = torch.randn(18, 40, dtype=torch.float64)
    verdict = judge(Logs(), OtherLogs(), x, only=only, timing=False)
    assert verdict.accepted, verdict.failures
    assert not judge(Logs(), NarrowLogs(), x, only="numerics", timing=False).accepted
