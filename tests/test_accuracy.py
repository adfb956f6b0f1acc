"""Accuracy at the level of models: far from zero, very large and small, masked, drifting."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from agree import double, oracle_of, tensors
from refold import accuracy, introspect, pipeline
from refold.accuracy import samples
from refold.capture import Example, capture, widen
from refold.derive import Options, captures, derive
from refold.devices import DEVICES, DeviceModel
from refold.emit.load import load_text
from refold.engine import optimize
from refold.planner import PlanPricer
from refold.rules import match
from torch_target import TorchTarget


class Of(nn.Module):
    """A forward as a function of the module and its arguments, with parts and buffers."""

    def __init__(self, function: Callable[..., torch.Tensor], **parts: nn.Module | torch.Tensor):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(self, *args)


def fast_of(module: nn.Module, inputs: Sequence[torch.Tensor], **options: bool) -> nn.Module | str:
    """The twin as the plan has it, run by torch calls; or why the original is kept."""
    given = Options(measure=False, **options)
    source = "# Model is bound by the test."
    result = pipeline.run(
        module, inputs, source, "Model", TorchTarget(), DeviceModel.of("cpu"), given
    )
    if result.text is None:
        return "; ".join(result.reasons)
    return pipeline.adopt(load_text(result.text, {"Model": type(module)}).ModelNew, module)


def rms(v: torch.Tensor, t: torch.Tensor) -> float:
    known = t.isfinite()
    return (v.double() - t)[known].square().mean().sqrt().item() if known.any() else 0.0


def check(fast: nn.Module, module: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """As accurate as eager, finite where eager is, NaN where eager and float64 are."""
    oracle = oracle_of(module)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        rows = zip(*(tensors(m(*x)) for m, x in (
            (module, inputs), (fast, inputs), (oracle, double(list(inputs)))
        )), strict=True)  # fmt: skip
    for e, g, t in rows:
        known = e.isfinite() & t.isfinite()
        assert g[known].isfinite().all(), "an infinity or NaN in the place of a number"
        assert g[e.isnan() & t.isnan()].isnan().all(), "NaN is gone"
        if known.any():
            scale = t[known].square().mean().sqrt().item()
            own, theirs = rms(g[known], t[known]), rms(e[known], t[known])
            assert own <= 3 * theirs + 4 * 2.0**-23 * scale, f"{own:.3g}, eager {theirs:.3g}"


def linear(m: int = 24, k: int = 40) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(k, m)


MU, SD = torch.linspace(3e3, 5e3, 40), torch.linspace(0.5, 2, 40)
CPU = PlanPricer(DeviceModel.of("cpu"))
NORM = nn.BatchNorm1d(40)
NORM.running_mean, NORM.running_var = MU.clone(), SD.square()
NORM.weight.data.uniform_(0.5, 2), NORM.bias.data.normal_()

FAR: dict[str, Of] = {
    "standardised": Of(lambda s, x: s.f((x - s.mu) / s.sd), f=linear(), mu=MU, sd=SD),
    "batch-norm-of-input": Of(lambda s, x: s.f(s.n(x)), n=NORM, f=linear()),
    "mean": Of(lambda s, x: (x - s.mu).mean(-1), mu=MU),
    "sum-over-rows": Of(lambda s, x: (x - s.mu).sum(0), mu=MU),
    "pool": Of(lambda s, x: F.avg_pool1d((x - s.mu)[:, None], 4)[:, 0], mu=MU),
    "cumsum": Of(lambda s, x: (x - s.mu).cumsum(-1), mu=MU),
    "logsumexp": Of(lambda s, x: torch.logsumexp(x - s.mu, -1), mu=MU),
    "scaled-shift": Of(lambda s, x: ((x - s.mu) * s.sd).sum(-1), mu=MU, sd=SD),
    "two-shifts": Of(lambda s, x: torch.tanh((x - s.mu) + s.sd), mu=MU, sd=SD),
    "convolved": Of(
        lambda s, x: s.c(((x - s.mu) / s.sd)[:, None]).mean(-1),
        c=nn.Conv1d(1, 6, 3),
        mu=MU,
        sd=SD,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["standardised", "convolved"])
def test_far_from_zero(name: str) -> None:
    module = FAR[name].eval()
    torch.manual_seed(0)
    fast = fast_of(module, [torch.randn(32, 40) * SD + MU])
    if isinstance(fast, str):
        assert "nothing to rewrite" in fast
        return
    for batch in (32, 7):
        check(fast, module, [torch.randn(batch, 40) * SD + MU])


@pytest.mark.parametrize("name", FAR)
def test_a_mean_that_arrives_later(name: str) -> None:
    """Nothing nearly cancels at first; then other parameters are loaded."""
    module = copy.deepcopy(FAR[name]).eval()
    state = {k: v.clone() for k, v in module.state_dict().items()}
    with torch.no_grad():
        for k, v in module.state_dict().items():
            v.zero_() if k in ("mu", "n.running_mean") else None
    torch.manual_seed(0)
    fast = fast_of(module, [torch.randn(32, 40)])
    if isinstance(fast, str):
        return
    module.load_state_dict(state)
    check(fast, module, [torch.randn(32, 40) * SD + MU])


RANGES: dict[str, tuple[Callable[..., torch.Tensor], float]] = {
    "variance-of-tiny": (lambda s, x: (x * 1e-25).var(-1) * 2, 1e25),
    "variance-of-huge": (lambda s, x: (x * 1e25).var(-1) * 2, 1e-25),
    "sum-over-largest": (lambda s, x: (x / x.amax(-1, keepdim=True)).sum(-1), 5e37),
    "mean-over-largest": (lambda s, x: (x / x.abs().amax(-1, keepdim=True)).mean(-1), 5e37),
    "row-scaled": (lambda s, x: s.f(x / x.abs().amax(-1, keepdim=True)), 1e38),
    "layer-norm": (lambda s, x: s.f(F.layer_norm(x, (40,))), 1e15),
    "softmax": (lambda s, x: torch.softmax(s.f(x), -1).max(-1)[0], 1e-15),
}


@pytest.mark.parametrize("name", RANGES)
def test_very_large_and_small(name: str) -> None:
    function, scale = RANGES[name]
    module = Of(function, f=linear()).eval()
    torch.manual_seed(0)
    fast = fast_of(module, [torch.randn(32, 40)])
    if not isinstance(fast, str):
        check(fast, module, [torch.randn(32, 40) * scale])


class Shifted(nn.Module):
    """A norm of what is a bias alone where the input is small: all of a row is equal then."""

    def __init__(self, norm: nn.Module, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm = inner, norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.norm(self.inner(x) + 0.1))


@pytest.mark.parametrize(
    ("norm", "inner", "shape"),
    [
        (nn.LayerNorm(96), nn.Identity(), (16, 96)),
        (nn.LayerNorm(62), nn.Conv2d(4, 6, 3), (2, 4, 9, 64)),
        (nn.LayerNorm((7, 62)), nn.Conv2d(4, 6, 3), (2, 4, 9, 64)),
    ],
    ids=["of a row", "of lines of an image", "of images"],
)
def test_rows_that_a_shift_makes_equal_have_kernels(norm, inner, shape) -> None:
    """What is measured of the graph is what kernels do: beside a variance their mean is exact."""
    torch.manual_seed(0)
    module, x = Shifted(norm, inner).eval(), torch.randn(shape)
    fast = fast_of(module, [x])
    assert not isinstance(fast, str), fast
    for by in (1.0, 1e-15):
        check(fast, module, [x * by])


def test_batch_norm_centres_equal_values_without_error() -> None:
    """Their deviation is eps's alone, by which a last digit of the mean is divided."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 24, 3), nn.Tanh(), nn.BatchNorm2d(24)).train()
    fast = fast_of(module, [torch.randn(6, 3, 21, 20)])
    assert not isinstance(fast, str)
    for batch in (6, 5):
        with torch.no_grad():
            got = fast(torch.zeros(batch, 3, 21, 20))
        assert got.abs().max() < 1e-9


def test_a_folded_parameter_that_leaves_float32_takes_the_original() -> None:
    module = Of(lambda s, x: s.f(x * s.by), f=linear(), by=torch.ones(40)).eval()
    module.requires_grad_(False)
    x = torch.randn(8, 40)
    fast = fast_of(module, [x])
    assert not isinstance(fast, str) and introspect.fallback_reason(fast, [x]) is None
    for by in (1e38, 1e-38):
        module.by.fill_(by), module.f.weight.data.fill_(1e2 if by > 1 else 1e-2)
        reason = introspect.fallback_reason(fast, [x / by])
        assert reason is not None and "leaves the range of torch.float32" in reason
        assert torch.equal(fast(x / by), module(x / by))
    module.by.fill_(2.0), module.f.weight.data.normal_()
    check(fast, module, [x])


NANS: dict[str, Callable[..., torch.Tensor]] = {
    "divided-by-itself": lambda s, x: torch.relu(x) / torch.relu(x),
    "masked-softmax-sum": lambda s, x: torch.softmax(x, -1).sum(-1),
    "masked-softmax-mean": lambda s, x: torch.softmax(x * 0.5, -1).mean(-1),
    "row-mask": lambda s, x: torch.softmax(s.f(x.nan_to_num(neginf=0.0)) + x[:, :1], -1),
    "logsumexp-by-hand": lambda s, x: (
        torch.logsumexp(x - x.amax(-1, keepdim=True), -1, keepdim=True) + x.amax(-1, keepdim=True)
    ),
    "naive-softmax": lambda s, x: (200 * x).exp() / (200 * x).exp().sum(-1, keepdim=True),
}


@pytest.mark.parametrize("name", NANS)
def test_NaN_that_the_model_makes_stays(name: str) -> None:
    module = Of(NANS[name], f=linear()).eval()
    torch.manual_seed(0)
    x = torch.randn(32, 40)
    x[::3] = -torch.inf
    fast = fast_of(module, [x])
    if not isinstance(fast, str):
        check(fast, module, [x])


def test_unsafe_is_asked_for_and_named_in_the_file() -> None:
    module = Of(NANS["masked-softmax-sum"], f=linear()).eval()
    fast = fast_of(module, [torch.randn(8, 40)], unsafe=True)
    with torch.no_grad():
        assert torch.equal(fast(torch.full((2, 40), -torch.inf)), torch.ones(2))
    result = pipeline.run(
        module,
        [torch.randn(8, 40)],
        "# Model is bound by the test.",
        "Model",
        TorchTarget(),
        DeviceModel.of("cpu"),
        Options(measure=False, unsafe=True),
    )
    assert "--unsafe" in result.text.split("import")[0]


# --- the loop -------------------------------------------------------------------------------------
def meter_of(module: nn.Module, x: torch.Tensor):
    captured = capture(module, [x], training=False)
    graph = widen(captured.graph).graph
    return accuracy.Meter(module, Example.of([x]), captured, graph), graph


def test_the_rule_that_costs_accuracy_is_banned_and_no_other() -> None:
    """The sum of a shifted input would lose four digits: only that is given up."""
    module = Of(lambda s, x: (x - s.mu).sum(-1) + s.f(x * 1e-3).sum(-1), f=linear(), mu=MU).eval()
    torch.manual_seed(0)
    meter, graph = meter_of(module, torch.randn(32, 40) * SD + MU)
    with mock.patch.object(match, "is_safe", lambda rule, found: True):
        done, found = meter.accurate(lambda no: optimize(graph, CPU, banned=no))
    assert found.banned and "sum-through-linear" not in found.banned
    assert found.ratio < 2
    assert all(n.shape[-1] == 1 for n in done.graph.nodes() if n.op == "linear")


def test_what_capture_takes_apart_badly_keeps_the_original() -> None:
    module = Of(lambda s, x: (x * 1e20).std(-1), f=linear()).eval()
    kept = fast_of(module, [torch.randn(8, 40)])
    assert isinstance(kept, str) and "less accurate than PyTorch's" in kept


@pytest.mark.parametrize(("groups", "shape"), [(4, (3, 4)), (8, (2, 8, 1)), (1, (3, 1))])
def test_a_norm_over_one_value_leaves_eager_nothing_but_noise(groups, shape) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.GroupNorm(groups, shape[1]), nn.ReLU()).eval()
    fast = fast_of(module, [torch.randn(shape)])
    assert not isinstance(fast, str), fast
    with torch.no_grad():
        assert not fast(torch.randn(shape)).any()


def test_a_small_result_that_capture_does_not_see_keeps_the_original() -> None:
    """It is no noise: it changes as little as the arguments do."""
    seen = torch.compiler.is_compiling
    module = Of(lambda s, x: s.f(x) * (0.0 if seen() else 1e-6), f=linear()).eval()
    kept = fast_of(module, [torch.randn(8, 40)])
    assert isinstance(kept, str) and "something else than forward itself" in kept


@pytest.mark.parametrize(
    ("eager", "made", "scaled", "met"),
    [
        (1e-7, 1e-6, True, False),
        (10.0, 300.0, True, True),
        (10.0, 300.0, False, False),
        (10.0, 3000.0, True, False),
        (0.1, 3.0, True, False),
    ],
)
def test_noise_on_both_sides_is_held_to_less(
    eager: float, made: float, scaled: bool, met: bool
) -> None:
    """As where a bias is added to values of 1e-15, and a norm then scales what is left."""
    one = accuracy.errors.Error(eager**2, made**2, 1.0, 2.0**-23, False)
    assert accuracy.errors.meets([[one]], accuracy.errors.FACTOR, scaled) == met
    assert (accuracy.errors.ratio_of([[one]], scaled) == 0.0) == met


def test_the_batch_is_cut_and_modes_stay() -> None:
    module = Of(lambda s, x: s.n(s.f(x)).sum(-1), f=nn.Linear(512, 512), n=nn.BatchNorm1d(512))
    x = torch.randn(5000, 512)
    module.n.eval()
    before = copy.deepcopy(module.state_dict())
    meter, _ = meter_of(module, x)
    assert meter.samples is not None
    assert 16 <= meter.samples.get("the example").eager[0].shape[0] < 5000
    assert not module.n.training and module.training
    for k, v in module.state_dict().items():
        assert torch.equal(v, before[k])
    assert module(x).shape == (5000,)


@pytest.mark.parametrize(("form", "smallest"), [(nn.Conv2d, 4), (nn.Linear, 16)])
def test_of_large_images_a_few_are_enough(
    monkeypatch: pytest.MonkeyPatch, form: type[nn.Module], smallest: int
) -> None:
    """Each has many places; of rows a batch norm would have too few."""
    for name in ("WORK", "SLOW"):
        monkeypatch.setattr(accuracy.samples, name, 1.0)
    flat = form is nn.Linear
    module = Of(lambda s, x: torch.relu(s.f(x)), f=form(8, 8) if flat else form(8, 8, 3)).eval()
    meter, _ = meter_of(module, torch.randn(64, 8) if flat else torch.randn(64, 8, 9, 9))
    assert meter.samples is not None
    assert meter.samples.get("the example").eager[0].shape[0] == smallest


def test_bfloat16_is_held_to_its_own_precision() -> None:
    module = Of(lambda s, x: torch.relu(s.f(x)).sum(-1), f=linear()).eval().bfloat16()
    meter, graph = meter_of(module, torch.randn(32, 40).bfloat16())
    _, found = meter.accurate(lambda no: optimize(graph, CPU, banned=no))
    assert found.skipped is None and not found.banned


def test_eager_is_asked_once_for_all_derivations_of_a_module(monkeypatch):

    module, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), torch.randn(32, 8)
    asked, real = [], samples._eager
    monkeypatch.setattr(samples, "_eager", lambda *given: (asked.append(given), real(*given))[1])
    device, options = DeviceModel(DEVICES["cpu"]), Options(measure=False)
    known, captured = {}, captures(module, [x])
    first = derive(module, [x], device, options, captured, known)
    count = len(asked)
    assert count and known.keys() == {"train", "eval"}
    again = derive(module, [x], device, options, captured, known)
    assert len(asked) == count
    assert [d.mode.accuracy for d in again] == [d.mode.accuracy for d in first]
