"""Calls that would end the use of a GPU are found on the CPU. Here the twin is asked itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from judge_paths import REFERENCES

from refold.contract import load
from refold.judge.tests.lives.common import begin, call
from refold.judge.truth.live import Living
from refold.judge.truth.oracle import Oracle
from refold.judge.truth.rehearsal import Rehearsal
from refold.judge.verdict.truths import PERTURBED

_PROBABILITIES = """
import torch
class Model(torch.nn.Module):
    def forward(self, p, t):
        return torch.nn.functional.binary_cross_entropy(p, t)
def get_inputs():
    return [torch.rand(4, 6), torch.rand(4, 6)]
def get_init_inputs():
    return []
"""


def oracle_of(path: Path) -> tuple[Oracle, list[torch.Tensor]]:
    reference = load(path)
    oracle, inputs = Oracle(reference, 0, torch.device("cpu")), reference.inputs(1)
    oracle.first(inputs)
    assert oracle.rehearsal is None  # on the CPU nothing is lost by a wrong index
    oracle._rehearse(inputs)
    return oracle, inputs


class Counted:
    """A twin that counts its calls."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.twin, self.calls = rehearsal.twin, 0
        rehearsal.twin = self

    def load(self, state):
        self.twin.load(state)

    def eager(self, inputs, training, seed):
        self.calls += 1
        return self.twin.eager(inputs, training, seed)


def test_models_without_indices_are_not_rehearsed() -> None:
    assert oracle_of(REFERENCES / "linear.py")[0].rehearsal is None


def test_wrong_indices_raise_and_end_lives_beforehand() -> None:
    oracle, (x, target) = oracle_of(REFERENCES / "loss.py")
    assert oracle.rehearsal is not None
    with pytest.raises(IndexError):
        oracle.eager([x, target + 40], False, 0)
    living, steps = Living(oracle, 0, False), (*begin(), call("y", "x"))
    states = {PERTURBED: oracle.state()}
    for target_of, asserts in ((target + 40, True), (target, False)):
        lived = living.eager(steps, states, {"x": [x, target_of]})
        assert (lived.raised is not None) == asserts and bool(lived.seen) != asserts
    # the product refuses it, on a GPU as well
    lived = living.eager(steps, states, {"x": [x[:, :-1], target]})
    assert lived.raised is not None and lived.raised["type"] == "RuntimeError"
    # an error that a step expects would still have ended the use of the device
    refused = [*begin(), {"do": "refuse", "inputs": "x"}]
    lived = living.eager(refused, states, {"x": [x, target + 40]})
    assert lived.raised == {"type": "Asserted", "message": "on the CPU"}
    # as many classes as the constructor says
    fewer = [{"do": "build", "state": PERTURBED, "init": [96, 39]}, call("y", "x")]
    few = {PERTURBED: {k: v[:39] for k, v in oracle.state().items()}}
    lived = living.eager(fewer, few, {"x": [x, target * 0 + 39]})
    assert lived.raised is not None and lived.raised["type"] == "IndexError"


_CLASSES = """
import torch
class Model(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.linear(torch.nn.functional.one_hot(x, self.classes).sum(1).float()[:, :4])
def get_inputs():
    return [torch.randint(0, 6, (5, 3))]
def get_init_inputs():
    return [6]
"""


def test_a_class_that_the_constructor_takes_away_is_not_tried(tmp_path: Path) -> None:
    """one_hot raises on the CPU outside of all operations."""
    file = tmp_path / "classes.py"
    file.write_text(_CLASSES)
    oracle, (x,) = oracle_of(file)
    tried: list[object] = []
    living = Living(oracle, 0, False)
    living._run = lambda *_, **__: tried.append(1)  # type: ignore[method-assign]
    fewer = [{"do": "build", "state": PERTURBED, "init": [5]}, call("y", "x")]
    lived = living.eager(fewer, {PERTURBED: oracle.state()}, {"x": [x * 0 + 5]})
    assert lived.raised is not None and not tried


def test_only_what_is_new_is_run_twice() -> None:
    oracle, (x, target) = oracle_of(REFERENCES / "loss.py")
    assert oracle.rehearsal is not None
    twin = Counted(oracle.rehearsal)
    oracle.eager([x * 3, target.flip(0)], True, 0)
    assert twin.calls == 0
    for _ in range(2):
        oracle.eager([x[:5], target[:5]], True, 0)
    assert twin.calls == 1
    oracle.eager([x, target * 0 + 39], True, 0)
    oracle.eager([x, target * 0], True, 0)
    assert twin.calls <= 3
    oracle.eager([x, target], True, 0)
    assert twin.calls <= 3


@pytest.mark.parametrize(("ignored", "between"), [(-100, -1), (255, 100)])
def test_a_value_by_itself_says_nothing_of_those_before_it(
    ignored: int, between: int, tmp_path: Path
) -> None:
    """-100 is left out by a loss, or 255; a GPU asserts of -1, and of 100 beside 40 classes."""
    file = tmp_path / "ignored.py"
    text = (REFERENCES / "loss.py").read_text()
    file.write_text(text.replace("(x), target)", f"(x), target, ignore_index={ignored})"))
    oracle, (x, target) = oracle_of(file)
    target[::5] = ignored
    oracle.eager([x, target], True, 0)
    assert oracle.rehearsal is not None
    twin = Counted(oracle.rehearsal)
    oracle.eager([x, target.flip(0)], True, 0)
    assert twin.calls == 0
    target[::5] = between
    with pytest.raises(IndexError):
        oracle.eager([x, target], True, 0)
    assert twin.calls == 1


def test_a_vocabulary_is_known_by_a_few_of_its_words() -> None:
    torch.manual_seed(0)
    draws = [[torch.randint(0, 50000, (8, 32))] for _ in range(20)]
    found = Rehearsal.__new__(Rehearsal)
    found.by_value, found.known = False, {}
    found._learn(draws[0])
    least, most = draws[0][0].min(), draws[0][0].max()
    inner = [d for d in draws if least <= d[0].min() and d[0].max() <= most]
    assert len(inner) > 2 and all(map(found.ordinary, inner))


def test_what_asserts_by_value_is_always_rehearsed_and_moved_inward(tmp_path: Path) -> None:
    file = tmp_path / "probabilities.py"
    file.write_text(_PROBABILITIES)
    oracle, (p, t) = oracle_of(file)
    assert oracle.rehearsal is not None
    with pytest.raises(RuntimeError):
        oracle.eager([p * 3, t], False, 0)
    oracle.perturbed([torch.ones_like(p), t], False, 0, 0)  # 1 moved up would be no probability


def test_the_twin_has_the_weights_of_the_moment() -> None:
    oracle, (x, target) = oracle_of(REFERENCES / "loss.py")
    assert oracle.rehearsal is not None
    oracle.load({k: v * 2 for k, v in oracle.state().items()})
    oracle.rehearsal(oracle.state(), [x[:3], target[:3]], False, 0)
    twin = oracle.rehearsal.twin.eager([x, target], False, 0)
    assert torch.equal(twin.outputs, oracle.eager([x, target], False, 0).outputs)
