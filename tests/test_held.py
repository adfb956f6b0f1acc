"""Memory that folded and packed parameters take: counted, bounded, printed, freed."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import torch
from torch import nn

import refold
from refold import cli, pipeline
from refold.derive import Options, derive
from refold.emit.held import held, own_bytes
from refold.pipeline import OptimizeError
from refold.twin import caches_of, folded_bytes


class Pooled(nn.Module):
    """Pooling goes into the kernel, which grows by it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 48, 3)

    def forward(self, x):
        return torch.sigmoid(nn.functional.avg_pool2d(self.conv(x), 4)).sum((1, 2, 3))


class Turned(nn.Module):
    """A product with a matrix that lies the other way round: the kernel needs a copy of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 48))

    def forward(self, x):
        return torch.relu(x @ self.weight)


MODELS = {Pooled: (4, 6, 40, 40), Turned: (8, 64)}


def derived(cls, memory, name="cpu"):
    _, device = pipeline.target_for(name)
    module, x = cls(), torch.randn(MODELS[cls])
    (found,) = derive(module, [x], device, Options(memory=memory))
    kept = sum(h.size for h in held(found.mode.plan)) if found.mode.plan else 0
    return found, kept, own_bytes(module)


def test_what_is_small_may_be_kept_by_default():
    _, kept, own = derived(Pooled, None)
    assert kept > 3 * own


@pytest.mark.parametrize("memory", (1.0, 0.5, 0.0))
def test_over_the_bound_the_fold_is_given_up(memory):
    found, kept, own = derived(Pooled, memory)
    assert found.mode.plan is not None, found.mode.kept
    assert kept <= memory * own


def test_what_cannot_be_given_up_keeps_the_original():
    found, kept, own = derived(Turned, 1.0)
    assert kept == own, found.mode.kept
    found, _, _ = derived(Turned, 0.5)
    assert "would take 12,288 bytes beside the 12,288 of the parameters" in found.mode.kept


def test_packed_parameters_are_counted():
    found, kept, own = derived(Turned, 10.0, "cuda:sm_90")
    packed = [h for h in held(found.mode.plan) if "packed" in h.name]
    assert kept == own + sum(h.size for h in packed)


def test_what_is_counted_is_held_and_freed_with_the_module():
    x = torch.randn(MODELS[Turned])
    fast = refold.optimize(Turned(), x, measure=False)
    with torch.no_grad():
        fast(x)
    ((_, _, cache),) = caches_of(fast)
    assert folded_bytes(cache) == own_bytes(fast)
    assert "take 12,288 bytes beside 12,288 of parameters" in fast.refold_source
    folded = weakref.ref(cache.values[0])
    del fast, cache
    gc.collect()
    assert folded() is None


REFERENCE = """import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 48))
    def forward(self, x):
        return torch.relu(x @ self.weight)
def get_inputs():
    return [torch.rand(8, 64)]
"""


def test_explain_says_what_is_kept(tmp_path, capsys):
    path = tmp_path / "ref.py"
    path.write_text(REFERENCE)
    assert cli.main(["explain", str(path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["held"] == [{"name": "folded_weight", "bytes": 12288}]
    assert row["parameter_bytes"] == 12288
    assert cli.main(["explain", str(path)]) == 0
    assert (
        "kept beside 12.3 kB of parameters: 12.3 kB (folded_weight 12.3 kB)"
        in capsys.readouterr().out
    )
    assert cli.main(["explain", str(path), "--memory", "0", "--json"]) == 0
    assert "are allowed (memory)" in json.loads(capsys.readouterr().out)[0]["kept"]


def test_a_bound_is_a_number_that_is_not_negative(capsys):
    with pytest.raises(SystemExit):
        cli.main(["explain", "ref.py", "--memory", "-1"])
    assert "expected a number that is not negative, came '-1'" in capsys.readouterr().err
    with pytest.raises(OptimizeError, match="expected memory to be 0 or more, came -1"):
        refold.optimize(Turned(), torch.randn(8, 64), memory=-1)
