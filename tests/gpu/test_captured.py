"""torch.compile(backend="refold") with CUDA graphs: forward and backward are replayed."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn

from refold.backend import graphs, refold
from refold.backend.report import collected

pytestmark = pytest.mark.gpu
WAYS = [{"options": {"graphs": True}}, {"mode": "reduce-overhead"}]


class Net(nn.Module):
    """Products with statistics, which forward writes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Linear(256, 128), nn.GELU()
        )
        self.head = nn.Linear(128, 8)

    def forward(self, x):
        return self.head(self.layers(x))


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(graphs, "WORTH", 0.0)  # every graph that can be read is ours
    torch._dynamo.reset()
    torch.compiler.cudagraph_mark_step_begin()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(model, way):
    options = {"measure": False, **way.get("options", {})}
    return torch.compile(
        model, backend=functools.partial(refold, mode=way.get("mode"), options=options)
    )


def was_captured() -> bool:
    from torch._inductor.cudagraph_trees import get_manager

    manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    return manager is not None and bool(manager.roots) and not skipped


@pytest.mark.parametrize("way", WAYS, ids=["graphs", "reduce-overhead"])
def test_steps_of_training(way):
    """Eight steps, each replayed but for the first two, by the side of eager's and of float64."""
    model = Net().cuda()
    sides = [model, copy.deepcopy(model), copy.deepcopy(model).double()]
    with collected() as found:
        run = compiled(model, way)
        runs = [run, sides[1], sides[2]]
        optimizers = [torch.optim.SGD(s.parameters(), lr=0.05) for s in sides]
        for _ in range(8):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(512, 64, device="cuda")
            for side, call, optimizer in zip(sides, runs, optimizers, strict=True):
                optimizer.zero_grad()
                given = x.double() if side is sides[2] else x
                call(given).square().mean().backward()
                optimizer.step()
    assert [(g.kind, g.by, g.parts) for g in found] == [
        ("forward", "refold", 1),
        ("backward", "refold", 1),
    ]
    assert was_captured()
    for mine, eager, exact in zip(*(s.state_dict().values() for s in sides), strict=True):
        error, own = ((v.double() - exact).norm() for v in (mine, eager))
        assert error <= 4 * own + 1e-6 * exact.double().norm()


@pytest.mark.parametrize("way", WAYS, ids=["graphs", "reduce-overhead"])
def test_inference_and_another_batch(way):
    model = Net().cuda().eval()
    run = compiled(model, way)
    with torch.no_grad():
        for rows in (512, 512, 512, 300, 300, 512):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(rows, 64, device="cuda")
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_without_them_nothing_is_captured():
    model = Net().cuda().eval()
    with torch.no_grad(), collected() as found:
        run = compiled(model, {})
        for _ in range(3):
            run(torch.randn(512, 64, device="cuda"))
    assert [g.parts for g in found] == [0] and found[0].by == "refold"
