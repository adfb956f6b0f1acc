"""Every model of the zoo, through capture, rewriting, plan and emission, against float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils import _pytree as pytree

from refold import pipeline
from refold.pipeline import Options
from zoo import CASES


def emitted(module, inputs):
    target, device = pipeline.target_for("cpu")
    result = pipeline.run(
        module,
        inputs,
        "# Model is bound by the test.",
        type(module).__name__,
        target,
        device,
        Options(measure=False),
    )
    assert result.text is not None, result.reasons
    assert not result.reasons
    return pipeline.bind_for_class(result.text, module), result


def double(tree):
    return pytree.tree_map(
        lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, tree
    )


def leaves(tree):
    return [v for v in pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


def check_close(got, eager, truth):
    """The rule of the judge: error against float64 within a multiple of eager's own."""
    assert pytree.tree_structure(got) == pytree.tree_structure(eager)
    for g, e, t in zip(leaves(got), leaves(eager), leaves(truth), strict=True):
        assert (g.shape, g.dtype, g.stride()) == (e.shape, e.dtype, e.stride())
        if not g.is_floating_point():
            assert torch.equal(g, e)
            continue
        scale = t.abs().max().item() if t.numel() else 0.0
        # of float64 there is no wider truth: eager's error is not known
        factor, floor = {torch.float32: (16, 4e-7), torch.float64: (16, 1.5e-14)}.get(
            g.dtype, (3, torch.finfo(g.dtype).eps)
        )
        allowed = factor * (e.double() - t).abs().max().item() + floor * scale
        assert (g.double() - t).abs().max().item() <= allowed


@pytest.mark.parametrize("name", CASES)
def test_model_computes_the_same(name):
    torch.manual_seed(0)
    module = CASES[name]()
    inputs = module.inputs()
    fast, _ = emitted(module, inputs)
    for training in (True, False):
        for seed in (1, 2):
            torch.manual_seed(seed)
            inputs = module.inputs()
            reference, oracle = copy.deepcopy(module), copy.deepcopy(module).double()
            twin = copy.deepcopy(fast)
            for m in (reference, oracle, twin):
                m.train(training)
            if hasattr(oracle, "offset"):
                oracle.offset = oracle.offset.double()
            with torch.no_grad():
                obstacle = pipeline.obstacle(twin, inputs)
                assert obstacle is None
                eager, truth = reference(*inputs), oracle(*double(inputs))
                check_close(twin(*inputs), eager, truth)
            for k, v in reference.state_dict().items():
                torch.testing.assert_close(twin.state_dict()[k], v, rtol=2e-5, atol=1e-6)
