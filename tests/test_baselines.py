"""What refold has to beat: which baselines there are, how they are timed, and what a loss says.

Times are made up here and torch.compile is replaced, but for one test in tests/test_cli.py.
"""

from __future__ import annotations

import functools
import json
import random
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import refold
from refold import baselines, cli, measure
from refold.judge import Status, Verdict, aside
from refold.measure import Side, Timing
from refold.pipeline import OptimizeError

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x * 2 + 1).sum(1)
def get_inputs():
    return [torch.rand(8, 16)]
"""


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x * 2 + 1).sum(1)


class Summed(nn.Linear):
    """A product with the sum of the weight's rows, which is folded."""

    def forward(self, x):
        return torch.sigmoid(super().forward(x).sum(1))


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """torch.compile gives the module itself, and what was found for one test is no other's."""
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    monkeypatch.setattr(baselines, "_RATIOS", {})


def times(monkeypatch, ours=1.0, **seconds):
    """Let each baseline take so many seconds, and refold `ours`; the names asked for so far."""
    asked = []

    def race(sides, other, device, limit, until_clear):
        asked.append(tuple(sides))
        given = {name: seconds[name.removeprefix("torch.").split()[0]] for name in sides}
        return {n: Timing(s, ours, s / ours, s / ours, s / ours, 3) for n, s in given.items()}

    monkeypatch.setattr(baselines, "race", race)
    return asked


@contextmanager
def convinced(device, threads):
    """A judge that accepts what it is given: tests/test_cli.py has a file judged."""
    nothing = {
        "sets": {},
        "tests": (),
        "failures": (),
        "errors": (),
        "assumptions": (),
        "notes": (),
    }
    verdict = functools.partial(Verdict, Status.ACCEPTED, device=device, seed=0, quick=True)
    more = {**nothing, "timing": None, "environment": {}, "seconds": 0.0}
    yield lambda one, other, **_: verdict(reference=str(one), candidate=str(other), **more)


def optimized(tmp_path, monkeypatch, capsys, *more):
    monkeypatch.setattr(aside, "begun", convinced)
    reference, out = tmp_path / "ref.py", tmp_path / "fast.py"
    reference.write_text(REFERENCE)
    code = cli.main(["optimize", str(reference), "-o", str(out), "--json", *more])
    return code, json.loads(capsys.readouterr().out), out.read_text()


def test_all_sides_take_turns():
    order = []

    def side(name):
        return lambda: order.append(name)

    sides = {"a": Side(side("a")), "b": Side(side("b"))}
    found = measure.race(sides, side("refold"), seconds=1e-9)
    turns = [name for k, name in enumerate(order) if k == 0 or order[k - 1] != name]
    assert turns == ["a", "b", "refold", "a", "b", "refold", "b", "a", "b", "refold"]
    assert set(found) == {"a", "b"} and found["a"].other == found["b"].other


@pytest.mark.parametrize(
    ("slow", "noise", "rounds"),
    [(2.0, 0.0, 9), (0.5, 0.0, 9), (1.02, 0.05, 40), (2.0, 0.3, 40), (1.0, 0.0, 40)],
    ids=["faster", "slower", "near", "noisy", "equal"],
)
def test_a_race_ends_when_it_is_clear(monkeypatch, slow, noise, rounds):
    """What is near 1, or spread, is timed for as long as was asked for."""
    now, drawn = [0.0], random.Random(0)
    calls = {"base": 0, "other": 0}

    def side(name, seconds):
        def run():
            calls[name] += 1
            now[0] += seconds * (1 + noise * drawn.uniform(-1, 1))

        return run

    monkeypatch.setattr(measure, "timer", lambda: now[0])
    sides = {"base": Side(side("base", slow))}
    found = measure.race(sides, side("other", 1.0), seconds=40 * (1 + slow), until_clear=True)
    assert abs(found["base"].pairs - rounds) <= (noise > 0) * 10
    assert calls["other"] == found["base"].pairs + 2
    found = measure.race(sides, side("other", 1.0), seconds=40 * (1 + slow))
    assert abs(found["base"].pairs - 40) <= (noise > 0) * 10


def test_a_setting_holds_while_its_side_is_timed():
    flags = torch.backends.cudnn
    before, seen = flags.benchmark, []
    side = Side(lambda: seen.append(flags.benchmark), baselines._cudnn_benchmark)
    side.clock("cpu", 2)
    assert seen == [True, True] and flags.benchmark is before


def test_a_loss_to_torch_compile_keeps_the_original(tmp_path, monkeypatch, capsys):
    times(monkeypatch, eager=2.0, compile=0.5)
    code, report, text = optimized(tmp_path, monkeypatch, capsys)
    words = "not faster than torch.compile (1e+03 ms against 500 ms, ratio 0.50; eager 2e+03 ms)"
    assert code == 3 and words in report["reason"] and words in text
    assert "ModelNew = Model" in text
    (mode,) = report["modes"]
    assert mode["best"] == "torch.compile" and mode["ratio_to_best"] == 0.5
    assert mode["speedup_to_best"] == 0.25, "the file is eager, over the best"


def test_a_gain_names_the_baselines(tmp_path, monkeypatch, capsys):
    asked = times(monkeypatch, **{"eager": 2.0, "compile": 1.5, "max-autotune": 1.25})
    code, report, _ = optimized(tmp_path, monkeypatch, capsys, "--baselines")
    (mode,) = report["modes"]
    assert code == 0 and mode["ratio"] == 2.0 and mode["ratio_to_compile"] == 1.5
    assert mode["best"] == "max-autotune" and mode["speedup_to_best"] == 1.25
    # a model without images cannot be laid out so
    assert asked == [("eager", "torch.compile", "max-autotune")]
    assert set(mode["left_out"]) == {"channels-last", "torch.compile channels-last"}
    assert "no convolution" in mode["left_out"]["channels-last"]


def test_no_compile_asks_for_eager_alone(tmp_path, monkeypatch, capsys):
    asked = times(monkeypatch, eager=2.0)
    code, report, _ = optimized(tmp_path, monkeypatch, capsys, "--no-compile")
    assert code == 0 and report["modes"][0]["best"] == "eager" and asked == [("eager",)]


def test_a_baseline_that_fails_is_left_out_with_its_reason(monkeypatch):
    def fail(module, **_):
        raise RuntimeError("no backend\nmore")

    monkeypatch.setattr(torch, "compile", fail)
    found = baselines.find(["torch.compile"], Model(), [torch.rand(2, 3)])
    assert not found.sides
    assert found.left_out == {"torch.compile": "it raised RuntimeError: no backend"}


def test_what_takes_long_to_compile_is_left_out_unless_asked_for():
    inputs = [torch.rand(2, 3)]
    many = baselines.MOST_OPS + 1
    assert baselines.find(["torch.compile"], Model(), inputs, many).left_out
    assert baselines.find(["torch.compile"], Model(), inputs, None).sides


def test_an_equal_model_is_not_compiled_again(monkeypatch):
    asked = times(monkeypatch, eager=3.0, compile=1.5)

    def run(graph, x):
        return baselines.contest(Model(), print, [x], "cpu", 1.0, ["torch.compile"], graph)

    first, again = (run("graph", torch.rand(2, 3)) for _ in range(2))
    assert asked == [("eager", "torch.compile"), ("eager",)]
    assert again.timings["torch.compile"].ratio == first.timings["torch.compile"].ratio == 1.5
    assert again.timings["torch.compile"].pairs == 0
    run("other graph", torch.rand(2, 3))
    run("graph", torch.rand(3, 2).T)
    assert asked[2:] == [("eager", "torch.compile")] * 2


def test_channels_last_is_a_copy_in_that_layout():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    twin, call = baselines.in_channels_last(module, [torch.rand(2, 3, 8, 8)])
    (x,) = call.args
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert twin[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert module[0].weight.is_contiguous() and twin[0].weight is not module[0].weight


@pytest.mark.filterwarnings("ignore:refold")
def test_in_memory(monkeypatch):
    compiled = nn.Identity()
    monkeypatch.setattr(torch, "compile", lambda module, **_: compiled)
    module, x = Model(), torch.rand(8, 16)
    times(monkeypatch, eager=2.0, compile=0.5)
    with pytest.warns(UserWarning, match="not faster than torch.compile"):
        assert refold.optimize(module, x) is module
    assert refold.optimize(module, x, otherwise="compile") is compiled
    times(monkeypatch, eager=2.0, compile=1.5)
    fast = refold.optimize(module, x, baselines=["torch.compile"])
    assert fast.refold_measured == {"both": {"eager": 2.0, "torch.compile": 1.5}}
    asked = times(monkeypatch)
    assert refold.optimize(module, x, measure=False).refold_measured == {} and not asked
    with pytest.raises(OptimizeError, match="unknown baseline 'inductor'"):
        refold.optimize(module, x, baselines=["inductor"])
    with pytest.raises(OptimizeError, match='expected otherwise="original" or "compile"'):
        refold.optimize(module, x, otherwise="eager")


@pytest.mark.parametrize("measure", (True, False))
def test_a_mode_whose_folds_fail_is_dropped_with_its_reason(monkeypatch, measure):
    def fail(fold, *given, **named):
        return [f"p{i}" for i in range(len(fold.sources))], ["raise RuntimeError('no')"]

    monkeypatch.setattr("refold.emit.module.fold_lines", fail)
    times(monkeypatch, eager=2.0, compile=1.5)
    module, x = Summed(8, 4), torch.rand(8, 8)
    with pytest.warns(UserWarning, match=r"could not be computed \(no\)"):
        assert refold.optimize(module, x, measure=measure) is module
    assert module.training
